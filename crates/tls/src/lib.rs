//! TLS 1.3 (RFC 8446) with one cipher suite, and a certificate that proves nothing: it and its key are in the source for all
//! to see, and a client takes any. Who is at the other end is told otherwise, or nobody asks. Early data,
//! resumption and tickets are off. The cryptography is ring's.

#![forbid(unsafe_code)]

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    SupportedCipherSuite, version,
};

/// Whom clients ask for; nobody looks whether the certificate says so.
pub const NAME: &str = "goodput";
/// Self-signed, P-256, made for this file; so is the key, which is no secret.
const CERTIFICATE: &[u8] = include_bytes!("certificate.der");
const KEY: &[u8] = include_bytes!("key.der");

/// A client that encrypts with this suite only, and takes any certificate.
///
/// # Errors
/// As rustls has them for a suite that is none of TLS 1.3.
pub fn client_config(suite: SupportedCipherSuite) -> Result<ClientConfig, Error> {
    Ok(
        ClientConfig::builder_with_provider(Arc::new(provider(suite)))
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth(),
    )
}

/// A server that encrypts with this suite only, and has the certificate that everybody has.
///
/// # Errors
/// As [`client_config`].
pub fn server_config(suite: SupportedCipherSuite) -> Result<ServerConfig, Error> {
    let chain = vec![CertificateDer::from(CERTIFICATE)];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider(suite)))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // A ticket would lie unread before a client that only writes; closing over it resets the connection.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn provider(suite: SupportedCipherSuite) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![suite],
        ..ring::default_provider()
    }
}

/// Takes any certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
