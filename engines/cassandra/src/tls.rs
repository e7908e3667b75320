//! Encrypted connections: rustls, and the authorities that the user trusts.

use std::sync::Arc;

use flare_core::{Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::options::Tls;

pub(crate) fn configuration(tls: Option<&Tls>) -> Result<Option<Arc<ClientConfig>>> {
    let Some(tls) = tls else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let wrong =
                |error| Error::invalid(format!("could not read the certificates in {}", path.display())).because(error);
            for certificate in CertificateDer::pem_file_iter(path).map_err(wrong)? {
                roots
                    .add(certificate.map_err(wrong)?)
                    .map_err(|error| Error::invalid("a certificate authority cannot be used").because(error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("could not set up TLS").because(error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}
