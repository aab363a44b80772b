//! Encoded rounds: they are lossless, old journals remain readable, and foreign bytes are rejected
//! without a panic.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_protocol::person_wait::PersonWait;
use sinew_protocol::{ExecutionId, Fault, FaultKind};

use super::properties::{Dice, for_seeds};
use crate::fact::{
    ActivationOutput, ChildSpec, EdgeToken, ExecutionMode, ExecutionOutcome, ExecutionStart, Fact,
    NewActivation, PersonAnswer, PersonRequest, Round, TerminalStatus, TokenValue,
};
use crate::wire::WireError;
use crate::{
    ExecutionState, IndexedPlan, RequestTarget, SharedJson, TaskReply, TaskRequest, apply, decode_round,
    encode_round,
};

#[test]
fn any_round_comes_back() {
    for_seeds(0..5_000, |seed| {
        let mut dice = Dice::new(seed);
        let facts = (0..dice.roll(12)).map(|_| any_fact(&mut dice)).collect();
        let round = Round { at: dice.roll(u64::MAX), facts };
        assert_eq!(decode_round(&encode_round(&round)).unwrap(), round);
        let json = serde_json::to_string(&round).unwrap();
        assert_eq!(serde_json::from_str::<Round>(&json).unwrap(), round);
    });
}

#[test]
fn every_kind_of_fact_is_among_them() {
    let mut dice = Dice::new(1);
    let kinds: BTreeSet<String> = (0..5_000)
        .map(|_| serde_json::to_value(any_fact(&mut dice)).unwrap()["fact"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.len(), KINDS as usize, "{kinds:?}");
}

#[test]
fn damaged_bytes_never_panic() {
    for_seeds(0..5_000, |seed| {
        let mut dice = Dice::new(seed);
        let facts = (0..3).map(|_| any_fact(&mut dice)).collect();
        let mut bytes = encode_round(&Round { at: 1, facts });
        for _ in 0..4 {
            let at = dice.roll(bytes.len() as u64) as usize;
            match dice.roll(3) {
                0 => bytes[at] = dice.roll(256) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, dice.roll(256) as u8),
            }
            let _ = decode_round(&bytes);
        }
    });
}

/// `expected` is the start of the error.
#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error: WireError = decode_round(bytes).unwrap_err();
    assert!(error.to_string().starts_with(expected), "{error}");
    assert_eq!(error.code(), "SINEW-6009");
}

#[test]
fn what_is_not_known_is_refused_with_its_reason() {
    refused(b"", "journal format 0 is not supported");
    refused(&[8, 3], "journal format 3 is not supported");
    refused(&[8, 1, 26], "the bytes are not a journal round");
    refused(b"hello", "the bytes are not a journal round");
    // Facts: a resume, then one of field 99.
    refused(
        &[8, 1, 26, 3, 0xd2, 1, 0, 26, 3, 0x9a, 6, 0],
        "fact 1 of the round has a kind that this version does not know",
    );
    // A dispatch without a request, and a note that is not JSON.
    refused(&[8, 1, 26, 2, 0x5a, 0], "fact 0: ask is missing");
    refused(&[8, 1, 26, 5, 0x52, 3, 0x12, 1, b'{'], "fact 0: a value is not JSON");
    // An unknown status.
    refused(&[8, 1, 26, 5, 0xe2, 1, 2, 8, 9], "fact 0: status is missing or has an unknown value");
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    let round = Round { at: 7, facts: vec![Fact::Resumed, Fact::Began { act: 3 }] };
    let mut bytes = encode_round(&round);
    bytes.extend([0xfa, 1, 1, 0]); // field 31 of the round
    assert_eq!(decode_round(&bytes).unwrap(), round);
    // Field 9 in a fact, in addition to its kind.
    assert_eq!(decode_round(&[8, 1, 26, 5, 0xd2, 1, 2, 0x48, 1]).unwrap().facts, [Fact::Resumed]);
}

/// Decodes a line of hexadecimal digits.
fn bytes_of(line: &str) -> Vec<u8> {
    let digits = (0..line.len()).step_by(2).map(|at| &line[at..at + 2]);
    digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn rounds_with_references_are_still_read() {
    let lines: Vec<&str> = include_str!("../../tests/histories/v2.rounds.hex").lines().collect();
    let rounds: Vec<Round> =
        serde_json::from_str(include_str!("../../tests/histories/v2.rounds.json")).unwrap();
    assert_eq!(lines.len(), rounds.len());
    for (line, round) in lines.into_iter().zip(rounds) {
        let bytes = bytes_of(line);
        assert_eq!(bytes[1], 2, "the round has a reference");
        assert_eq!(decode_round(&bytes).unwrap(), round);
    }
}

/// Returns the state and the kinds of facts of a stored journal; see `tests/histories/README.md`.
fn old_journal(graph: &IndexedPlan) -> (ExecutionState, BTreeSet<String>) {
    let mut state = ExecutionState::new();
    let mut kinds = BTreeSet::new();
    for line in include_str!("../../tests/histories/v1.journal.hex").lines() {
        let round = decode_round(&bytes_of(line)).unwrap();
        for fact in &round.facts {
            kinds.insert(serde_json::to_value(fact).unwrap()["fact"].as_str().unwrap().to_owned());
            apply(graph, &mut state, round.at, fact);
        }
    }
    (state, kinds)
}

fn old_graph() -> IndexedPlan {
    let plan = serde_json::from_str(include_str!("../../tests/histories/v1.plan.json")).unwrap();
    IndexedPlan::new(Arc::new(plan)).unwrap()
}

#[test]
fn old_journals_are_still_read() {
    let graph = old_graph();
    let (state, kinds) = old_journal(&graph);
    let stored: ExecutionState =
        serde_json::from_str(include_str!("../../tests/histories/v1.state.json")).unwrap();
    // `callee_waits` and `reminded` are newer than the journal.
    assert_eq!(kinds.len(), KINDS as usize - 2, "the journal has facts of every kind: {kinds:?}");
    let (seen, stored) = (serde_json::to_value(&state).unwrap(), serde_json::to_value(&stored).unwrap());
    assert_eq!(seen, stored, "the fold of the stored journal; its state as it is seen now:\n{seen:#}");
    assert_eq!(
        graph.digest(),
        state.start.as_ref().unwrap().plan,
        "the digest of a stored plan does not change"
    );
}

const KINDS: u64 = 32;

pub(super) fn any_fact(dice: &mut Dice) -> Fact {
    let act = dice.roll(1 << 32) as u32;
    let attempt = dice.roll(5) as u32;
    let reason = text(dice);
    match dice.roll(KINDS) {
        0 => Fact::Started(Arc::new(ExecutionStart {
            plan: text(dice),
            input: val(dice),
            mode: ExecutionMode {
                dry_run: dice.chance(50),
                given: (0..dice.roll(3)).map(|_| (text(dice), val(dice))).collect(),
                from: texts(dice),
                until: texts(dice),
                samples: (0..dice.roll(3)).map(|_| (text(dice), val(dice))).collect(),
            },
            depth: attempt,
            chain: texts(dice),
            refused: maybe(dice, fault),
        })),
        1 => Fact::Opened {
            scope: act,
            parent: attempt,
            owner: number(dice),
            index: number(dice),
            item: val(dice),
        },
        2 => Fact::Routed {
            act: maybe(dice, number),
            scope: number(dice),
            tokens: tokens(dice),
            end: maybe(dice, text),
        },
        3 => Fact::Activated(NewActivation {
            act,
            node: number(dice),
            scope: number(dice),
            from: number(dice),
            take: maybe(dice, number),
            owner: maybe(dice, number),
            value: maybe(dice, val),
            again: maybe(dice, number),
            position: maybe(dice, number),
            input: maybe(dice, val),
        }),
        4 => Fact::Died { node: number(dice), scope: number(dice), reason },
        5 => Fact::Dropped { edge: number(dice), scope: number(dice) },
        6 => Fact::Deferred { act, human: dice.chance(50) },
        7 => Fact::Undeferred { act },
        8 => Fact::Began { act },
        9 => Fact::Noted { act: maybe(dice, number), note: value(dice) },
        10 => Fact::Dispatched {
            act,
            attempt,
            tries: number(dice),
            ask: Arc::new(ask(dice)),
            deadline: maybe(dice, time),
        },
        11 => Fact::Progressed { act, attempt, value: value(dice) },
        12 => {
            let result = if dice.chance(50) { Ok(Arc::new(reply(dice))) } else { Err(fault(dice)) };
            let usage = if result.is_err() && dice.chance(50) { value(dice) } else { Value::Null };
            let worked_ms = maybe(dice, time);
            Fact::Replied { act, attempt, result, retried: dice.chance(50), usage, worked_ms }
        }
        13 => Fact::Late { act, attempt, usage: value(dice) },
        14 => Fact::BackedOff { act, until: time(dice), ask: maybe(dice, |dice| Arc::new(ask(dice))) },
        15 => Fact::Slept { act, until: time(dice) },
        16 => {
            let wait = PersonRequest {
                prompt: text(dice),
                data: val(dice),
                allowed: texts(dice),
                timeout_ms: maybe(dice, time),
                remind_ms: maybe(dice, time),
                decision: dice.chance(50),
                approvals: (0..dice.roll(3)).map(|_| answer(dice)).collect(),
            };
            Fact::Awaited {
                act,
                wait: Arc::new(wait),
                deadline: maybe(dice, time),
                stops_clocks: dice.chance(50),
            }
        }
        17 => Fact::Answered { act, answer: Arc::new(answer(dice)) },
        18 => {
            let child = |dice: &mut Dice| ChildSpec {
                body: number(dice),
                item: val(dice),
                delay_ms: maybe(dice, time),
            };
            let children = (0..dice.roll(3)).map(|_| child(dice)).collect();
            Fact::Fanned {
                act,
                children: Arc::new(children),
                limit: maybe(dice, number),
                fail_fast: dice.chance(50),
            }
        }
        19 => Fact::Yielded { act, tokens: tokens(dice) },
        20 => Fact::Completed { act, output: output(dice), reused: dice.chance(50) },
        21 => Fact::Skipped { act, reason, output: output(dice) },
        22 => Fact::Failed { act, fault: fault(dice), output: maybe(dice, output) },
        23 => Fact::Cancelled { act, reason },
        24 => Fact::Paused { reason },
        25 => Fact::Resumed,
        26 => Fact::CancelRequested { reason },
        27 => {
            let status =
                dice.pick(&[TerminalStatus::Success, TerminalStatus::Failure, TerminalStatus::Cancelled]);
            let (output, fault) = (maybe(dice, val), maybe(dice, fault));
            Fact::Concluded {
                outcome: ExecutionOutcome { status, output, fault, cause: maybe(dice, number) },
            }
        }
        28 => Fact::Ended,
        30 => Fact::Reminded { act },
        29 => {
            let wait = maybe(dice, |dice| {
                Arc::new(PersonWait {
                    execution: maybe(dice, |_| ExecutionId::of("ns", "ada", "callee")),
                    workflow: text(dice),
                    node: text(dice),
                    activation: number(dice),
                    prompt: text(dice),
                    allowed: texts(dice),
                    since: time(dice),
                    due: maybe(dice, time),
                    more: number(dice),
                    is_busy: dice.chance(50),
                })
            });
            Fact::CalleeWaits { act, attempt, callee: text(dice), number: time(dice), wait }
        }
        _ => {
            let (acts, reset, input) = (numbers(dice), numbers(dice), maybe(dice, val));
            Fact::Reopened { acts, reset, reason, input }
        }
    }
}

fn maybe<T>(dice: &mut Dice, some: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    dice.chance(60).then(|| some(dice))
}

fn number(dice: &mut Dice) -> u32 {
    let small = dice.roll(3);
    dice.pick(&[small, 1 << 20, u64::from(u32::MAX)]) as u32
}

fn numbers(dice: &mut Dice) -> Vec<u32> {
    (0..dice.roll(4)).map(|_| number(dice)).collect()
}

fn time(dice: &mut Dice) -> u64 {
    dice.pick(&[0, 1, 1_700_000_000_000, u64::MAX])
}

fn text(dice: &mut Dice) -> String {
    dice.pick(&["", "a", "two words", "zwölf \u{1f600} \u{0} \"q\""]).to_owned()
}

fn texts(dice: &mut Dice) -> Vec<String> {
    (0..dice.roll(3)).map(|_| text(dice)).collect()
}

fn value(dice: &mut Dice) -> Value {
    match dice.roll(9) {
        0 | 1 => Value::Null,
        2 => json!(dice.chance(50)),
        3 => json!(dice.roll(u64::MAX)),
        4 => json!(-dice.roll(1 << 62).cast_signed()),
        // Includes numbers that are only read back correctly with exact parsing.
        5 => json!(f64::from_bits(dice.roll(u64::MAX) >> 2)),
        6 => json!(text(dice)),
        7 => (0..dice.roll(3)).map(|_| value(dice)).collect(),
        _ => Value::Object((0..dice.roll(3)).map(|_| (text(dice), value(dice))).collect()),
    }
}

fn val(dice: &mut Dice) -> SharedJson {
    if dice.chance(40) {
        // A few large values, which therefore repeat within a round.
        return json!([dice.pick(&["a", "b"]).repeat(usize::try_from(60 + dice.roll(5)).unwrap())]).into();
    }
    value(dice).into()
}

/// Returns a round of `count` replies with one value, shared by the facts or copied.
fn replies(value: &Value, count: u32, is_shared: bool) -> Round {
    let shared = Arc::new(value.clone());
    let reply = |act| {
        let value = if is_shared { Arc::clone(&shared) } else { Arc::new(value.clone()) };
        Fact::Replied {
            act,
            attempt: 1,
            result: Ok(Arc::new(TaskReply::new(value))),
            retried: false,
            usage: Value::Null,
            worked_ms: None,
        }
    };
    Round { at: 1, facts: (0..count).map(reply).collect() }
}

#[test]
fn a_repeated_value_is_written_once() {
    let large = json!("x".repeat(100_000));
    let one = encode_round(&replies(&large, 1, true)).len();
    for is_shared in [true, false] {
        let bytes = encode_round(&replies(&large, 8, is_shared));
        assert!(bytes.len() < one + 200, "{} for eight, {one} for one", bytes.len());
        assert_eq!(bytes, encode_round(&replies(&large, 8, true)), "equal rounds give equal bytes");
        let outputs = decode_round(&bytes).unwrap().facts.into_iter().map(|fact| match fact {
            Fact::Replied { result: Ok(reply), .. } => Arc::clone(&reply.output),
            other => panic!("{other:?}"),
        });
        let outputs: Vec<_> = outputs.collect();
        assert!(outputs.iter().all(|output| Arc::ptr_eq(output, &outputs[0])), "and are read once");
    }
}

#[test]
fn rounds_without_repeated_large_values_are_read_by_older_versions() {
    let version = |round: &Round| encode_round(round)[1];
    assert_eq!(version(&replies(&json!("x".repeat(60)), 8, true)), 1);
    assert_eq!(version(&replies(&json!("x".repeat(100)), 1, true)), 1);
    assert_eq!(version(&replies(&json!("x".repeat(100)), 2, true)), 2);
}

#[test]
fn references_to_values_that_are_not_there_are_refused() {
    let bytes = encode_round(&replies(&json!("x".repeat(100)), 2, true));
    let at = bytes.windows(5).rposition(|window| window == [0, 0, 0, 0, 0]).unwrap();
    let mut other = bytes.clone();
    other[at + 1] = 1;
    refused(&other, "fact 1: value that is referred to is missing");
    let mut cut = bytes;
    cut[at] = b'7';
    refused(&cut, "fact 1: a value is not JSON");
}

fn tokens(dice: &mut Dice) -> Vec<EdgeToken> {
    let token = |dice: &mut Dice| EdgeToken {
        edge: number(dice),
        value: match dice.roll(4) {
            0 => TokenValue::Dead,
            1 => TokenValue::Failed,
            2 => TokenValue::Port,
            _ => TokenValue::Given(val(dice)),
        },
        fan: maybe(dice, number),
    };
    (0..dice.roll(4)).map(|_| token(dice)).collect()
}

fn output(dice: &mut Dice) -> ActivationOutput {
    ActivationOutput { value: val(dice), ports: (0..dice.roll(3)).map(|_| (text(dice), val(dice))).collect() }
}

fn ask(dice: &mut Dice) -> TaskRequest {
    TaskRequest {
        tag: text(dice),
        target: match dice.chance(50) {
            true => RequestTarget::Agent(text(dice)),
            false if dice.chance(50) => RequestTarget::Workflow(text(dice)),
            false => RequestTarget::Evaluation,
        },
        input: val(dice),
        instruction: maybe(dice, text),
        context: value(dice),
        input_schema: maybe(dice, value),
        output_schema: maybe(dice, value),
        timeout_ms: maybe(dice, time),
    }
}

fn reply(dice: &mut Dice) -> TaskReply {
    let mut values = || (0..dice.roll(3)).map(|_| value(dice)).collect();
    let (artifacts, events) = (values(), values());
    TaskReply { output: val(dice), artifacts, events, usage: value(dice), worked_ms: None }
}

fn fault(dice: &mut Dice) -> Fault {
    use FaultKind::{Cancelled, Error, Failure, Invalid, Timeout};
    let mut fault =
        Fault::new(dice.pick(&[Cancelled, Error, Failure, Invalid, Timeout]), text(dice), text(dice))
            .with_retryable(dice.chance(50))
            .with_details(texts(dice));
    fault.retry_after_ms = maybe(dice, time);
    fault
}

fn answer(dice: &mut Dice) -> PersonAnswer {
    PersonAnswer {
        data: value(dice),
        timed_out: dice.chance(50),
        by: maybe(dice, text),
        comment: maybe(dice, text),
        approved: maybe(dice, |dice| dice.chance(50)),
    }
}
