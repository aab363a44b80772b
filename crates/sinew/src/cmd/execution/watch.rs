//! `sinew execution watch`: a tree that is painted anew on a terminal, a line for each change elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use sinew_executor::local;

use super::Which;
use super::changes::Changes;
use super::tree::Folding;
use crate::deadline::Deadline;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::paint::Painter;
use crate::record::Record;
use crate::tree::{self as rows, Columns, NodeStatus};
use crate::views::tree::{self, Options};
use crate::views::{Standing, waiting};

/// How often the picture is painted while nothing happens: times go on.
const REPAINT: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "Examples:
  sinew execution watch @latest
  sinew execution watch x7f3 --no-fold --timeout 5m";

/// Arguments of `sinew execution watch`.
#[derive(Args, Debug)]
#[command(
    long_about = "Follow an execution until it ends: its tree on a terminal, a line for each change elsewhere.\n\nThe \
                  exit code says how it ended: 0, 1 when it failed, 5 when --timeout ran out. Ctrl-C only stops watching, with \
                  130.",
    after_help = EXAMPLES
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    folding: Folding,
    /// Stop watching after this time, counted from the call (`90s`, `5m`); the execution goes on
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
}

/// Follows an execution.
pub(super) async fn watch(args: &WatchArgs, output: &Output) -> Result<Exit, Failure> {
    let deadline = Deadline::from_flag(args.timeout.as_deref())?;
    let found = async { Changes::of(args.which.open().await?).await };
    let changes = deadline.within("connecting and reading the execution", found).await?;
    let how = Follow { options: args.folding.options(), deadline, people: true, show: true };
    let record = follow(changes, &how, output).await?;
    let standing = Standing::of(record.execution.state());
    if !standing.is_over() {
        output.note(&format!("--timeout ran out; it is {}", standing.as_str()));
    }
    output.value(&crate::views::describe::describe(&record, local::now()), |_| standing.as_str().to_owned());
    Ok(if standing.is_over() { standing.exit() } else { Exit::TimedOut })
}

/// How an execution is followed.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    /// What of the tree is shown.
    pub(crate) options: Options,
    /// How long.
    pub(crate) deadline: Deadline,
    /// Whether to go on while only people are waited for.
    pub(crate) people: bool,
    /// Whether anything is shown at all.
    pub(crate) show: bool,
}

/// Follows an execution until it ends, waits for people only, or time is up. Gives it back as it is then.
pub(crate) async fn follow(mut changes: Changes, how: &Follow, output: &Output) -> Result<Record, Failure> {
    let mut view = View { painter: Painter::default(), told: BTreeMap::new(), said: None };
    loop {
        let record = &changes.record;
        if how.show {
            view.show(record, &how.options, output);
        }
        let standing = Standing::of(record.execution.state());
        if standing.is_over() || (standing == Standing::Waiting && !how.people) {
            return Ok(changes.record);
        }
        let repaint = (how.show && output.live).then_some(REPAINT);
        let wake = repaint.into_iter().chain(how.deadline.left()).min();
        let next = changes.next();
        match wake {
            Some(wake) => {
                if let Ok(next) = tokio::time::timeout(wake, next).await {
                    next?;
                }
            }
            None => drop(next.await?),
        }
        if how.deadline.is_over() {
            return Ok(changes.record);
        }
    }
}

struct View {
    painter: Painter,
    /// How each node stood when a line said so.
    told: BTreeMap<String, NodeStatus>,
    said: Option<String>,
}

impl View {
    fn show(&mut self, record: &Record, options: &Options, output: &Output) {
        if output.quiet {
            return;
        }
        let now = local::now();
        if output.live {
            let branches = tree::tree(record, now, options).unwrap_or_default();
            let mut lines = vec![tree::head(record, now)];
            lines.extend(tree::lines(&branches, output.color_err, output.ascii));
            self.painter.paint(lines, output.ascii);
            return;
        }
        let rows = rows::rows(&record.execution, now);
        let changed: Vec<_> = rows
            .into_iter()
            .filter(|row| !matches!(row.status, NodeStatus::Planned | NodeStatus::Queued))
            .filter(|row| self.told.insert(row.node.clone(), row.status) != Some(row.status))
            .collect();
        for line in rows::render(&changed, Columns::of(record.plan()), output.color_err, output.ascii) {
            output.error_line(&line);
        }
        let waits = waiting::waits(record, now);
        let person =
            waits.iter().any(|wait| wait.what == "person").then(|| waiting::summary(&waits)).flatten();
        if person != self.said {
            if let Some(person) = &person {
                output.error_line(&format!("waiting for {}", crate::views::words::one_line(person, 200)));
            }
            self.said = person;
        }
    }
}
