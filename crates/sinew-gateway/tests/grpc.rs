//! gRPC: credentials, versions, limits and the form of refusals. `binding_equivalence` has the operations.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tonic::Code;

use crate::bindings_support::{GrpcClient, grpc_details};
use crate::support::{GatewayWorld, SINGLE, message};

#[tokio::test]
async fn calls_need_the_same_keys() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| options.access.is_required = true).await;
    world.serve_echo_behind_keys().await;
    let (_, reader) = world.key(|new| new.role = sinew_protocol::access::AccessRole::Operator).await;
    let (_, client) = world.key(|new| new.role = sinew_protocol::access::AccessRole::Client).await;
    let (_, other) = world.key(|new| new.patterns = vec!["nothing-*".to_owned()]).await;
    let sent = message("m", json!([{"data": {"value": "v"}}]));
    let call = async |key: Option<(&'static str, String)>| {
        let mut grpc = GrpcClient::connect(&world.base).await;
        if let Some((name, value)) = key {
            grpc.metadata.insert(name, value.parse().unwrap());
        }
        grpc.call("single", "SendMessage", &sent).await
    };
    let refused = async |key, code: Code, own: &str| {
        let status = call(key).await.unwrap_err();
        let details = grpc_details(&status);
        assert_eq!(status.code(), code, "{status}");
        assert!(details.to_string().contains(own), "{details}");
    };
    refused(None, Code::Unauthenticated, "SINEW-9015").await;
    refused(
        Some(("authorization", "Bearer sinew_wrong_key".to_owned())),
        Code::Unauthenticated,
        "SINEW-9015",
    )
    .await;
    refused(Some(("authorization", format!("Bearer {reader}"))), Code::PermissionDenied, "SINEW-9016").await;
    refused(Some(("authorization", format!("Bearer {other}"))), Code::InvalidArgument, "").await;
    for name in ["authorization", "x-api-key"] {
        let key = if name == "authorization" { format!("Bearer {client}") } else { client.clone() };
        let sent = call(Some((name, key))).await.unwrap();
        assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    }
    let mut grpc = GrpcClient::connect(&world.base).await;
    grpc.metadata.insert("authorization", format!("Bearer {client}").parse().unwrap());
    let card = grpc.call("", "GetExtendedAgentCard", &json!({})).await.unwrap();
    assert_eq!(card["skills"][0]["id"], "one", "{card}");
    assert!(card["signatures"][0]["signature"].is_string(), "{card}");
    world.end().await;
}

#[tokio::test]
async fn requests_that_are_wrong_are_refused_in_its_words() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.limits.body_bytes = 4_096;
        options.limits.streams = 0;
    })
    .await;
    world.serve_echo().await;
    let mut grpc = GrpcClient::connect(&world.base).await;
    let check =
        async |grpc: &GrpcClient, agent: &str, method: &str, params: Value, code: Code, reason: &str| {
            let status = grpc.call(agent, method, &params).await.unwrap_err();
            let details = grpc_details(&status);
            assert_eq!(status.code(), code, "{status}");
            assert!(details.to_string().contains(reason), "{method} {details}");
        };
    check(&grpc, "", "GetTask", json!({"id": "unknown"}), Code::NotFound, "TASK_NOT_FOUND").await;
    check(&grpc, "nobody", "GetTask", json!({"id": "unknown"}), Code::InvalidArgument, "").await;
    check(&grpc, "", "ListTasks", json!({"tenant": "other"}), Code::InvalidArgument, "").await;
    let large = message("large", json!([{"text": "x".repeat(5_000)}]));
    check(&grpc, "single", "SendMessage", large, Code::ResourceExhausted, "").await;
    let streamed = message("streamed", json!([{"data": {"value": "v"}}]));
    check(&grpc, "single", "SendStreamingMessage", streamed, Code::Unavailable, "SINEW-9005").await;
    for version in ["0.3", "99.0"] {
        grpc.metadata.insert("a2a-version", version.parse().unwrap());
        let reason = "VERSION_NOT_SUPPORTED";
        check(&grpc, "", "GetTask", json!({"id": "x"}), Code::FailedPrecondition, reason).await;
    }
    grpc.metadata.remove("a2a-version");
    check(&grpc, "", "GetTask", json!({"id": "x"}), Code::FailedPrecondition, "VERSION_NOT_SUPPORTED").await;

    // A client that does not speak gRPC reads problem details.
    let url = format!("{}/lf.a2a.v1.A2AService/GetTask", world.base);
    let answer = world.http.post(url).json(&json!({"id": "x"})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    assert_eq!(world.executions().await, 0);
    world.end().await;
}
