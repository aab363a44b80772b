//! Files that `sinew run --export` writes: a plan and the journal of one execution of it.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{Fact, Graph, Round};
use sinew_plan::Plan;

use crate::exit::{Exit, Failure};
use crate::load;

/// The file is no export, or a damaged one.
const NOT_AN_EXPORT: &str = "SINEW-8013";
/// The format this version reads.
const FORMAT: u64 = 1;

/// An execution from a file.
#[derive(Debug)]
pub(super) struct Export {
    /// Its plan.
    pub(super) graph: Graph,
    /// Its journal.
    pub(super) rounds: Vec<Round>,
}

/// Reads an export. It may come from anybody: nothing in it is trusted to hold together.
pub(super) fn read(path: &Path) -> Result<Export, Failure> {
    let bytes = load::read(path)?;
    parse(&bytes).map_err(|why| {
        Failure::new(
            Exit::Failed,
            NOT_AN_EXPORT,
            format!("{} is no export of an execution: {why}", path.display()),
        )
        .hint("make one with `sinew run FILE --export EXPORT.json`")
    })
}

fn parse(bytes: &[u8]) -> Result<Export, String> {
    let mut file: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(format!("it has format {other}, this version reads {FORMAT}")),
        None => return Err("it has no 'format'".to_owned()),
    }
    let plan: Plan =
        serde_json::from_value(file["plan"].take()).map_err(|error| format!("its plan: {error}"))?;
    let rounds = file["rounds"].take();
    check(&rounds, plan.nodes.len(), plan.edges.len())?;
    let rounds: Vec<Round> =
        serde_json::from_value(rounds).map_err(|error| format!("its rounds: {error}"))?;
    let graph = Graph::new(Arc::new(plan)).map_err(|error| format!("its plan: {error}"))?;
    let started = rounds.iter().flat_map(|round| &round.facts).find_map(|fact| match fact {
        Fact::Started(start) => Some(start.plan.as_str()),
        _ => None,
    });
    match started {
        Some(digest) if digest != graph.digest() => Err("its rounds belong to another plan".to_owned()),
        _ => Ok(Export { graph, rounds }),
    }
}

/// Every index in the facts must point at something that is there by then: the fold relies on it.
fn check(rounds: &Value, nodes: usize, edges: usize) -> Result<(), String> {
    let (mut acts, mut scopes) = (0_u64, 0_u64);
    let facts =
        rounds.as_array().into_iter().flatten().filter_map(|round| round["facts"].as_array()).flatten();
    for (n, fact) in facts.enumerate() {
        match fact["fact"].as_str() {
            Some("activated") => acts += 1,
            Some("opened") => scopes += 1,
            _ => {}
        }
        let below = |value: &Value, end: u64| match value {
            Value::Null => true,
            Value::Array(list) => list.iter().all(|value| value.as_u64().is_some_and(|ix| ix < end)),
            value => value.as_u64().is_some_and(|ix| ix < end),
        };
        let tokens = fact["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
        let whole = ["act", "owner", "again", "acts"].iter().all(|key| below(&fact[*key], acts))
            && ["scope", "parent", "from"].iter().all(|key| below(&fact[*key], scopes + 1))
            && ["node", "reset"].iter().all(|key| below(&fact[*key], nodes as u64))
            && below(&fact["edge"], edges as u64)
            && tokens.iter().all(|token| below(&token["edge"], edges as u64));
        if !whole {
            return Err(format!("fact {n} points at something that is not there"));
        }
    }
    Ok(())
}
