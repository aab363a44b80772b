//! The timeline of an execution: for each activation its waits and work by attempt, and the
//! critical path.

use std::collections::{BTreeMap, BTreeSet};

use sinew_documents::timeline::{SpanKind, Timeline, TimelineRow, TimelineSpan};
use sinew_engine::{Activation, ActivationId, ActivationPhase, AdapterContext, Fact, Time};
use sinew_execution::events;

use crate::node_rows;
use crate::record::Record;

/// Part of a timeline: a range in milliseconds since the start of the execution, and a row limit.
#[derive(Clone, Copy, Debug)]
pub struct TimelineWindow {
    /// Start of the range.
    pub from: Time,
    /// End of the range.
    pub to: Time,
    /// Maximum activations.
    pub max_rows: usize,
}

impl TimelineWindow {
    /// The full range, with at most this many rows.
    pub const fn first(max_rows: usize) -> Self {
        Self { from: 0, to: Time::MAX, max_rows }
    }
}

/// Returns the times of the first activations in a window, seen at `now`.
pub fn timeline(record: &Record, now: Time, window: TimelineWindow) -> Timeline {
    let state = record.execution.state();
    let started = state.started_at;
    let until = record.seen_until(now);
    let mut recorder = SpanRecorder::default();
    record.execution.replay(|ctx, fact| recorder.note(ctx, fact));
    let critical = critical_path(&state.acts);
    let ctx = record.execution.ctx();
    let mut spans = recorder.finished(until);
    let is_seen = |act: &ActivationId| {
        let one = state.act(*act);
        let (begin, end) =
            (one.made_at.saturating_sub(started), one.ended_at.unwrap_or(until).saturating_sub(started));
        !one.reused && begin <= window.to && end >= window.from
    };
    let seen: Vec<ActivationId> = (0..state.acts.len() as ActivationId).filter(is_seen).collect();
    let rows: Vec<TimelineRow> = seen
        .iter()
        .take(window.max_rows)
        .copied()
        .map(|act| TimelineRow {
            node: events::label(&ctx, act),
            status: node_rows::word(state.act(act)),
            critical: critical.contains(&act),
            at: state.act(act).made_at.saturating_sub(started),
            spans: relative(spans.remove(&act).unwrap_or_default(), started),
            quiet: ctx.node_of(act).quiet,
        })
        .collect();
    Timeline {
        started: started.into(),
        duration_ms: until.saturating_sub(started),
        more: seen.len() - rows.len(),
        rows,
    }
}

fn relative(spans: Vec<TimelineSpan>, started: Time) -> Vec<TimelineSpan> {
    let since_start = |at: Time| at.saturating_sub(started);
    let moved = spans.into_iter().map(|span| TimelineSpan {
        from: since_start(span.from),
        to: since_start(span.to),
        ..span
    });
    moved.collect()
}

/// Collects spans from facts: the open span of each activation, and ended spans.
#[derive(Default)]
struct SpanRecorder {
    open: BTreeMap<ActivationId, TimelineSpan>,
    ended: BTreeMap<ActivationId, Vec<TimelineSpan>>,
}

impl SpanRecorder {
    /// Updates the span of the activation of a fact, after the fact was applied.
    fn note(&mut self, ctx: &AdapterContext<'_>, fact: &Fact) {
        let act = match fact {
            Fact::Activated(new) => Some(new.act),
            other => other.activation(),
        };
        let Some(act) = act else { return };
        let one = ctx.act(act);
        let kind = kind_of(one);
        let is_same = |span: &TimelineSpan| Some(span.kind) == kind && span.attempt == one.attempt;
        if self.open.get(&act).is_some_and(is_same) {
            return;
        }
        if let Fact::Replied { worked_ms: Some(worked), .. } = fact {
            self.split_queue(act, ctx.now, *worked);
        }
        self.close(act, ctx.now);
        if let Some(kind) = kind {
            let span = TimelineSpan { kind, attempt: one.attempt, from: ctx.now, to: ctx.now };
            self.open.insert(act, span);
        }
    }

    /// Splits the open span of an agent's task into the time in the agent's queue and the time of work.
    fn split_queue(&mut self, act: ActivationId, now: Time, worked_ms: u64) {
        let Some(span) = self.open.get_mut(&act).filter(|span| span.kind == SpanKind::Agent) else { return };
        let began = now.saturating_sub(worked_ms).max(span.from);
        if began > span.from {
            let queue = TimelineSpan { kind: SpanKind::AgentQueue, to: began, ..*span };
            span.from = began;
            self.ended.entry(act).or_default().push(queue);
        }
    }

    /// Ends the open span. Spans without duration are omitted.
    fn close(&mut self, act: ActivationId, at: Time) {
        if let Some(mut span) = self.open.remove(&act) {
            span.to = at;
            if span.to > span.from {
                self.ended.entry(act).or_default().push(span);
            }
        }
    }

    fn finished(mut self, until: Time) -> BTreeMap<ActivationId, Vec<TimelineSpan>> {
        for act in self.open.keys().copied().collect::<Vec<_>>() {
            self.close(act, until);
        }
        self.ended
    }
}

fn kind_of(one: &Activation) -> Option<SpanKind> {
    match one.phase {
        ActivationPhase::Ready | ActivationPhase::Deferred => Some(SpanKind::Queued),
        ActivationPhase::Running => Some(SpanKind::Agent),
        ActivationPhase::BackedOff => Some(SpanKind::BackOff),
        ActivationPhase::Sleeping => Some(SpanKind::Timer),
        ActivationPhase::Waiting => Some(SpanKind::Person),
        ActivationPhase::Owning => Some(SpanKind::Children),
        ActivationPhase::Begun | ActivationPhase::Settled | ActivationPhase::Closed => None,
    }
}

/// Returns the critical path: the activation that ended last, the sender of its last token, and so on
/// to the start. The predecessor of an activation without token, such as an exit handler, is the last
/// one that had ended by then. Children are included if one had to wait for another: all iterations of
/// a loop, and of a map those that released the slot for the last one.
fn critical_path(acts: &[Activation]) -> BTreeSet<ActivationId> {
    let ended_at = |act: ActivationId| acts.get(act as usize).and_then(|one| one.ended_at);
    let last_of = |among: &mut dyn Iterator<Item = ActivationId>| {
        among.filter_map(|act| Some((ended_at(act)?, act))).max().map(|(_, act)| act)
    };
    let tops = || {
        let tops = acts.iter().enumerate().filter(|(_, one)| one.owner.is_none());
        tops.map(|(act, _)| act as ActivationId)
    };
    let mut path = BTreeSet::new();
    let mut open: Vec<ActivationId> = last_of(&mut tops()).into_iter().collect();
    while let Some(act) = open.pop() {
        if !path.insert(act) {
            continue;
        }
        let one = &acts[act as usize];
        let sender = last_of(&mut one.inputs.iter().filter_map(|token| token.source));
        let is_before = |other: &ActivationId| ended_at(*other).is_some_and(|end| end <= one.made_at);
        open.extend(match sender {
            None if one.owner.is_none() => last_of(&mut tops().filter(is_before)),
            sender => sender,
        });
        if let Some(children) = &one.children {
            open.extend(waiting_chain(acts, &children.acts));
        }
    }
    path
}

/// The activation that ended last, the latest that had ended when it was created, and so on.
fn waiting_chain(acts: &[Activation], among: &[ActivationId]) -> Vec<ActivationId> {
    let of = |act: ActivationId| acts.get(act as usize);
    let mut ended: Vec<(Time, ActivationId)> =
        among.iter().filter_map(|act| Some((of(*act)?.ended_at?, *act))).collect();
    ended.sort_unstable();
    let mut until = Time::MAX;
    let mut chain = Vec::new();
    for (end, act) in ended.into_iter().rev() {
        if end <= until {
            until = of(act).map_or(until, |one| one.made_at);
            chain.push(act);
        }
    }
    chain
}
