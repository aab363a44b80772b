//! An external A2A agent that records each message before it answers, and keeps its tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::http_server::{PlainRequest, ServerGuard, begin_events, respond, send_event, serve};
use crate::Fallible;

/// Name of the agent, on its card and on the mesh.
pub(super) const OUTSIDE: &str = "outside";
/// Maximum delay of the answer to a message.
const MAX_ANSWER_DELAY: Duration = Duration::from_millis(300);

/// State of the agent.
pub(super) struct OutsideWork {
    max_work: Duration,
    known: Mutex<KnownWork>,
}

struct KnownWork {
    random: StdRng,
    messages: BTreeMap<String, u32>,
    tasks: BTreeMap<String, OutsideTask>,
}

#[derive(Clone)]
struct OutsideTask {
    context: String,
    message: Value,
    text: String,
    ends_at: Instant,
}

impl OutsideWork {
    pub(super) fn new(max_work: Duration, seed: u64) -> Self {
        let known = KnownWork {
            random: StdRng::seed_from_u64(seed),
            messages: BTreeMap::new(),
            tasks: BTreeMap::new(),
        };
        Self { max_work, known: Mutex::new(known) }
    }

    /// Returns how often the agent received each message.
    pub(super) fn messages(&self) -> BTreeMap<String, u32> {
        self.known().messages.clone()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, KnownWork> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a message. Returns its task, and the delay of the answer.
    fn take(&self, message: &Value) -> Option<(String, Duration)> {
        let id = message["messageId"].as_str()?.to_owned();
        let text = message["parts"].as_array()?.iter().find_map(|part| part["text"].as_str())?.to_owned();
        let mut known = self.known();
        *known.messages.entry(id.clone()).or_default() += 1;
        let most = self.max_work.max(Duration::from_millis(1));
        let ends_at = Instant::now() + known.random.random_range(Duration::ZERO..most);
        let delay = known.random.random_range(Duration::ZERO..MAX_ANSWER_DELAY);
        let context = message["contextId"].as_str().unwrap_or_default().to_owned();
        let task = format!("task-{id}");
        known.tasks.insert(task.clone(), OutsideTask { context, message: message.clone(), text, ends_at });
        Some((task, delay))
    }

    /// Returns the current task, and its end time if it is open.
    fn task(&self, id: &str) -> Option<(Value, Option<Instant>)> {
        let task = self.known().tasks.get(id).cloned()?;
        let mut shown = json!({
            "id": id, "contextId": task.context, "history": [task.message],
            "status": {"state": "TASK_STATE_WORKING"},
        });
        if task.ends_at > Instant::now() {
            return Some((shown, Some(task.ends_at)));
        }
        shown["status"]["state"] = json!("TASK_STATE_COMPLETED");
        shown["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": format!("{}!", task.text)}]}]);
        Some((shown, None))
    }
}

/// Serves the agent. Returns the address of its card.
pub(super) async fn serve_outside(work: Arc<OutsideWork>) -> Fallible<(String, ServerGuard)> {
    serve(move |request, stream| {
        let work = Arc::clone(&work);
        async move { answer(&work, request, stream).await }
    })
    .await
}

async fn answer(work: &OutsideWork, request: PlainRequest, mut stream: TcpStream) -> Option<()> {
    if request.path.contains("/.well-known/") {
        let base = format!("http://{}", request.headers.get("host")?);
        let card = json!({
            "name": OUTSIDE, "description": "adds a mark", "version": "1",
            "supportedInterfaces": [{"url": format!("{base}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": true},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "mark", "name": "mark", "description": "adds a mark", "tags": ["test"]}],
        });
        return respond(&mut stream, "200 OK", "application/json", &card.to_string()).await;
    }
    let call: Value = serde_json::from_slice(&request.body).ok()?;
    let (id, params) = (&call["id"], &call["params"]);
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let reply = match call["method"].as_str()? {
        "SendStreamingMessage" => {
            let (task, delay) = work.take(&params["message"])?;
            sleep(delay).await;
            return tell(work, &task, id, stream).await;
        }
        "SubscribeToTask" => return tell(work, params["id"].as_str()?, id, stream).await,
        "GetTask" => match work.task(params["id"].as_str()?) {
            Some((task, _)) => result(task),
            None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32001, "message": "no such task"}})
                .to_string(),
        },
        "ListTasks" => {
            let context = params["contextId"].as_str()?;
            let ids: Vec<String> = {
                let known = work.known();
                let fits = known.tasks.iter().filter(|(_, task)| task.context == context);
                fits.map(|(id, _)| id.clone()).collect()
            };
            let tasks: Vec<Value> = ids.iter().filter_map(|id| work.task(id)).map(|(task, _)| task).collect();
            let count = tasks.len();
            result(json!({"tasks": tasks, "nextPageToken": "", "pageSize": 100, "totalSize": count}))
        }
        other => {
            let error = json!({"code": -32004, "message": other});
            json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
        }
    };
    respond(&mut stream, "200 OK", "application/json", &reply).await
}

/// Streams a task from now to its end.
async fn tell(work: &OutsideWork, task: &str, id: &Value, mut stream: TcpStream) -> Option<()> {
    begin_events(&mut stream).await?;
    loop {
        let (shown, ends_at) = work.task(task)?;
        let event = json!({"jsonrpc": "2.0", "id": id, "result": {"task": shown}});
        send_event(&mut stream, &event.to_string()).await?;
        sleep_until(ends_at?).await;
    }
}
