//! TLS to the broker, by rustls.

use std::{path::PathBuf, sync::Arc};

use flare_core::{Error, Result};
use lapin::tcp::RustlsConnector;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The broker's certificate must be signed for the name of its host. A file of authorities takes the place of those of
/// the web.
pub(crate) fn connector(ca: Option<&PathBuf>) -> Result<RustlsConnector> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("could not set up TLS").because(error))?
        .with_root_certificates(roots(ca)?)
        .with_no_client_auth();
    Ok(config.into())
}

fn roots(ca: Option<&PathBuf>) -> Result<RootCertStore> {
    let Some(path) = ca else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let unreadable = || Error::invalid(format!("the certificates of {} cannot be read", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable().because(error))? {
        let certificate = certificate.map_err(|error| unreadable().because(error))?;
        roots.add(certificate).map_err(|error| unreadable().because(error))?;
    }
    if roots.is_empty() { Err(unreadable()) } else { Ok(roots) }
}
