//! `sinew top`: the activity of a mesh, refreshed every second.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use sinew_documents::mesh::MeshStatus;
use sinew_documents::words;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_status;
use sinew_operations::quantity::parse_duration;
use sinew_protocol::usage::ModelTotals;
use tokio::time::Instant;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;
use crate::paint::{Painter, terminal_size};
use crate::terminal_keys::{TerminalKey, TerminalKeys};

/// Arguments of `sinew top`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show the activity of a mesh: executors and their shards, open executions, agents with \
                  their queues, streams. What needs attention comes first: unreachable executors, offline agents, long \
                  queues. On a terminal the view refreshes until `q`, and the arrow keys scroll; elsewhere it is printed \
                  once.",
    after_help = "Examples:\n  sinew top\n  sinew top --interval 5s\n  sinew top --once -o json"
)]
pub(crate) struct TopArgs {
    /// Refresh interval
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: String,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn top(args: &TopArgs, output: &Output) -> Result<Exit, Failure> {
    let interval = Duration::from_millis(parse_duration(&args.interval)?.max(100));
    let once = args.once || output.is_machine() || !output.live || !std::io::stdout().is_terminal();
    block(async {
        let remote = args.mesh.operator().await?;
        let cards = remote.online().await?;
        if once {
            let status = mesh_status::read_status(&remote, &cards).await?;
            output.value(&status, |status| lines(status).join("\n"));
            return Ok(Exit::Ok);
        }
        let mut keys = TerminalKeys::open();
        let paint = async {
            let (mut painter, mut place) = (Painter::default(), 0);
            loop {
                let status = mesh_status::read_status(&remote, &cards).await?;
                let next = Instant::now() + interval;
                loop {
                    let shown = view(lines(&status), &mut place, terminal_size().1);
                    painter.paint(shown.into_iter().map(Into::into).collect(), output.ascii);
                    match tokio::time::timeout_at(next, keys.next()).await {
                        Ok(TerminalKey::Quit) => return Ok(Exit::Ok),
                        Ok(TerminalKey::Lines(lines)) => place = place.saturating_add_signed(lines),
                        Ok(TerminalKey::Pages(pages)) => {
                            let page = isize::try_from(terminal_size().1 / 2).unwrap_or(isize::MAX);
                            place = place.saturating_add_signed(pages.saturating_mul(page));
                        }
                        Err(_) => break,
                    }
                }
            }
        };
        tokio::select! {
            ended = paint => ended,
            // Ctrl-C works during a read too.
            _ = tokio::signal::ctrl_c() => Ok(Exit::Ok),
        }
    })
}

/// Returns the part of the lines that a terminal of this height shows: the first line, the lines from
/// `place` on, and the keys. Moves a place behind the last line.
fn view(lines: Vec<String>, place: &mut usize, height: usize) -> Vec<String> {
    // The painter needs one line, the keys one, and the first line of the picture is fixed.
    let room = height.saturating_sub(3).max(1);
    let below = lines.len().saturating_sub(1);
    *place = (*place).min(below.saturating_sub(room));
    let keys = if below > room {
        format!("q quit  ↑ ↓ scroll  lines {}-{} of {below}", *place + 1, *place + room)
    } else {
        "q quit".to_owned()
    };
    let mut lines = lines.into_iter();
    let first = lines.next();
    first.into_iter().chain(lines.skip(*place).take(room)).chain([keys]).collect()
}

fn lines(status: &MeshStatus) -> Vec<String> {
    let open: usize = status.executions.values().sum();
    let by: Vec<String> = status.executions.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let online = status.agents.iter().filter(|agent| agent.online).count();
    let asked =
        if status.models.is_empty() { String::new() } else { format!("  models {}", models(&status.models)) };
    let silent = status.silence().map_or_else(String::new, |silence| format!(" ({silence})"));
    let mut lines = vec![format!(
        "{}  executors {}{silent}  shards {}/{}  open executions {open}{by}  agents {online}  \
         executions held {}  messages quarantined {}{asked}",
        status.namespace,
        status.living_executors(),
        status.owned,
        status.shards,
        status.set_aside.len(),
        status.quarantined
    )];
    let mut section = |heads: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let mut table = vec![heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>()];
            table.extend(rows);
            lines.push(String::new());
            lines.extend(words::columns(&table).lines().map(str::to_owned));
        }
    };
    let asks_models = status.waiting.iter().any(|one| !one.models.is_empty());
    let waiting = status.waiting.iter().map(|one| {
        let age = words::duration(one.age_ms);
        let (workflow, waiting) = (words::one_line(&one.workflow, 30), words::one_line(&one.waiting, 80));
        let mut row = vec![words::one_line(words::short_id(&one.execution), 40), workflow, age];
        if asks_models {
            row.push(if one.models.is_empty() { "-".to_owned() } else { models(&one.models) });
        }
        row.push(waiting);
        row
    });
    let heads: &[&str] = if asks_models {
        &["EXECUTION", "WORKFLOW", "AGE", "MODELS", "WAITING FOR"]
    } else {
        &["EXECUTION", "WORKFLOW", "AGE", "WAITING FOR"]
    };
    section(heads, waiting.collect());
    let executors = status.executors.iter().map(|one| {
        let mut place = words::one_line(&one.place, 60);
        if let Some(ms) = one.silent_ms {
            place = format!("{place} (no heartbeat for {})", words::duration(ms));
        }
        vec![words::one_line(&one.id, 40), one.shards.to_string(), words::one_line(&one.version, 20), place]
    });
    section(&["EXECUTOR", "SHARDS", "VERSION", "PLACE"], executors.collect());
    let agents = status.agents.iter().map(|one| {
        let heard = match one.heard_ms.map(words::duration) {
            None => "offline".to_owned(),
            Some(age) if one.online => format!("{age} ago"),
            Some(age) => format!("offline, {age} ago"),
        };
        let counts = [one.queued, one.working as u64, one.redelivered as u64].map(|count| count.to_string());
        std::iter::once(words::one_line(&one.name, 40)).chain([heard]).chain(counts).collect()
    });
    section(&["AGENT", "HEARTBEAT", "QUEUED", "WORKING", "REDELIVERED"], agents.collect());
    let streams =
        status.streams.iter().map(|one| vec![one.name.clone(), one.messages.to_string(), bytes(one.bytes)]);
    section(&["STREAM", "MESSAGES", "SIZE"], streams.collect());
    lines
}

/// Formats turns, and the price if it is known.
fn models(totals: &ModelTotals) -> String {
    let turns = words::count(usize::try_from(totals.turns).unwrap_or(usize::MAX), "turn");
    totals.cost_usd.map_or_else(|| turns.clone(), |cost| format!("{turns}, ${cost:.4}"))
}

/// Formats a number of bytes with a unit.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut shown = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if shown < 1024.0 {
            break;
        }
        shown /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{shown:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_scrolls_below_its_first_line() {
        let check = |count: usize, place: usize, height: usize, expected: &[&str], left_at: usize| {
            let mut place = place;
            let shown = view((0..count).map(|n| n.to_string()).collect(), &mut place, height);
            assert_eq!(
                (shown.iter().map(String::as_str).collect::<Vec<_>>(), place),
                (expected.to_vec(), left_at)
            );
        };
        check(3, 0, 40, &["0", "1", "2", "q quit"], 0);
        check(3, 9, 40, &["0", "1", "2", "q quit"], 0);
        check(6, 0, 5, &["0", "1", "2", "q quit  ↑ ↓ scroll  lines 1-2 of 5"], 0);
        check(6, 2, 5, &["0", "3", "4", "q quit  ↑ ↓ scroll  lines 3-4 of 5"], 2);
        check(6, 99, 5, &["0", "4", "5", "q quit  ↑ ↓ scroll  lines 4-5 of 5"], 3);
        check(0, 1, 1, &["q quit"], 0);
    }
}
