//! TLS to the server, by rustls.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::Own;
use crate::StoreError;

/// What is looked at in the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: against who listens, not against who stands between.
    Nothing,
    /// That it comes from somebody trusted, for whatever name.
    Chain,
    /// And that it is the name that was dialled.
    Full,
}

/// A way to make connections.
pub(super) type Tls = MakeTls;

/// Makes connections of one kind.
#[derive(Clone)]
pub(super) struct MakeTls(pub(super) MakeRustlsConnect);

impl MakeTls {
    pub(super) fn new(verify: Verify, own: &Own) -> Result<Self, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let fault =
            |what: &str, error: &dyn std::fmt::Display| StoreError::Config(format!("{what}: {error}"));
        let verifier: Arc<dyn ServerCertVerifier> = if verify == Verify::Nothing {
            Arc::new(Lenient { inner: None, provider: Arc::clone(&provider) })
        } else {
            let roots = Arc::new(roots(own.root.as_deref())?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| fault("sslrootcert", &error))?;
            match verify {
                Verify::Full => inner,
                _ => Arc::new(Lenient { inner: Some(inner), provider: Arc::clone(&provider) }),
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fault("TLS", &error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (&own.certificate, &own.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| fault(&format!("sslkey {}", key.display()), &error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| fault("sslcert", &error))?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err(StoreError::Config("sslcert and sslkey go together".to_owned())),
        };
        Ok(Self(MakeRustlsConnect::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let fault = |error: &dyn std::fmt::Display| StoreError::Config(format!("{}: {error}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| fault(&error))?;
    certificates.collect::<Result<_, _>>().map_err(|error| fault(&error))
}

fn roots(path: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| StoreError::Config(format!("{}: {error}", path.display())))?;
            }
            if roots.is_empty() {
                return Err(StoreError::Config(format!("{}: no certificate in it", path.display())));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(StoreError::Config(
                    "the system has no root certificates; name one with sslrootcert".to_owned(),
                ));
            }
        }
    }
    Ok(roots)
}

/// Lets any name through, or any certificate. Signatures are checked all the same.
#[derive(Debug)]
struct Lenient {
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when all else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
