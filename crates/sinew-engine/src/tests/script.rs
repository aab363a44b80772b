//! Cases in short notation: each line contains an input and the resulting facts.

use std::fmt::Write as _;
use std::panic::Location;
use std::sync::Arc;

use serde_json::Value;
use sinew_protocol::person_wait::PersonWait;

use crate::fact::{ExecutionMode, ExecutionOutcome, PersonAnswer, TerminalStatus};
use crate::tests::adapter::fault;
use crate::tests::plan::graph;
use crate::tests::world::World;
use crate::{
    ActivationId, ActivationPhase, EngineInput, ExecutionState, Fact, ROOT, RetryRequest, ScopeId, TaskReply,
    Time,
};

/// Runs `script`, lines of `input | facts`, and compares the facts.
///
/// Inputs: `start`, `keep` (its workflow is paused), `start <input>`, `start <input> <mode>`, `start@ 2` (as a sub-workflow two levels down), `a=1` (its
/// agent answers), `a!error` (it fails, see [`fault`]), `a#1=1` (attempt 1 answers), `a:yes` (a person answers),
/// `a.port~1` (it yields a value), `a%words` (progress), `a&x1` (report 1 of its callee x: a person is waited for, since
/// 60 ms with `a&x1<60`), `a&x2-` (report 2: the wait is over), `@500` (it is 500 ms after the start), `a=1 @500` (the answer is
/// read 500 ms after the start, before any timer fires), `pause`, `resume`, `cancel`,
/// `retry`, `retry a b`, `retry only a`, `retry a < 5` (with this input). A child is `body[index]`, a second activation of a node `a_1`.
///
/// Facts: `+a` started, `a?1` dispatched (attempt; `/tries` if different), `a?!` to be retried, `a=v` completed, `a==v`
/// completed without running, `a-` skipped, `a!code` failed, `ax` cancelled, `a*3` waits for three children, `a/` dead,
/// `>a/` token dropped, and names for the others. Routes and new activations are omitted.
#[track_caller]
pub(crate) fn check(edges: &str, settings: Value, script: &str) {
    let mut world = World::new(graph(edges, settings));
    let (mut expected, mut actual) = (String::new(), String::new());
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, facts) = line.split_once('|').unwrap_or((line, ""));
        let (input, facts) = (input.trim(), facts.trim());
        if let Some(ms) = input.strip_prefix('@') {
            world.now = ms.parse().unwrap();
        }
        let (read, late) = input.split_once(" @").unwrap_or((input, ""));
        if let Ok(ms) = late.parse() {
            world.now = ms;
        }
        let parsed = parse(&world, read);
        let told = match world.input(parsed) {
            Ok(facts) => facts.iter().filter_map(|fact| tell(&world, fact)).collect::<Vec<_>>().join(" "),
            Err(refused) => format!("refused: {refused}"),
        };
        world.check_stored();
        writeln!(expected, "{}", format!("        {input:<10} | {facts}").trim_end()).unwrap();
        writeln!(actual, "{}", format!("        {input:<10} | {told}").trim_end()).unwrap();
    }
    let at = Location::caller();
    assert!(expected == actual, "{}:{}\nexpected:\n{expected}\nactual:\n{actual}<<<", at.file(), at.line());
}

pub(crate) fn parse(world: &World, input: &str) -> EngineInput {
    let (command, rest) = input.split_once(' ').unwrap_or((input, ""));
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|why| panic!("{text}: {why}"));
    match command {
        "start" => {
            let (value, mode) = rest.split_once(' ').unwrap_or((rest, ""));
            let input = if value.is_empty() { Value::Null } else { json(value) };
            let mode =
                if mode.is_empty() { ExecutionMode::default() } else { serde_json::from_str(mode).unwrap() };
            return EngineInput::Start { input, mode, depth: 0, chain: Vec::new(), paused: None };
        }
        "start@" => {
            return EngineInput::Start {
                input: Value::Null,
                mode: ExecutionMode::default(),
                depth: rest.parse().unwrap(),
                chain: Vec::new(),
                paused: None,
            };
        }
        "keep" => {
            return EngineInput::Start {
                input: Value::Null,
                mode: ExecutionMode::default(),
                depth: 0,
                chain: Vec::new(),
                paused: Some("me".to_owned()),
            };
        }
        "pause" => return EngineInput::Pause { reason: "me".into() },
        "resume" => return EngineInput::Resume,
        "cancel" => return EngineInput::Cancel { reason: "me".into() },
        "retry" => {
            let (names, input) =
                rest.split_once('<').map_or((rest, None), |(names, input)| (names, Some(input)));
            let (only, names) = names.strip_prefix("only ").map_or((false, names), |names| (true, names));
            let nodes = names.split_whitespace().map(str::to_owned).collect();
            let retry = RetryRequest { nodes, only, input: input.map(json) };
            return EngineInput::Retry { retry, reason: "me".into() };
        }
        _ if command.starts_with('@') => return EngineInput::Tick,
        _ => {}
    }
    let at = input.find(['=', '!', ':', '%', '~', '&']).unwrap_or_else(|| panic!("what is '{input}'?"));
    let (name, sign, rest) = (&input[..at], &input[at..=at], &input[at + 1..]);
    let (name, attempt) =
        name.split_once('#').map_or((name, None), |(name, n)| (name, Some(n.parse().unwrap())));
    let (name, port) = if sign == "~" { name.split_once('.').unwrap() } else { (name, "") };
    let act = find(world, name);
    let running = world.state().acts.get(act as usize).and_then(|one| one.running.or(Some(one.attempt)));
    let attempt = attempt.or(running).unwrap_or(1);
    let (rest, cost) = rest.split_once(" $").map_or((rest, None), |(rest, cost)| (rest, Some(cost)));
    // Tokens and cost: of each attempt, or of all attempts so far if the price has a `+`.
    let usage = cost.map_or(Value::Null, |cost| {
        let price: f64 = cost.trim_start_matches('+').parse().unwrap();
        serde_json::json!({"turns": 1, "cost_usd": price, "cumulative": cost.starts_with('+')})
    });
    match sign {
        "=" => {
            EngineInput::Done { act, attempt, result: Ok(TaskReply { usage, ..TaskReply::new(json(rest)) }) }
        }
        "!" if cost.is_some() => {
            EngineInput::Failed { act, attempt, fault: fault(rest), usage, worked_ms: None }
        }
        "!" => EngineInput::Done { act, attempt, result: Err(fault(rest)) },
        ":" => {
            EngineInput::Answer { act, answer: PersonAnswer { data: rest.into(), ..PersonAnswer::default() } }
        }
        "%" => EngineInput::Progress { act, attempt, value: rest.into() },
        "&" => callee_wait(act, attempt, rest, world.now),
        _ => EngineInput::Yield { act, attempt, port: port.to_owned(), value: json(rest).into() },
    }
}

/// Builds a callee's report: its name, the number of the report, and a `-` if the wait is over.
/// `<60`: start of the wait.
pub(crate) fn callee_wait(act: ActivationId, attempt: u32, report: &str, now: Time) -> EngineInput {
    let (report, since) = report.split_once('<').unwrap_or((report, ""));
    let since = since.parse().unwrap_or(now);
    let number = report[1..].trim_end_matches('-').parse().unwrap();
    let wait = (!report.ends_with('-')).then(|| {
        Arc::new(PersonWait {
            execution: None,
            workflow: report[..1].to_owned(),
            node: "person".to_owned(),
            activation: 0,
            prompt: "May we?".to_owned(),
            allowed: Vec::new(),
            since,
            due: Some(now + 10_000),
            more: 0,
            is_busy: false,
        })
    });
    EngineInput::CalleeWait { act, attempt, callee: report[..1].to_owned(), number, wait }
}

/// Returns the activation with this name, preferably a waiting one; an unknown name finds none.
fn find(world: &World, name: &str) -> ActivationId {
    let acts = || (0..world.state().acts.len() as ActivationId).rev().filter(|act| path(world, *act) == name);
    let open = acts().find(|act| {
        matches!(world.state().act(*act).phase, ActivationPhase::Running | ActivationPhase::Waiting)
    });
    open.or_else(|| acts().next()).unwrap_or(ActivationId::MAX)
}

/// `body[1][0]_2`: id, positions outermost first, ordinal.
pub(crate) fn path(world: &World, act: ActivationId) -> String {
    let one = world.state().act(act);
    let mut text = world.graph().plan().node(one.node).id.clone() + &place(world.state(), one.scope);
    // The ordinal is shown only if the node has several activations in one scope.
    if one.ordinal > 0 {
        write!(text, "_{}", one.ordinal).unwrap();
    }
    text
}

fn place(state: &ExecutionState, mut scope: ScopeId) -> String {
    let mut text = String::new();
    while scope != ROOT {
        let inner = state.scope(scope).unwrap();
        text.insert_str(0, &format!("[{}]", inner.index));
        scope = inner.parent;
    }
    text
}

pub(crate) fn tell(world: &World, fact: &Fact) -> Option<String> {
    let name = |act: &ActivationId| path(world, *act);
    let node =
        |ix: u32, scope: ScopeId| world.graph().plan().node(ix).id.clone() + &place(world.state(), scope);
    Some(match fact {
        Fact::Started(_)
        | Fact::Opened { .. }
        | Fact::Routed { .. }
        | Fact::Activated(_)
        | Fact::Yielded { .. }
        | Fact::CancelRequested { .. }
        | Fact::Replied { retried: false, .. } => return None,
        Fact::Replied { act, .. } => format!("{}?!", name(act)),
        Fact::Died { node: ix, scope, .. } => format!("{}/", node(*ix, *scope)),
        Fact::Dropped { edge, scope } => format!(">{}/", node(world.graph().plan().edge(*edge).to, *scope)),
        Fact::Deferred { act, human } => {
            format!("{} {}", name(act), if *human { "queues" } else { "deferred" })
        }
        Fact::Undeferred { act } => format!("{} back", name(act)),
        Fact::Began { act } => format!("+{}", name(act)),
        Fact::Noted { note, .. } => format!("note:{note}"),
        Fact::Dispatched { act, attempt, tries, ask, .. } => {
            let who = if ask.tag == "work" { String::new() } else { format!("{}:", ask.tag) };
            let tries = if tries == attempt { String::new() } else { format!("/{tries}") };
            // An input given by an operator is shown.
            let given = world
                .state()
                .act(*act)
                .input
                .as_ref()
                .filter(|_| *attempt == 1)
                .map(|_| format!("<{}", ask.input));
            format!("{}?{who}{attempt}{tries}{}", name(act), given.unwrap_or_default())
        }
        Fact::Progressed { act, .. } => format!("{} says", name(act)),
        Fact::Late { act, attempt, .. } => format!("{}#{attempt} late", name(act)),
        Fact::BackedOff { act, ask: Some(_), .. } => format!("{} holds", name(act)),
        Fact::BackedOff { act, until, ask: None } => format!("{} backs off @{until}", name(act)),
        Fact::Slept { act, until } => format!("{} sleeps @{until}", name(act)),
        Fact::Awaited { act, deadline, .. } => {
            format!("{} waits{}", name(act), deadline.map(|at| format!(" @{at}")).unwrap_or_default())
        }
        Fact::Reminded { act } => format!("{} reminds", name(act)),
        Fact::CalleeWaits { act, callee, wait, .. } => {
            format!("{}&{callee}{}", name(act), if wait.is_some() { "" } else { "-" })
        }
        Fact::Answered { act, answer } => {
            format!("{} {}", name(act), if answer.timed_out { "expired" } else { "answered" })
        }
        Fact::Fanned { act, children, .. } => format!("{}*{}", name(act), children.len()),
        Fact::Completed { act, output, reused } => {
            format!("{}{}{}", name(act), if *reused { "==" } else { "=" }, output.value)
        }
        Fact::Skipped { act, .. } => format!("{}-", name(act)),
        Fact::Failed { act, fault, .. } => format!("{}!{}", name(act), fault.code),
        Fact::Cancelled { act, .. } => format!("{}x", name(act)),
        Fact::Paused { .. } => "paused".into(),
        Fact::Resumed => "resumed".into(),
        Fact::Concluded { outcome } => conclusion(outcome),
        Fact::Ended => "end".into(),
        Fact::Reopened { input: Some(input), .. } => format!("afresh({input})"),
        Fact::Reopened { acts, reset, .. } => {
            let acts: Vec<String> = acts.iter().map(name).collect();
            let reset: Vec<String> = reset.iter().map(|ix| node(*ix, ROOT)).collect();
            format!("reopened({};{})", acts.join(" "), reset.join(" "))
        }
    })
}

fn conclusion(outcome: &ExecutionOutcome) -> String {
    let output =
        outcome.output.as_ref().filter(|output| !output.is_null()).map(|output| format!("={output}"));
    let fault = outcome
        .fault
        .as_ref()
        .filter(|_| outcome.status != TerminalStatus::Cancelled)
        .map(|fault| format!("!{}", fault.code));
    format!("{}{}{}", outcome.status.as_str(), output.unwrap_or_default(), fault.unwrap_or_default())
}
