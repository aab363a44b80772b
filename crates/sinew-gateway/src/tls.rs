//! TLS of a gateway: certificates from files, reloaded when they change, and the names in client
//! certificates.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::access::PeerNames;
use crate::error::GatewayError;
use crate::options::TlsFiles;

/// Interval of checks for changed files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Protocols offered to clients.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Accepts TLS connections with the current certificate of the files.
pub(crate) struct TlsListener {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    _watch: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// Reads the files, and watches them for changes.
    pub(crate) fn open(files: TlsFiles) -> Result<Self, GatewayError> {
        let mut stamp = stamp_of(&files);
        let config = Arc::new(RwLock::new(Arc::new(read_config(&files)?)));
        let watched = Arc::clone(&config);
        let watch = tokio::spawn(async move {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                let now = stamp_of(&files);
                if now == stamp {
                    continue;
                }
                // A certificate and its key may be replaced one after the other: the old pair is
                // used until both match.
                match read_config(&files) {
                    Ok(new) => {
                        *watched.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                        tracing::info!("reloaded the certificate");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot use the new certificate; the previous one remains in use");
                    }
                }
                stamp = now;
            }
        });
        Ok(Self { config, _watch: AbortOnDropHandle::new(watch) })
    }

    /// Starts TLS on a connection. Returns the names in the client's certificate, if it presented
    /// one.
    pub(crate) async fn accept(
        config: Arc<ServerConfig>,
        stream: TcpStream,
    ) -> std::io::Result<(TlsStream<TcpStream>, Option<PeerNames>)> {
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let certificates = stream.get_ref().1.peer_certificates();
        let names = certificates.and_then(<[_]>::first).map(names_of);
        Ok((stream, names))
    }

    /// Returns the configuration for new connections.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the DNS names of a verified certificate.
fn names_of(certificate: &CertificateDer<'_>) -> PeerNames {
    let read = webpki::EndEntityCert::try_from(certificate);
    let names = read.map(|read| read.valid_dns_names().map(str::to_owned).collect()).unwrap_or_default();
    PeerNames(names)
}

/// Returns times and lengths of the files.
fn stamp_of(files: &TlsFiles) -> Vec<Option<(SystemTime, u64)>> {
    let stamp = |path: &Path| {
        let read = std::fs::metadata(path).ok()?;
        Some((read.modified().ok()?, read.len()))
    };
    let paths = [Some(&files.certificate), Some(&files.key), files.client_authorities.as_ref()];
    paths.into_iter().flatten().map(|path| stamp(path)).collect()
}

fn read_config(files: &TlsFiles) -> Result<ServerConfig, GatewayError> {
    let bad = |path: &Path, reason: &dyn std::fmt::Display| GatewayError::Tls {
        reason: format!("{}: {reason}", path.display()),
    };
    let chain = certificates(&files.certificate)?;
    note_expiry(&files.certificate, &chain);
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, &error))?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| bad(&files.certificate, &error))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| bad(path, &error))?;
            }
            // Clients without a certificate can use a key.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.allow_unauthenticated().build().map_err(|error| bad(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| bad(&files.key, &error))?;
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Reports when the first certificate of a chain expires.
fn note_expiry(path: &Path, chain: &[CertificateDer<'_>]) {
    let end = |certificate: &CertificateDer<'_>| {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        Some(read.validity().not_after.timestamp())
    };
    let Some(first) = chain.iter().filter_map(end).min() else { return };
    let file = path.display().to_string();
    metrics::gauge!("sinew_certificate_expiry_timestamp_seconds", "file" => file).set(first as f64);
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GatewayError> {
    let bad = |reason: String| GatewayError::Tls { reason: format!("{}: {reason}", path.display()) };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
    let found = read.collect::<Result<Vec<_>, _>>().map_err(|error| bad(error.to_string()))?;
    if found.is_empty() { Err(bad("it contains no certificate".to_owned())) } else { Ok(found) }
}
