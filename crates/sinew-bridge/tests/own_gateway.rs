//! A workflow of one mesh as an agent of another, through the gateway of the first, also by mutual TLS.

use std::net::{Ipv4Addr, SocketAddr};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use sinew_agent::{Agent, CancellationToken};
use sinew_agents::{ReachableAddresses, WebClient, WebMethod, WebRequest};
use sinew_gateway::{Gateway, GatewayOptions, TlsFiles, TransportSecurity};
use sinew_operations::gateway_keys::{NewKey, create_key};
use sinew_operations::mesh_operator;
use sinew_protocol::access::{AccessRole, KeyLimits};

use crate::world::{BridgeWorld, PATIENCE, SINGLE, connect, output};

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_of_one_mesh_is_an_agent_of_another() {
    const GREETING: &str = r#"
workflow:
  description: Greets
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
  output_schema: {type: object, properties: {text: {type: string}, state: {type: string}}, required: [text]}
  nodes:
    - {id: a, type: agent, agent_name: greeter, input: {text: "{{workflow.input.text}}"}}
  output_mapping: {text: "{{a.output.text}}", state: "greeted"}
"#;
    let home = BridgeWorld::with_workflows(&[("greeting", GREETING)]).await;
    let stop = CancellationToken::new();
    let greeter = Agent::dynamic("greeter", None, None, |input, _| async move {
        Ok(json!({"text": format!("hello {}", input["text"].as_str().unwrap_or_default())}))
    });
    tokio::spawn(greeter.serve(connect(&home.url(), "greeter", "test").await, stop.clone()));
    home.is_announced("greeter").await;
    let mut options = GatewayOptions::new(mesh_operator::adapter);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gateway = Gateway::start(connect(&home.url(), "gateway", "test").await, options).await.unwrap();

    let away = BridgeWorld::with_workflows(&[("single", SINGLE)]).await;
    for transport in ["JSONRPC", "HTTP+JSON"] {
        let card = format!("http://{}/agents/greeting", gateway.address());
        let outside = away.killable(&format!("name: outside\ncard: {card}\ntransport: {transport}\n")).await;
        let task = away.ask("single", transport, json!({"data": {"text": "mesh"}})).await;
        assert_eq!(
            output(&task),
            &json!({"text": "hello mesh", "state": "greeted"}),
            "{transport}: {task:#}"
        );
        let wrong = away.ask("outside", &format!("wrong-{transport}"), json!({"data": {"text": 7}})).await;
        assert!(wrong.to_string().contains("schema"), "the schema of the workflow holds here too: {wrong:#}");
        drop(outside);
    }
    stop.cancel();
    gateway.drain().await;
    away.end().await;
    home.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_of_a_gateway_hold_over_fractions() {
    let world = BridgeWorld::bare().await;
    let stop = CancellationToken::new();
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {"n": {"type": "number", "minimum": 0.5, "maximum": 1e300, "multipleOf": 1e-7}},
    });
    let halves = Agent::dynamic("halves", Some(schema), None, |input, _| async move { Ok(input) });
    tokio::spawn(halves.serve(connect(&world.url(), "halves", "test").await, stop.clone()));
    world.is_announced("halves").await;
    let mut options = GatewayOptions::new(mesh_operator::adapter);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gateway = Gateway::start(connect(&world.url(), "gateway", "test").await, options).await.unwrap();
    let base = format!("http://{}", gateway.address());
    let keys = WebRequest {
        method: WebMethod::Get,
        address: &format!("{base}/.well-known/jwks.json"),
        headers: &[],
        body: Vec::new(),
        timeout: PATIENCE,
    };
    let web = WebClient::new(ReachableAddresses::All).unwrap();
    let keys = web.open(keys).await.unwrap().body(10_000).await.unwrap();
    std::fs::write(world.folder().join("keys.json"), keys).unwrap();
    let text = format!("name: outside\ncard: {base}/agents/halves\ncard_keys: keys.json\n");
    world.serve(&text).await;
    let halved = world.ask("outside", "m1", json!({"data": {"n": 0.5}})).await;
    assert!(halved.to_string().contains("\"n\":0.5"), "{halved:#}");
    stop.cancel();
    gateway.drain().await;
    world.end().await;
}

/// An authority of certificates.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_proves_itself_by_a_certificate() {
    let world = BridgeWorld::bare().await;
    let stop = CancellationToken::new();
    let echo = Agent::dynamic("echo", None, None, |input, _| async move { Ok(input) });
    tokio::spawn(echo.serve(connect(&world.url(), "echo", "test").await, stop.clone()));
    world.is_announced("echo").await;
    let (servers, clients, strangers) = (authority(), authority(), authority());
    let write = |file: &str, text: String| std::fs::write(world.folder().join(file), text).unwrap();
    for (file, name, issuer) in [
        ("server", "localhost", &servers),
        ("bridge", "bridge.internal", &clients),
        ("renamed", "another.internal", &clients),
        ("forged", "bridge.internal", &strangers),
    ] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        write(&format!("{file}.crt"), params.signed_by(&key, issuer).unwrap().pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
    write("servers.crt", servers.pem());
    write("clients.crt", clients.pem());
    let key = NewKey {
        groups: Vec::new(),
        name: "bridge".to_owned(),
        role: AccessRole::Client,
        scope: Some(sinew_protocol::access::KeyScope::All),
        patterns: vec!["echo".to_owned()],
        expires_at: None,
        certificate_name: Some("bridge.internal".to_owned()),
        limits: KeyLimits::default(),
    };
    create_key(&world.mesh, key, 0).await.unwrap();
    let mut options = GatewayOptions::new(mesh_operator::adapter);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    options.access.is_required = true;
    options.transport = TransportSecurity::Tls(TlsFiles {
        certificate: world.folder().join("server.crt"),
        key: world.folder().join("server.key"),
        client_authorities: Some(world.folder().join("clients.crt")),
    });
    let gateway = Gateway::start(connect(&world.url(), "gateway", "test").await, options).await.unwrap();
    let card = format!("https://localhost:{}/agents/echo", gateway.address().port());
    let text = |certificate: &str| {
        format!("name: outside\ncard: {card}\nhosts: []\nauthorities: servers.crt\n{certificate}")
    };
    let shows = |name: &str| format!("certificate: {{certificate: {name}.crt, key: {name}.key}}\n");
    let refused = world.open(&text("")).await.unwrap_err();
    assert_eq!(refused.code(), "SINEW-9039", "{refused}");
    let forged = text(&shows("forged"));
    let opening = world.open(&forged);
    let forged = tokio::time::timeout(std::time::Duration::from_secs(2), opening).await;
    assert!(!matches!(forged, Ok(Ok(_))), "an authority that the gateway does not trust");
    world.serve(&text(&shows("bridge"))).await;
    let echoed = world.ask("outside", "m1", json!({"data": {"n": 7}})).await;
    assert_eq!(echoed["status"]["state"], "TASK_STATE_COMPLETED", "{echoed:#}");
    assert!(echoed.to_string().contains("\"n\":7"), "{echoed:#}");
    // Rotated files count without a restart: a certificate that does not fit its key yet does not, and one of a stranger's
    // name is refused.
    let read = |file: &str| std::fs::read_to_string(world.folder().join(file)).unwrap();
    let (certificate, private_key) = (read("bridge.crt"), read("bridge.key"));
    let replace = async |id: &str, file: &str, text: String| {
        write(file, text);
        world.ask("outside", id, json!({"data": {"n": 7}})).await.to_string()
    };
    let torn = replace("m2", "bridge.crt", read("renamed.crt")).await;
    assert!(torn.contains("TASK_STATE_COMPLETED"), "{torn}");
    let renamed = replace("m3", "bridge.key", read("renamed.key")).await;
    assert!(renamed.contains("SINEW-9039"), "{renamed}");
    write("bridge.crt", certificate);
    let restored = replace("m4", "bridge.key", private_key).await;
    assert!(restored.contains("TASK_STATE_COMPLETED"), "{restored}");
    stop.cancel();
    gateway.drain().await;
    world.end().await;
}
