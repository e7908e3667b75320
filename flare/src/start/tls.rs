//! Whom deliveries trust, and how they identify themselves: the files of `delivery.ca`, `delivery.certificate` and
//! `delivery.key`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
    let secret = private_key(key).with_context(|| wrong("delivery.key", key))?;
    let config = builder.with_client_auth_cert(chain, secret).with_context(|| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("delivery.certificate {certificate} and delivery.key {key} do not go together")
    })?;
    Ok(Some(config))
}

fn wrong(name: &str, file: &Path) -> String {
    format!("cannot use {name} {}", file.display())
}

fn add_roots(file: &Path, roots: &mut RootCertStore) -> anyhow::Result<()> {
    for certificate in certificates(file)? {
        roots.add(certificate).context("it has a certificate that cannot be an authority")?;
    }
    Ok(())
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(explained)?;
    ensure!(!certificates.is_empty(), "it holds no certificate in PEM form");
    Ok(certificates)
}

fn private_key(file: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        pem::Error::NoItemsFound => anyhow::anyhow!("it holds no private key in PEM form"),
        other => explained(other),
    })
}

/// An error of the system as such: those of PEM say "I/O error" and no more.
fn explained(error: pem::Error) -> anyhow::Error {
    match error {
        pem::Error::Io(error) => error.into(),
        other => other.into(),
    }
}
