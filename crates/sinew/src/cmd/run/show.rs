//! Progress of an execution: a live tree on a terminal, one line per change elsewhere.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sinew_documents::node::NodeRow;
use sinew_documents::words;
use sinew_engine::{Fact, Time};
use sinew_execution::{Execution, NativeEvents, events};
use sinew_inspection::execution_status::end_word;
use sinew_inspection::node_rows;
use sinew_inspection::node_table::{NodeColumns, NodeLine, PictureLine};
use sinew_inspection::view_context::ViewContext;
use sinew_protocol::message::Vocabulary;
use sinew_runtime::local::{self, Control};
use sinew_source::{escape_line, escape_text};

use super::Events;
use crate::cmd::execution::watch::retried_lines;
use crate::output::{self, Output};
use crate::paint::{Painter, terminal_width};

/// Time between two pictures of a live tree.
const REPAINT_INTERVAL: Duration = Duration::from_millis(100);

/// Shows one execution.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct View {
    live: bool,
    color: bool,
    ascii: bool,
    quiet: bool,
    events: Option<Events>,
    /// Projections to events of the dialect, by index of the execution.
    native: BTreeMap<usize, NativeEvents>,
    /// Whether a program reads the events: JSON documents instead of lines for people.
    machine: bool,
    /// Facts were appended since the picture was taken.
    is_stale: bool,
    /// A person is asked on the terminal.
    is_paused: bool,
    picture: Option<TreePicture>,
    painter: Painter,
}

/// Content of the terminal. It is read from the execution only when facts are new and a repaint is due,
/// so that painting does not slow down a busy execution.
struct TreePicture {
    name: String,
    word: &'static str,
    started: Time,
    taken: Time,
    rows: Vec<NodeRow>,
    columns: NodeColumns,
    over: bool,
    /// A row shows a countdown, so every repaint needs a new picture.
    counts_down: bool,
}

impl TreePicture {
    fn of(execution: &Execution) -> Self {
        let state = execution.state();
        let taken = if state.ended { state.at } else { local::now() };
        Self {
            name: execution.program().name().to_owned(),
            word: state.outcome.as_ref().map_or("running", |outcome| end_word(outcome.status)),
            started: state.started_at,
            taken,
            rows: node_rows::rows(execution, taken),
            columns: node_rows::columns_of(execution.program().graph.plan()),
            over: state.ended,
            counts_down: node_rows::counts_down(execution),
        }
    }

    /// Returns the lines at `now`; the times of open nodes keep counting.
    fn lines(&self, now: Time, color: bool, ascii: bool, width: Option<usize>) -> Vec<PictureLine> {
        let mut rows = self.rows.clone();
        let later = if self.over { 0 } else { now.saturating_sub(self.taken) };
        for row in rows.iter_mut().filter(|row| row.status.is_open()) {
            row.duration_ms = row.duration_ms.map(|ms| ms + later);
        }
        let done = rows.iter().filter(|row| row.status.is_over()).count();
        let time = words::duration(self.taken.saturating_sub(self.started) + later);
        let name = escape_line(&self.name);
        let nodes = words::count(rows.len(), "node");
        let mut lines = vec![PictureLine::from(format!("{name}  {} {time}  {done}/{nodes}", self.word))];
        let folded = node_rows::folded_line(rows.iter().filter(|row| row.may_fold()));
        rows.retain(|row| !row.may_fold());
        let cells: Vec<(u8, NodeLine)> =
            rows.iter().map(|row| (row.status.rank(), node_rows::cells(row))).collect();
        let message = cells.iter().map(|(_, cells)| cells.message.chars().count()).max().unwrap_or(0);
        let columns = self.columns.fitted(width, message);
        lines.extend(
            cells
                .iter()
                .map(|(rank, cells)| PictureLine { text: columns.line(cells, color, ascii), rank: *rank }),
        );
        let dots = if ascii { "..." } else { "…" };
        lines.extend(folded.map(|folded| PictureLine { text: format!("  {dots} {folded}"), rank: 4 }));
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
            native: BTreeMap::new(),
            machine: output.is_machine(),
            is_stale: false,
            is_paused: false,
            picture: None,
            painter: Painter::default(),
        }
    }

    /// Shows facts that were appended.
    pub(crate) fn observe(&mut self, run: usize, execution: &Execution, facts: &[Fact]) {
        self.print_events(run, execution, facts);
        if run != 0 || self.quiet {
            return;
        }
        if self.live {
            self.is_stale = true;
        } else {
            self.tell(execution, facts);
        }
    }

    fn print_events(&mut self, run: usize, execution: &Execution, facts: &[Fact]) {
        let Some(which) = self.events else { return };
        let (ctx, adapter) = (execution.ctx(), execution.program().adapter);
        let native = self.native.entry(run).or_default();
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
                    for event in native.of_fact(adapter, &ctx, fact) {
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

    /// Prints one line for each node whose state changed.
    fn tell(&self, execution: &Execution, facts: &[Fact]) {
        let ctx = execution.ctx();
        let mut changed = Vec::new();
        for fact in facts {
            let node = match fact {
                Fact::Dispatched { ask, .. } if ask.is_helper() => None,
                Fact::Dispatched { act, tries: 1, .. }
                | Fact::Awaited { act, .. }
                | Fact::Reminded { act }
                | Fact::CalleeWaits { act, wait: Some(_), .. }
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
        let context = ViewContext { now: execution.state().at, ..ViewContext::default() };
        let rows = changed.into_iter().map(|node| node_rows::row(&ctx, node, &context));
        let rows: Vec<NodeRow> = rows.filter(|row| !row.may_fold()).collect();
        let mut err = std::io::stderr().lock();
        let retried = retried_lines(execution, facts);
        for line in node_rows::render(&rows, node_rows::columns_of(ctx.plan()), self.color, self.ascii)
            .into_iter()
            .chain(retried)
        {
            let _ = writeln!(err, "{}", output::escaped_line(&line, self.color));
        }
    }

    fn paint(&mut self) {
        if let Some(picture) = self.picture.as_ref().filter(|_| !self.is_paused) {
            let lines = picture.lines(local::now(), self.color, self.ascii, Some(terminal_width()));
            self.painter.paint(lines, self.ascii);
        }
    }

    /// Paints a whole picture and then nothing until [`View::resume`]: a question uses the terminal.
    pub(crate) fn pause(&mut self, execution: &Execution) {
        self.finish(execution);
        self.is_paused = true;
    }

    /// Resumes painting.
    pub(crate) fn resume(&mut self) {
        (self.is_paused, self.is_stale) = (false, true);
    }

    /// Paints the last picture in full.
    pub(crate) fn finish(&mut self, execution: &Execution) {
        if self.live && !self.quiet {
            let picture = TreePicture::of(execution);
            self.painter.finish(&picture.lines(local::now(), self.color, self.ascii, None));
            (self.picture, self.is_stale) = (None, false);
        }
    }
}

/// Repaints periodically. Each picture shows every fact appended before it.
pub(crate) async fn repaint(view: Arc<Mutex<View>>, control: Control) {
    let mut tick = tokio::time::interval(REPAINT_INTERVAL);
    loop {
        tick.tick().await;
        let is_stale = match view.lock() {
            Ok(mut view) => {
                let counts_down = view.picture.as_ref().is_some_and(|picture| picture.counts_down);
                std::mem::take(&mut view.is_stale) || counts_down
            }
            Err(_) => return,
        };
        let picture = if is_stale { control.inspect(TreePicture::of).await } else { None };
        let Ok(mut view) = view.lock() else { return };
        view.picture = picture.or(view.picture.take());
        view.paint();
    }
}
