//! TLS: certificates that are replaced, and callers who prove themselves by a certificate.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use sinew_gateway::{TlsFiles, TransportSecurity};
use sinew_operations::gateway_keys::{NewKey, revoke_keys};

use crate::support::{GatewayWorld, PATIENCE, SINGLE, now};

/// An authority of certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key in PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// A client that trusts this authority, and shows a certificate if it has one.
    fn client(&self, own: Option<&Identity>) -> reqwest::Client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(Arc::new(roots));
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .pool_max_idle_per_host(0)
            .build()
            .unwrap()
    }
}

fn write(folder: &Path, identity: &Identity) {
    std::fs::write(folder.join("tls.key"), &identity.key).unwrap();
    std::fs::write(folder.join("tls.crt"), &identity.certificate).unwrap();
}

fn files(folder: &Path, with_clients: bool) -> TransportSecurity {
    TransportSecurity::Tls(TlsFiles {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        client_authorities: with_clients.then(|| folder.join("clients.crt")),
    })
}

#[tokio::test]
async fn certificates_prove_callers() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let folder = tempfile::tempdir().unwrap();
    let (own, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    write(folder.path(), &own.issue("localhost"));
    std::fs::write(folder.path().join("clients.crt"), clients.0.pem()).unwrap();
    world
        .key(|new| {
            new.name = "crm".to_owned();
            new.certificate_name = Some("crm.internal".to_owned());
        })
        .await;
    // Earlier keys of the same name were revoked, and do not stand in the way of the one that is valid.
    for _ in 0..8 {
        let earlier = |new: &mut NewKey| {
            new.name = "earlier".to_owned();
            new.certificate_name = Some("crm.internal".to_owned());
        };
        world.key(earlier).await;
    }
    revoke_keys(&world.mesh, "earlier", now()).await.unwrap();
    let (_, key) = world.key(|_| {}).await;
    let gateway = world
        .start_with(|options| {
            options.listen = ([0, 0, 0, 0], 0).into();
            (options.access.is_required, options.transport) = (true, files(folder.path(), true));
        })
        .await
        .unwrap();
    let url = format!("https://localhost:{}/api/v1/workflows", gateway.address().port());
    let known = own.client(Some(&clients.issue("crm.internal")));
    assert_eq!(known.get(&url).send().await.unwrap().status(), 200);
    let unnamed = own.client(Some(&clients.issue("other.internal")));
    let refused = unnamed.get(&url).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.json::<Value>().await.unwrap()["code"], "SINEW-9015");
    assert_eq!(unnamed.get(&url).bearer_auth(&key).send().await.unwrap().status(), 200, "a key says more");
    let forged = own.client(Some(&strangers.issue("crm.internal")));
    assert!(forged.get(&url).send().await.is_err(), "of an authority that is not trusted");
    let nobody = own.client(None);
    assert_eq!(nobody.get(&url).send().await.unwrap().status(), 401);
    assert_eq!(nobody.get(&url).bearer_auth(&key).send().await.unwrap().status(), 200);
    let plain = url.replace("https", "http");
    assert!(world.http.get(plain).send().await.is_err(), "nothing is answered without TLS");
    gateway.drain().await;
    world.end().await;
}

#[tokio::test]
async fn a_replaced_certificate_is_used_and_a_broken_one_is_not() {
    let world = GatewayWorld::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new(), Authority::new());
    let missing = world.start_with(|options| options.transport = files(folder.path(), false)).await;
    assert_eq!(missing.unwrap_err().code(), "SINEW-9018");
    write(folder.path(), &first.issue("localhost"));
    let gateway = world.start_with(|options| options.transport = files(folder.path(), false)).await.unwrap();
    assert!(gateway.base_url().starts_with("https://"));
    let url = format!("https://localhost:{}/.well-known/agent-card.json", gateway.address().port());
    let (old, new) = (first.client(None), second.client(None));
    let card: Value = old.get(&url).send().await.unwrap().json().await.unwrap();
    assert!(card["supportedInterfaces"][0]["url"].as_str().unwrap().starts_with("https://localhost"));
    assert!(new.get(&url).send().await.is_err());
    std::fs::write(folder.path().join("tls.crt"), "nothing").unwrap();
    assert_eq!(old.get(&url).send().await.unwrap().status(), 200, "the old one holds");
    write(folder.path(), &second.issue("localhost"));
    let replaced = async { while new.get(&url).send().await.is_err() {} };
    tokio::time::timeout(PATIENCE, replaced).await.unwrap();
    assert!(old.get(&url).send().await.is_err());
    gateway.drain().await;
    world.end().await;
}
