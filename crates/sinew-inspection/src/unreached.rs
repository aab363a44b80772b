//! Reasons why a node has no activation although its execution has ended.

use sinew_engine::{ActivationEnd, AdapterContext, ROOT};
use sinew_plan::{EdgeIndex, ExitCondition, NodeIndex};
use sinew_source::escape_line;

/// Kind of reason. If several edges lead to a node, the first in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnreachedReason {
    /// A predecessor failed.
    Failed,
    /// A predecessor was cancelled.
    Cancelled,
    /// A predecessor ended without sending a live token along this edge.
    NotTaken,
    /// A token arrived, but not all that the node requires.
    Incomplete,
    /// No predecessor started.
    Unreached,
}

/// Returns why a node of an ended execution has no activation. It reads tokens, not dialects.
pub fn unreached_reason(ctx: &AdapterContext<'_>, ix: NodeIndex) -> String {
    let plan = ctx.plan();
    if let Some(exit) = plan.exits.iter().find(|exit| exit.node == ix) {
        return match exit.on {
            ExitCondition::Always => "the execution ended first".to_owned(),
            ExitCondition::Success => "runs only on success".to_owned(),
            ExitCondition::Failure => "runs only on failure".to_owned(),
            ExitCondition::Cancel => "runs only on cancellation".to_owned(),
        };
    }
    if plan.node(ix).inner {
        return "no children were created".to_owned();
    }
    let edges = ctx.graph.in_edges(ix).iter().copied().filter(|edge| !plan.edge(*edge).attach);
    let told = edges.map(|edge| (reason_of(ctx, edge), edge)).min();
    let Some((reason, edge)) = told else { return "the execution ended first".to_owned() };
    let source = escape_line(&plan.node(plan.edge(edge).from).id);
    match (reason, &plan.edge(edge).label) {
        (UnreachedReason::Failed, _) => format!("{source} failed"),
        (UnreachedReason::Cancelled, _) => format!("{source} was cancelled"),
        (UnreachedReason::NotTaken, Some(label)) => {
            format!("the edge '{}' of {source} was not taken", escape_line(label))
        }
        (UnreachedReason::NotTaken, None) => format!("{source} took another path"),
        (UnreachedReason::Incomplete, _) => "the execution ended before all its inputs arrived".to_owned(),
        (UnreachedReason::Unreached, _) => format!("{source} was not reached"),
    }
}

fn reason_of(ctx: &AdapterContext<'_>, edge: EdgeIndex) -> UnreachedReason {
    let Some(source) = ctx.state.last(ROOT, ctx.plan().edge(edge).from) else {
        return UnreachedReason::Unreached;
    };
    let source = ctx.act(source);
    match source.end {
        _ if source.sent.iter().any(|token| token.edge == edge && token.value.is_live()) => {
            UnreachedReason::Incomplete
        }
        Some(ActivationEnd::Failed) => UnreachedReason::Failed,
        Some(ActivationEnd::Cancelled) | None => UnreachedReason::Cancelled,
        Some(ActivationEnd::Succeeded | ActivationEnd::Skipped) => UnreachedReason::NotTaken,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sinew_documents::node_status::NodeStatus;
    use sinew_protocol::query::ExecutionStatus;

    use crate::execution_status::status_of;
    use crate::node_rows;
    use crate::record::Record;
    use crate::tests::{Said, ran};

    const HOUR: u64 = 3_600_000;

    /// Nodes without an activation, each with its reason.
    fn unreached(record: &Record) -> Vec<(String, String)> {
        let rows = node_rows::rows(&record.execution, HOUR);
        assert!(rows.iter().all(|row| row.status != NodeStatus::Planned), "{rows:#?}");
        let skipped = rows.into_iter().filter(|row| row.status == NodeStatus::Skipped);
        skipped.map(|row| (row.node, row.message.unwrap_or_default())).collect()
    }

    fn check(record: &Record, status: ExecutionStatus, expected: &[(&str, &str)]) {
        assert_eq!(status_of(record.execution.state()), status, "{}", record.execution.native_result());
        let expected: Vec<(String, String)> =
            expected.iter().map(|(node, why)| ((*node).to_owned(), (*why).to_owned())).collect();
        assert_eq!(unreached(record), expected);
    }

    #[test]
    fn a_branch_that_was_not_taken_is_told_in_every_dialect() {
        let said = |value: Value| -> Vec<Said> { vec![Some(Ok(value))] };
        let sweny = "id: judged\nname: judged\nnodes:\n  a: {name: a, instruction: look}\n  b: {name: b, instruction: fix}\n  \
                     c: {name: c, instruction: leave}\n  d: {name: d, instruction: tell}\nedges:\n  - {from: a, to: b, when: it is broken}\n  \
                     - {from: a, to: c, when: it is whole}\n  - {from: b, to: d}\nentry: a\n";
        let answers = [said(json!({"status": "success", "choice": "c"}))];
        let record = ran("judged.yaml", sweny, json!({}), &[("agent", &answers[0])], &[], HOUR);
        check(
            &record,
            ExecutionStatus::Success,
            &[("b", "the edge 'it is broken' of a was not taken"), ("d", "b was not reached")],
        );
        let covalt = json!({
            "nodes": [
                { "id": "a", "type": "webhook-trigger", "data": {} },
                { "id": "i", "type": "conditional", "data": { "field": "n", "operator": "exists" } },
                { "id": "t", "type": "merge", "data": {} }, { "id": "f", "type": "merge", "data": {} },
            ],
            "edges": [
                { "id": "1", "source": "a", "sourceHandle": "output", "target": "i", "targetHandle": "input", "data": { "channel": "flow" } },
                { "id": "2", "source": "i", "sourceHandle": "true", "target": "t", "targetHandle": "input", "data": { "channel": "flow" } },
                { "id": "3", "source": "i", "sourceHandle": "false", "target": "f", "targetHandle": "input", "data": { "channel": "flow" } },
            ],
        });
        let teams = json!({
            "nodes": [
                { "id": "t", "type": "TRIGGER", "subtype": "MANUAL" },
                { "id": "i", "type": "FLOW", "subtype": "IF", "configurations": { "condition_expression": "$json.n == 1" } },
                { "id": "a", "type": "EXTERNAL_ACTION", "subtype": "SLACK", "configurations": { "agent": "slack" } },
                { "id": "b", "type": "EXTERNAL_ACTION", "subtype": "SLACK", "configurations": { "agent": "slack" } },
            ],
            "connections": [
                { "id": "1", "from_node": "t", "to_node": "i", "output_key": "result" },
                { "id": "2", "from_node": "i", "to_node": "a", "output_key": "true" },
                { "id": "3", "from_node": "i", "to_node": "b", "output_key": "false" },
            ],
            "triggers": ["t"],
        });
        let flow = json!({
            "nodes": [
                { "id": "s", "type": "start", "data": { "initialInput": "an error" } },
                { "id": "i", "type": "if", "data": { "conditions": [{ "operator": "contains", "value": "error" }] } },
                { "id": "y", "type": "agent", "data": { "name": "one" } }, { "id": "n", "type": "agent", "data": { "name": "one" } },
            ],
            "connections": [
                { "source": "s", "target": "i", "sourceHandle": "output", "targetHandle": "input" },
                { "source": "i", "target": "y", "sourceHandle": "condition-0", "targetHandle": "input" },
                { "source": "i", "target": "n", "sourceHandle": "false", "targetHandle": "input" },
            ],
        });
        let answers = said(json!({"success": true, "response": "done"}));
        let agents = ["slack", "one", "agent", "y", "n", "agentflow"].map(|name| (name, answers.as_slice()));
        for (name, file, skipped) in
            [("c.json", &covalt, "f"), ("t.json", &teams, "b"), ("f.json", &flow, "y")]
        {
            let record = ran(name, &file.to_string(), json!({ "n": 1 }), &agents, &[], HOUR);
            assert!(record.execution.state().ended, "{name}: {}", record.execution.native_result());
            let told = unreached(&record);
            assert!(told.len() == 1 && told[0].0 == skipped && !told[0].1.is_empty(), "{name}: {told:?}");
        }
    }

    #[test]
    fn what_a_failure_kept_from_running_names_it() {
        let file = "workflow:\n  description: Three\n  input_schema: {type: object}\n  nodes:\n    - {id: a, type: agent, agent_name: one, input: {}}\n    \
                    - {id: b, type: agent, agent_name: one, depends_on: [a], input: {}}\n    - {id: c, type: agent, agent_name: one, depends_on: [b], input: {}}\n  \
                    output_mapping: {}\n";
        let broken: &[Said] = &[Some(Err("it broke"))];
        let record = ran("three.yaml", file, json!({}), &[("one", broken)], &[], HOUR);
        let told = unreached(&record);
        assert_eq!(status_of(record.execution.state()), ExecutionStatus::Failure);
        assert!(told.len() == 2 && told[0].0 == "b" && !told[0].1.is_empty(), "{told:?}");
        // A running execution may still reach them.
        let silent: &[Said] = &[None];
        let record = ran("three.yaml", file, json!({}), &[("one", silent)], &[], 1_000);
        let rows = node_rows::rows(&record.execution, 2_000);
        let planned = rows.iter().filter(|row| row.status == NodeStatus::Planned && row.message.is_none());
        assert_eq!(planned.count(), 2, "{rows:#?}");
    }
}
