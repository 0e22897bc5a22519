//! TLS 1.3 (RFC 8446) with one cipher suite, and a certificate that proves nothing: it and its key are in the source for all
//! to see, and a client takes any. Who is at the other end is told otherwise, or nobody asks. Early data,
//! resumption and tickets are off. The cryptography is ring's.
//!
//! For a daemon that serves copies there are certificates that do prove something ([`gate_server`], [`gate_client`]).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName,
    UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
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
    server_config_of(vec![suite])
}

/// As [`server_config`], for whichever of these suites a client has: it has one, and says before which.
///
/// # Errors
/// As [`client_config`].
pub fn server_config_of(suites: Vec<SupportedCipherSuite>) -> Result<ServerConfig, Error> {
    let chain = vec![CertificateDer::from(CERTIFICATE)];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY));
    let provider = CryptoProvider {
        cipher_suites: suites,
        ..ring::default_provider()
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    // A ticket would lie unread before a client that only writes; closing over it resets the connection.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A certificate that is one's own, and its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate (with those between it and its authority) and its key, in PEM (RFC 7468). The key's file must be
    /// its owner's alone.
    ///
    /// # Errors
    /// `PermissionDenied` where others can use the key; `InvalidData` for what is none; as open(2).
    pub fn read(certificate: &Path, key: &Path) -> io::Result<Self> {
        let chain = certificates(certificate)?;
        let file = File::open(key)?;
        // Of what was opened, not of what may stand there by now.
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = format!(
                "{}: others can use it (mode {:03o}); say `chmod 600` to it",
                key.display(),
                mode & 0o777
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let mut pem = Vec::new();
        file.take(PEM_MOST).read_to_end(&mut pem)?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| invalid(key, "holds no private key in PEM"))?;
        Ok(Self { chain, key })
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(..)")
    }
}

/// The longest file of certificates that is read.
const PEM_MOST: u64 = 16 << 20;

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut pem = Vec::new();
    File::open(path)?.take(PEM_MOST).read_to_end(&mut pem)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(invalid(path, "holds no certificate in PEM")),
    }
}

/// Reads certificates of authorities, in PEM.
///
/// # Errors
/// `InvalidData` for what is none; as open(2).
pub fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store
            .add(certificate)
            .map_err(|error| invalid(path, &error.to_string()))?;
    }
    Ok(store)
}

fn invalid(path: &Path, what: &str) -> io::Error {
    let text = format!("{}: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whose certificates a daemon takes.
#[derive(Debug)]
pub struct Clients {
    authorities: RootCertStore,
    revoked: Option<Vec<CertificateRevocationListDer<'static>>>,
}

impl Clients {
    /// Reads the certificates of authorities, and their lists of revoked certificates (CRL, RFC 5280), in PEM. With a
    /// list, each certificate from a client's to its authority has to be on none, and there has to be a list that is not
    /// out of date for each.
    ///
    /// # Errors
    /// `InvalidData` for what is none; as open(2).
    pub fn read(authorities: &Path, revoked: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            authorities: self::authorities(authorities)?,
            revoked: revoked.map(revocation_lists).transpose()?,
        })
    }
}

fn revocation_lists(path: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let mut pem = Vec::new();
    File::open(path)?.take(PEM_MOST).read_to_end(&mut pem)?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match lists {
        Ok(lists) if !lists.is_empty() => Ok(lists),
        _ => Err(invalid(path, "holds no certificate revocation list in PEM")),
    }
}

/// The server of a daemon: with a certificate of its own or everybody's; where `clients` are said, it wants a certificate
/// that one of their authorities signed and has not revoked.
///
/// # Errors
/// As rustls has them for keys that do not fit, and for lists that are none.
pub fn gate_server(
    identity: Option<Identity>,
    clients: Option<Clients>,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let authorities = Arc::new(clients.authorities);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
            if let Some(revoked) = clients.revoked {
                verifier = verifier.with_crls(revoked).enforce_revocation_expiration();
            }
            let verifier = verifier.build();
            let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = match identity {
        Some(Identity { chain, key }) => builder.with_single_cert(chain, key)?,
        None => builder.with_single_cert(
            vec![CertificateDer::from(CERTIFICATE)],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY)),
        )?,
    };
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Who comes to a daemon: where `authorities` are said, one of them must have signed its certificate; without, any will
/// do, and who it is has to be proved otherwise.
///
/// # Errors
/// As rustls has them for keys that do not fit.
pub fn gate_client(
    identity: Option<Identity>,
    authorities: Option<RootCertStore>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])?;
    let builder = match authorities {
        Some(authorities) => builder.with_root_certificates(authorities),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody)),
    };
    match identity {
        Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
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
