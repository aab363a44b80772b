//! The terminal of a chat: typed lines, and questions to the person who types them.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_agents::{People, PersonPrompt, PersonReply};
use sinew_protocol::Fault;
use tokio::sync::{mpsc, oneshot};

use crate::input;
use crate::output::Output;
use crate::terminal_people::{UNDECIDED, reply_of};

/// Lines of the standard input.
pub(super) struct InputLines {
    lines: mpsc::Receiver<String>,
    shows_prompt: bool,
}

impl InputLines {
    /// Reads lines in a separate thread, which ends with the input.
    pub(super) fn read() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { return };
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        let shows_prompt = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self { lines, shows_prompt }
    }

    /// Returns the next line; `None` at the end of the input, or if the user interrupts.
    pub(super) async fn next(&mut self, prompt: &str) -> Option<String> {
        if self.shows_prompt {
            let mut out = std::io::stderr().lock();
            let _gone = write!(out, "{prompt}").and_then(|()| out.flush());
        }
        tokio::select! {
            line = self.lines.recv() => line,
            _ = tokio::signal::ctrl_c() => None,
        }
    }
}

/// A question of an agent, and where its answer goes.
pub(super) struct PutQuestion {
    prompt: PersonPrompt,
    reply: oneshot::Sender<PersonReply>,
}

pub(super) type Questions = mpsc::UnboundedReceiver<PutQuestion>;

impl PutQuestion {
    /// Asks the person who types the lines.
    pub(super) async fn put(self, lines: &mut InputLines, output: &Output) {
        let is_about_call = !self.prompt.call.is_null();
        if is_about_call {
            // The agent has reported that it waits, and for which call.
            let arguments = self.prompt.call.get("arguments").unwrap_or(&Value::Null);
            output.note(&format!("  {arguments}"));
        } else {
            output.note(&self.prompt.text);
        }
        let by = std::env::var("USER").unwrap_or_else(|_| "terminal".to_owned());
        let reply = loop {
            let line = lines.next(if is_about_call { "allow? [y/N] " } else { "? " }).await;
            let line = line.unwrap_or_default();
            let refused = || PersonReply { by_person: by.clone(), ..PersonReply::default() };
            let reply = match line.trim() {
                "" => Some(refused()),
                line => reply_of(&input::json_or_text(line), is_about_call, &by),
            };
            match reply {
                Some(reply) => break reply,
                None => output.note(UNDECIDED),
            }
        };
        // The agent may no longer wait.
        let _late = self.reply.send(reply);
    }
}

/// The person at the terminal, as an agent asks people.
pub(super) struct AskedPeople(mpsc::UnboundedSender<PutQuestion>);

impl AskedPeople {
    pub(super) fn new() -> (Self, Questions) {
        let (sender, questions) = mpsc::unbounded_channel();
        (Self(sender), questions)
    }
}

impl People for AskedPeople {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        async move {
            let (reply, answer) = oneshot::channel();
            // Without a terminal that receives it, the question stays unanswered.
            let _asked = self.0.send(PutQuestion { prompt, reply });
            Ok(answer.await.unwrap_or_default())
        }
        .boxed()
    }
}
