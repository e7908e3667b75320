//! Whom connections to servers trust: the authorities of the web, or those of a file of PEM.

use std::{path::Path, sync::Arc};

use flare_core::{Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};

/// A server's certificate must be signed for the host. A file of authorities takes the place of those of the web.
pub fn client_config(ca: Option<&Path>) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("could not set up TLS").because(error))?;
    Ok(builder.with_root_certificates(roots(ca)?).with_no_client_auth())
}

/// The authorities of the file, or without one those of the web.
pub fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => add_roots(file, &mut roots).map_err(|error| {
            Error::invalid(format!("the authorities of {} cannot be used", file.display())).because(error)
        })?,
    }
    Ok(roots)
}

/// Adds the authorities of the file. The error does not name it.
pub fn add_roots(file: &Path, roots: &mut RootCertStore) -> Result<()> {
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| Error::invalid("it has a certificate that cannot be an authority").because(error))?;
    }
    Ok(())
}

/// The certificates of the file, at least one. The error does not name it.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(error, "certificate"))?;
    if certificates.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound, "certificate"));
    }
    Ok(certificates)
}

/// What is wrong with a file in which something is looked for.
pub fn unreadable(error: pem::Error, wanted: &str) -> Error {
    match error {
        pem::Error::NoItemsFound => Error::invalid(format!("it holds no {wanted} in PEM form")),
        // Those of PEM say "I/O error" and no more.
        pem::Error::Io(error) => Error::invalid("it cannot be read").because(error),
        other => Error::invalid("it is not in PEM form").because(other),
    }
}

#[cfg(test)]
mod tests {
    use flare_contract::tls::Authority;

    use super::*;

    fn refusal(content: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, content).unwrap();
        let error = roots(Some(file.path())).err().unwrap();
        assert!(error.chain().contains(&file.path().display().to_string()), "{}", error.chain());
        error.chain()
    }

    #[test]
    fn a_file_takes_the_place_of_the_authorities_of_the_web() {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, one.pem() + &two.pem()).unwrap();
        assert_eq!(roots(Some(file.path())).unwrap().len(), 2);
        assert!(roots(None).unwrap().len() > 10);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        let nowhere = roots(Some(Path::new("/nowhere.pem"))).err().unwrap().chain();
        assert!(nowhere.contains("/nowhere.pem") && nowhere.contains("No such file"), "{nowhere}");
        assert!(refusal("").ends_with("it holds no certificate in PEM form"));
        assert!(
            refusal(&Authority::new("a").issue("b", &[]).key_pem()).ends_with("it holds no certificate in PEM form")
        );
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(refusal(broken).contains("cannot be an authority"));
    }
}
