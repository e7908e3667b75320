//! Whom deliveries trust, and how they identify themselves: the files of `delivery.ca`, `delivery.certificate` and
//! `delivery.key`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use flare_toolkit::tls::{add_roots, certificates, unreadable};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::config::Delivery;

/// None where the defaults of the client are right. An error names the key and its file.
pub fn client(delivery: &Delivery) -> anyhow::Result<Option<ClientConfig>> {
    let given = |file: &Path| !file.as_os_str().is_empty();
    let (has_roots, has_certificate) = (given(&delivery.ca), given(&delivery.certificate));
    if !has_roots && !has_certificate {
        return Ok(None);
    }
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if has_roots {
        add_roots(&delivery.ca, &mut roots).with_context(|| wrong("delivery.ca", &delivery.ca))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS for deliveries")?
        .with_root_certificates(roots);
    if !has_certificate {
        return Ok(Some(builder.with_no_client_auth()));
    }
    let (certificate, key) = (&delivery.certificate, &delivery.key);
    let chain = certificates(certificate).with_context(|| wrong("delivery.certificate", certificate))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable(error, "private key"))
        .with_context(|| wrong("delivery.key", key))?;
    let config = builder.with_client_auth_cert(chain, secret).with_context(|| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("delivery.certificate {certificate} and delivery.key {key} do not go together")
    })?;
    Ok(Some(config))
}

fn wrong(name: &str, file: &Path) -> String {
    format!("cannot use {name} {}", file.display())
}
