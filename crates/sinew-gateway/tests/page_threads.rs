//! Threads of pages: work that takes long keeps no call waiting.

use std::sync::mpsc;

use serde_json::json;

use crate::support::{GatewayWorld, PATIENCE};

#[tokio::test]
async fn calls_do_not_wait_for_pages() {
    let pages = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let threads = pages.handle().clone();
    let world = GatewayWorld::with(&[], |options| options.page_threads = Some(threads)).await;
    world.serve_echo().await;

    // The one thread of pages is taken, as by a page that computes.
    let (release, released) = mpsc::channel::<()>();
    let (taken, is_taken) = tokio::sync::oneshot::channel();
    pages.spawn(async move {
        taken.send(()).unwrap();
        released.recv().unwrap();
    });
    is_taken.await.unwrap();
    let page = tokio::spawn(world.http.get(format!("{}/api/v1/agents", world.base)).send());

    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"value": "x"}}]});
    let params = json!({"message": message});
    let call = world.rpc("/agents/one", "SendMessage", &params);
    let answer = tokio::time::timeout(PATIENCE, call).await.unwrap();
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    assert!(!page.is_finished(), "the page is answered by other threads");

    release.send(()).unwrap();
    let page = tokio::time::timeout(PATIENCE, page).await.unwrap().unwrap().unwrap();
    assert_eq!(page.status(), 200);
    world.end().await;
    pages.shutdown_background();
}
