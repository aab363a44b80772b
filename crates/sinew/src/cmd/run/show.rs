//! Progress of an execution: a live tree on a terminal, one line per change elsewhere.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sinew_engine::{Fact, Time};
use sinew_executor::{Execution, events, local};
use sinew_protocol::message::Vocabulary;
use sinew_source::{escape_line, escape_text};

use super::Events;
use crate::output::{self, Output};
use crate::paint::Painter;
use crate::tree::{self, Columns, Row};

/// How often the tree is painted at the most.
const REPAINT: Duration = Duration::from_millis(100);

/// Shows one execution.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct View {
    live: bool,
    color: bool,
    ascii: bool,
    quiet: bool,
    events: Option<Events>,
    /// Events are data: whole documents when a program reads, lines when people do.
    machine: bool,
    picture: Option<Picture>,
    painter: Painter,
}

/// Painted tree: taken from the execution at most every [`REPAINT`], so that a busy execution is not slowed down.
struct Picture {
    name: String,
    word: &'static str,
    started: Time,
    taken: Time,
    rows: Vec<Row>,
    columns: Columns,
    over: bool,
}

impl Picture {
    fn of(execution: &Execution) -> Self {
        let state = execution.state();
        let taken = if state.ended { state.at } else { local::now() };
        Self {
            name: execution.program().name().to_owned(),
            word: state.outcome.as_ref().map_or("running", |outcome| outcome.status.as_str()),
            started: state.started_at,
            taken,
            rows: tree::rows(execution, taken),
            columns: Columns::of(execution.program().graph.plan()),
            over: state.ended,
        }
    }

    /// The lines as they are at `now`: what is at work goes on counting.
    fn lines(&self, now: Time, color: bool, ascii: bool) -> Vec<String> {
        let mut rows = self.rows.clone();
        let later = if self.over { 0 } else { now.saturating_sub(self.taken) };
        for row in rows.iter_mut().filter(|row| row.status.is_open()) {
            row.duration_ms = row.duration_ms.map(|ms| ms + later);
        }
        let done = rows.iter().filter(|row| row.status.is_over()).count();
        let time = tree::duration(self.taken.saturating_sub(self.started) + later);
        let name = escape_line(&self.name);
        let mut lines = vec![format!("{name}  {} {time}  {done}/{} nodes", self.word, rows.len())];
        lines.extend(tree::render(&rows, self.columns, color, ascii));
        lines
    }
}

impl View {
    pub(crate) fn new(output: &Output, watch: bool, events: Option<Events>) -> Self {
        Self {
            live: output.live && (watch || events.is_none()),
            color: output.color_err,
            ascii: output.ascii,
            quiet: output.quiet,
            events,
            machine: output.is_machine(),
            picture: None,
            painter: Painter::default(),
        }
    }

    /// Facts were appended.
    pub(crate) fn observe(&mut self, run: usize, execution: &Execution, facts: &[Fact]) {
        self.print_events(execution, facts);
        if run != 0 || self.quiet {
            return;
        }
        if self.live {
            let age = |picture: &Picture| local::now().saturating_sub(picture.taken);
            if self.picture.as_ref().is_none_or(|picture| u128::from(age(picture)) >= REPAINT.as_millis()) {
                self.picture = Some(Picture::of(execution));
            }
        } else {
            self.tell(execution, facts);
        }
    }

    fn print_events(&self, execution: &Execution, facts: &[Fact]) {
        let Some(which) = self.events else { return };
        let ctx = execution.ctx();
        let mut out = std::io::stdout().lock();
        for fact in facts {
            match which {
                Events::Mesh | Events::MeshSpec => {
                    let words =
                        if which == Events::MeshSpec { Vocabulary::Spec } else { Vocabulary::Current };
                    for event in events::project(&ctx, execution.id(), fact) {
                        let _ = writeln!(out, "{}", escape_text(&event.to_json(words).to_string()));
                    }
                }
                Events::Native => {
                    for event in execution.program().adapter.project(&ctx, fact) {
                        let _ = if self.machine {
                            writeln!(out, "{}", escape_text(&event.json.to_string()))
                        } else {
                            writeln!(out, "{}", escape_text(&event.line))
                        };
                    }
                }
            }
        }
    }

    /// One line for each node whose state changed.
    fn tell(&self, execution: &Execution, facts: &[Fact]) {
        let ctx = execution.ctx();
        let mut changed = Vec::new();
        for fact in facts {
            let node = match fact {
                Fact::Dispatched { ask, .. } if ask.is_evaluation() => None,
                Fact::Dispatched { act, tries: 1, .. }
                | Fact::Awaited { act, .. }
                | Fact::Fanned { act, .. }
                | Fact::Completed { act, .. }
                | Fact::Skipped { act, .. }
                | Fact::Failed { act, .. }
                | Fact::Cancelled { act, .. } => {
                    let one = ctx.act(*act);
                    (one.owner.is_none()).then_some(one.node)
                }
                Fact::Died { node, .. } => Some(*node),
                _ => None,
            };
            changed.extend(node.filter(|node| changed.last() != Some(node)));
        }
        let now = execution.state().at;
        let rows: Vec<Row> = changed.into_iter().map(|node| tree::row(&ctx, node, now)).collect();
        let mut err = std::io::stderr().lock();
        for line in tree::render(&rows, Columns::of(ctx.plan()), self.color, self.ascii) {
            let _ = writeln!(err, "{}", output::escaped_line(&line, self.color));
        }
    }

    fn paint(&mut self) {
        if let Some(picture) = &self.picture {
            self.painter.paint(picture.lines(local::now(), self.color, self.ascii), self.ascii);
        }
    }

    /// The last picture.
    pub(crate) fn finish(&mut self, execution: &Execution) {
        if self.live && !self.quiet {
            self.picture = Some(Picture::of(execution));
            self.paint();
            self.picture = None;
        }
    }
}

/// Paints while anything moves.
pub(crate) async fn repaint(view: Arc<Mutex<View>>) {
    let mut tick = tokio::time::interval(REPAINT);
    loop {
        tick.tick().await;
        let Ok(mut view) = view.lock() else { return };
        view.paint();
    }
}
