//! Plans in short notation.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_plan::{
    ExitCondition, ExitNode, FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge,
    PlanLimits, PlanNode, ReadyOrder, RetryPolicy, SchedulingProfile,
};

use crate::IndexedPlan;

/// A graph of `edges` such as `a>b a.port>c b>d! c>d? d>a#2` (`!` veto, `?` counts for the quorum, `#2` budget;
/// a name alone is a node without edges) and settings by node id.
///
/// Settings of a node: `op` (`agent` unless given; `map`, `loop` with `body`, `fork` with `bodies`), `join` (`all` unless
/// given; `each`, `once`, a number for a quorum), `rank`, `retry`, `attempt_timeout`, `timeout`; everything else is what
/// the adapter reads. Settings under `@` are the plan's: `failure`, `order`, `pause`, `parallel`, `limits`, `exits`,
/// `entry`; everything else is its `extra`.
pub(crate) fn graph(edges: &str, settings: Value) -> IndexedPlan {
    IndexedPlan::new(Arc::new(plan(edges, settings))).unwrap()
}

pub(crate) fn plan(edges: &str, mut settings: Value) -> Plan {
    let mut whole = settings.as_object_mut().unwrap().remove("@").unwrap_or_else(|| json!({}));
    let mut names: Vec<String> = Vec::new();
    let mut drawn = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for word in edges.split_whitespace() {
        let Some((from, to)) = word.split_once('>') else {
            add(word);
            continue;
        };
        let (from, port) = from.split_once('.').unwrap_or((from, "out"));
        let (to, budget) = to.split_once('#').map_or((to, None), |(to, n)| (to, Some(n.parse().unwrap())));
        let (veto, quorum) = (to.ends_with('!'), to.ends_with('?'));
        let to = to.trim_end_matches(['!', '?']);
        add(from);
        add(to);
        drawn.push((from, port, to, budget, veto, quorum));
    }
    for (name, node) in settings.as_object().unwrap() {
        add(name);
        let bodies = node["bodies"].as_array().into_iter().flatten().chain(node.get("body"));
        bodies.filter_map(Value::as_str).for_each(&mut add);
    }
    for name in whole["exits"].as_object().into_iter().flat_map(|exits| exits.keys()) {
        add(name);
    }
    let ix = |name: &str| {
        names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no {name}")) as NodeIndex
    };
    let mut inner = BTreeSet::new();
    let mut nodes: Vec<PlanNode> =
        names.iter().map(|name| node(name, &mut settings[name], &ix, &mut inner)).collect();
    for ix in &inner {
        nodes[*ix as usize].inner = true;
    }
    let mut take = |key: &str| whole.as_object_mut().unwrap().remove(key);
    let word = |value: Option<Value>, default: &str| {
        value.map_or(default.to_owned(), |v| v.as_str().unwrap().to_owned())
    };
    let profile = SchedulingProfile {
        order: match word(take("order"), "rank").as_str() {
            "fifo" => ReadyOrder::Fifo,
            "depth" => ReadyOrder::DepthFirst,
            _ => ReadyOrder::Rank,
        },
        parallel: take("parallel").map_or(0, |n| n.as_u64().unwrap() as u32),
        failure: match word(take("failure"), "stop").as_str() {
            "route" => FailurePolicy::RouteOn,
            "drain" => FailurePolicy::Drain,
            "isolate" => FailurePolicy::Isolate,
            _ => FailurePolicy::Stop,
        },
        pause: if word(take("pause"), "local") == "freeze" {
            PausePolicy::FreezeDefer
        } else {
            PausePolicy::NodeLocal
        },
    };
    let exits: Vec<ExitNode> = take("exits")
        .map(|exits| exits.as_object().unwrap().clone())
        .into_iter()
        .flatten()
        .map(|(id, on)| ExitNode {
            node: ix(&id),
            on: match on.as_str().unwrap() {
                "success" => ExitCondition::Success,
                "failure" => ExitCondition::Failure,
                "cancel" => ExitCondition::Cancel,
                _ => ExitCondition::Always,
            },
        })
        .collect();
    let targets: BTreeSet<&str> = drawn.iter().map(|edge| edge.2).collect();
    let is_entry = |ix: NodeIndex| !inner.contains(&ix) && !exits.iter().any(|exit| exit.node == ix);
    let entry = match take("entry") {
        Some(entry) => entry.as_array().unwrap().iter().map(|id| ix(id.as_str().unwrap())).collect(),
        None => (0..names.len() as NodeIndex)
            .filter(|n| is_entry(*n) && !targets.contains(names[*n as usize].as_str()))
            .collect(),
    };
    let limits: PlanLimits =
        take("limits").map_or_else(PlanLimits::default, |limits| serde_json::from_value(limits).unwrap());
    Plan {
        format: Plan::FORMAT,
        dialect: "scripted".into(),
        name: "test".into(),
        description: String::new(),
        version: None,
        profile,
        edges: drawn
            .iter()
            .enumerate()
            .map(|(n, (from, port, to, budget, veto, quorum))| PlanEdge {
                from: ix(from),
                port: (*port).into(),
                to: ix(to),
                handle: "in".into(),
                label: None,
                budget: *budget,
                counter: n as u32,
                veto: *veto,
                quorum: *quorum,
                attach: false,
                extra: Value::Null,
            })
            .collect(),
        nodes,
        entry,
        exits,
        limits,
        input_schema: None,
        output_schema: None,
        extra: whole,
    }
}

fn node(
    name: &str,
    settings: &mut Value,
    ix: &dyn Fn(&str) -> NodeIndex,
    inner: &mut BTreeSet<NodeIndex>,
) -> PlanNode {
    let mut settings = std::mem::take(settings);
    let mut take = |key: &str| settings.as_object_mut().and_then(|all| all.remove(key));
    let mut body = |id: &Value| {
        let ix = ix(id.as_str().unwrap());
        inner.insert(ix);
        ix
    };
    let kind = take("op").map_or("agent".to_owned(), |op| op.as_str().unwrap().to_owned());
    let op = match kind.as_str() {
        "agent" => NodeOperation::Agent,
        "pure" => NodeOperation::Pure,
        "human" => NodeOperation::Human,
        "delay" => NodeOperation::Delay,
        "map" => NodeOperation::Map { body: body(&take("body").unwrap()) },
        "loop" => NodeOperation::Loop { body: body(&take("body").unwrap()) },
        "fork" => NodeOperation::Fork {
            bodies: take("bodies").unwrap().as_array().unwrap().iter().map(body).collect(),
        },
        other => panic!("no such op: {other}"),
    };
    let join = match take("join") {
        None => JoinRule::Resolved { quorum: None },
        Some(Value::Number(quorum)) => JoinRule::Resolved { quorum: quorum.as_u64().map(|n| n as u32) },
        Some(word) => match word.as_str().unwrap() {
            "each" => JoinRule::Each,
            "once" => JoinRule::Once,
            _ => JoinRule::Resolved { quorum: None },
        },
    };
    PlanNode {
        id: name.into(),
        kind,
        label: None,
        op,
        join,
        rank: take("rank").map_or(0, |rank| rank.as_u64().unwrap() as u32),
        agent: None,
        retry: take("retry")
            .map_or_else(RetryPolicy::default, |retry| serde_json::from_value(retry).unwrap()),
        attempt_timeout_ms: take("attempt_timeout").and_then(|ms| ms.as_u64()),
        timeout_ms: take("timeout").and_then(|ms| ms.as_u64()),
        inner: false,
        attached: false,
        quiet: false,
        handles_failure: false,
        extra: settings,
    }
}
