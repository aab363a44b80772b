//! The person at the terminal of `sinew run`: questions of an execution in this process, and their answers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_documents::words;
use sinew_engine::{ActivationId, EngineInput, PersonAnswer, PersonRequest};
use sinew_execution::Execution;
use sinew_protocol::ExecutionId;
use sinew_protocol::decision::WrittenDecision;
use sinew_runtime::local::Control;

use super::show::View;
use crate::input;
use crate::output::{self, Output};
use crate::terminal_people::{QuestionTerminal, UNDECIDED};

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
                let Some(answer) = read_answer(&node, &wait) else { break false };
                let by = std::env::var("USER").ok().filter(|user| !user.is_empty());
                let answer = PersonAnswer { by, ..answer };
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

/// Asks on the terminal until the question is answered; returns `None` if the person gives no answer.
fn read_answer(node: &str, wait: &PersonRequest) -> Option<PersonAnswer> {
    write_line(&format!("'{}' asks: {}", words::name(node), sinew_source::indented(&wait.prompt)));
    if !wait.data.is_null() {
        let data = serde_json::to_string_pretty(wait.data.as_ref()).unwrap_or_default();
        write_line(&format!("  {}", sinew_source::indented(&data)));
    }
    let hint = if wait.decision { UNDECIDED } else { "yes, no, or an answer as JSON or text" };
    loop {
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "{hint} (empty to stop): ");
        let _ = err.flush();
        drop(err);
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).ok()?;
        match line.trim() {
            "" => return None,
            text => {
                if let Some(answer) = written_answer(wait, input::json_or_text(text)) {
                    return Some(answer);
                }
            }
        }
    }
}

/// Converts what a person wrote to an answer; `None` if only yes or no answers the question, and it
/// is neither.
pub(super) fn written_answer(wait: &PersonRequest, written: Value) -> Option<PersonAnswer> {
    match WrittenDecision::of(&written) {
        // For a question without a decision, a text with a comment is the answer itself.
        Some(decision) if wait.decision || written.is_string() && decision.comment.is_none() => {
            Some(decision.into())
        }
        None if wait.decision => None,
        _ => Some(PersonAnswer { data: written, ..PersonAnswer::default() }),
    }
}

fn write_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", output::escaped(text, false));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_yes_and_no_answer_a_decision() {
        let check = |decision: bool, written: Value, expected: Option<(Value, Option<bool>)>| {
            let wait = PersonRequest { decision, ..PersonRequest::default() };
            let answer = written_answer(&wait, written.clone());
            assert_eq!(answer.map(|answer| (answer.data, answer.approved)), expected, "{written}");
        };
        for word in ["maybe", "nope", "not yet", "sure?"] {
            check(true, json!(word), None);
            check(false, json!(word), Some((json!(word), None)));
        }
        check(true, json!({"limit": 5}), None);
        check(true, json!("y"), Some((json!("approve"), Some(true))));
        check(true, json!("no: too dear"), Some((json!("reject"), Some(false))));
        check(true, json!({"approved": true, "data": {"limit": 5}}), Some((json!({"limit": 5}), Some(true))));
        check(false, json!("n"), Some((json!("reject"), Some(false))));
        check(false, json!("no: too dear"), Some((json!("no: too dear"), None)));
        check(false, json!({"limit": 5}), Some((json!({"limit": 5}), None)));
    }
}
