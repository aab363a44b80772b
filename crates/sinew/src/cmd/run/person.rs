//! The person at the terminal of `sinew run`: questions of an execution in this process, and their answers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_engine::{ActivationId, EngineInput, PersonAnswer, PersonRequest};
use sinew_execution::Execution;
use sinew_protocol::ExecutionId;
use sinew_runtime::local::Control;

use super::show::View;
use crate::input;
use crate::output::{self, Output};
use crate::terminal_people::QuestionTerminal;

/// The terminal of a run: the tree pauses while an agent asks a question.
pub(super) struct RunTerminal {
    pub(super) view: Arc<Mutex<View>>,
    /// Set before any agent is called.
    pub(super) control: OnceLock<Control>,
}

/// [`RunTerminal`] for questions of agents.
pub(super) struct SharedTerminal(pub(super) Arc<RunTerminal>);

impl QuestionTerminal for SharedTerminal {
    fn open(&self) -> BoxFuture<'_, ()> {
        async move {
            let Some(control) = self.0.control.get() else { return };
            let view = Arc::clone(&self.0.view);
            control
                .inspect(move |execution| {
                    if let Ok(mut view) = view.lock() {
                        view.pause(execution);
                    }
                })
                .await;
        }
        .boxed()
    }

    fn close(&self) {
        if let Ok(mut view) = self.0.view.lock() {
            view.resume();
        }
    }
}

/// Asks the person at the terminal, one question at a time.
pub(super) struct PersonPrompt {
    control: Control,
    view: Arc<Mutex<View>>,
    asked: BTreeSet<(ExecutionId, ActivationId)>,
    /// No person can answer at the terminal, or the person gave no answer.
    gave_up: Arc<AtomicBool>,
}

impl PersonPrompt {
    /// Asks only where a person sees the question and can answer.
    pub(super) fn new(control: Control, view: Arc<Mutex<View>>, output: &Output) -> Self {
        let is_seen = output.live && !output.is_machine() && std::io::stdin().is_terminal();
        Self { control, view, asked: BTreeSet::new(), gave_up: Arc::new(AtomicBool::new(!is_seen)) }
    }

    /// Asks the question that `asking` waits for: the execution that is shown, or a sub-workflow.
    /// Returns whether to continue waiting.
    pub(super) fn ask(&mut self, shown: &Execution, asking: &Execution) -> bool {
        if self.gave_up.load(Ordering::Acquire) {
            return false;
        }
        let Some(act) = asking.state().waiting().next() else { return false };
        if !self.asked.insert((asking.id().clone(), act)) {
            return true;
        }
        let one = asking.state().act(act);
        let node = asking.program().graph.plan().node(one.node).id.clone();
        let wait = one.wait.as_deref().cloned().unwrap_or_default();
        if let Ok(mut view) = self.view.lock() {
            view.pause(shown);
        }
        let id = asking.id().clone();
        let (control, view, gave_up) =
            (self.control.clone(), Arc::clone(&self.view), Arc::clone(&self.gave_up));
        let runtime = tokio::runtime::Handle::current();
        // Reading a terminal blocks.
        tokio::task::spawn_blocking(move || {
            let is_answered = loop {
                let Some(data) = read_answer(&node, &wait) else { break false };
                let by = std::env::var("USER").ok().filter(|user| !user.is_empty());
                let answer = PersonAnswer { data, by, ..PersonAnswer::default() };
                match runtime.block_on(control.input_to(&id, EngineInput::Answer { act, answer })) {
                    Some(Err(refused)) => write_line(&format!("the answer was not accepted: {refused}")),
                    _ => break true,
                }
            };
            gave_up.fetch_or(!is_answered, Ordering::AcqRel);
            if let Ok(mut view) = view.lock() {
                view.resume();
            }
            // The driver checks again whether to continue waiting.
            let _ = runtime.block_on(control.inspect(|_| ()));
        });
        true
    }
}

/// Asks on the terminal; returns `None` if the person gives no answer.
fn read_answer(node: &str, wait: &PersonRequest) -> Option<Value> {
    write_line(&format!("'{}' asks: {}", words::name(node), sinew_source::indented(&wait.prompt)));
    if !wait.data.is_null() {
        let data = serde_json::to_string_pretty(wait.data.as_ref()).unwrap_or_default();
        write_line(&format!("  {}", sinew_source::indented(&data)));
    }
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "yes, no, or an answer as JSON or text (empty to stop): ");
    let _ = err.flush();
    drop(err);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).ok()?;
    match line.trim() {
        "" => None,
        "y" | "yes" | "approve" => Some(json!("approve")),
        "n" | "no" | "reject" => Some(json!("reject")),
        text => Some(input::json_or_text(text)),
    }
}

fn write_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", output::escaped(text, false));
}
