//! Failures that the workflow handles: `continue_on_error`, `on_error`, and `tolerate` of maps. An
//! extension of the source format.

use serde_json::{Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationOutput, AdapterContext, NodeDecision, OutgoingToken,
    RouteDecision, out_edges,
};
use sinew_plan::EdgeIndex;
use sinew_protocol::Fault;

use super::lower::OUT;
use super::model::NodeDef;
use super::world::name;

/// Returns the error of a failed activation as data: `{code, message, kind}`.
pub(super) fn error_value(fault: &Fault) -> Value {
    json!({ "code": fault.code, "message": fault.message, "kind": fault.kind })
}

/// Returns the destination of the tokens of an ended activation. A failure that the node handles
/// reaches only the node in `on_error`, or with `continue_on_error` all dependents that are not
/// branches.
pub(super) fn select(ctx: &AdapterContext<'_>, act: ActivationId, node: &NodeDef) -> RouteDecision {
    let one = ctx.act(act);
    let port_of = |edge: EdgeIndex| ctx.plan().edge(edge).port.as_str();
    let Some(fault) = one.fault.as_ref().filter(|_| one.end == Some(ActivationEnd::Failed)) else {
        let Some(target) = &node.on_error else { return RouteDecision::Ports };
        // An output without ports is at every port, also at that for errors.
        let has = |port: &str| one.output.as_ref().is_some_and(|output| output.at(port).is_some());
        let edges = out_edges(ctx, one.node).filter(|edge| port_of(*edge) != target && has(port_of(*edge)));
        return RouteDecision::Tokens(edges.map(OutgoingToken::port).collect());
    };
    let port = node.on_error.as_deref().unwrap_or(OUT);
    let edges = out_edges(ctx, one.node).filter(|edge| port_of(*edge) == port);
    let error = json!({ "error": error_value(fault) });
    RouteDecision::Tokens(edges.map(|edge| OutgoingToken::given(edge, error.clone())).collect())
}

/// Number of items of a map that may fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tolerance {
    Items(u64),
    Percent(f64),
}

impl Tolerance {
    /// Reads a count, or a percentage such as `5%`; `None` for any other value.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        if let Some(count) = value.as_u64() {
            return Some(Self::Items(count));
        }
        let text = value.as_str()?.trim();
        let percent = text.strip_suffix('%')?.trim_end();
        let plain = percent.chars().all(|c| c.is_ascii_digit() || c == '.');
        let percent = percent.parse::<f64>().ok().filter(|percent| plain && *percent <= 100.0)?;
        Some(Self::Percent(percent))
    }

    fn allows(self, failed: usize, items: usize) -> bool {
        match self {
            Self::Items(count) => failed as u64 <= count,
            Self::Percent(percent) => failed as f64 * 100.0 <= percent * items as f64,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Items(count) => count.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// Returns the output of a map: results in order, null for failed items, and the errors of these
/// with their index. Fails if more items failed than tolerated; without a tolerance only items
/// whose body handles its failure get here.
pub(super) fn map_results(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    tolerance: Option<Tolerance>,
) -> NodeDecision {
    let acts = ctx.act(act).children.as_ref().map_or(&[][..], |children| children.acts.as_slice());
    let failed: Vec<(usize, &Fault)> = acts
        .iter()
        .enumerate()
        .filter(|(_, child)| ctx.act(**child).end == Some(ActivationEnd::Failed))
        .filter_map(|(index, child)| Some((index, ctx.act(*child).fault.as_ref()?)))
        .collect();
    if let (Some(tolerance), Some((index, fault))) = (tolerance, failed.first())
        && !tolerance.allows(failed.len(), acts.len())
    {
        let (failed, items, tolerated) = (failed.len(), acts.len(), tolerance.shown());
        let message = format!(
            "Node '{}' failed: {failed} of {items} items failed, and {tolerated} may fail; '{}': {}",
            name(ctx, act),
            name(ctx, acts[*index]),
            fault.message
        );
        return NodeDecision::Fail(Fault { message, ..(*fault).clone() }.with_retryable(false));
    }
    let results: Vec<Value> = ctx.child_outputs(act).map(|output| Value::clone(&output)).collect();
    let mut output = json!({ "results": results });
    if tolerance.is_some() || !failed.is_empty() {
        let error = |(index, fault): (usize, &Fault)| json!({ "index": index, "error": error_value(fault) });
        output["errors"] = failed.into_iter().map(error).collect();
    }
    NodeDecision::Done(ActivationOutput::new(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_counts_or_percentages() {
        for (written, failed, items, allowed) in [
            (json!(0), 0, 5, true),
            (json!(0), 1, 5, false),
            (json!(2), 2, 5, true),
            (json!("20%"), 1, 5, true),
            (json!("20 %"), 2, 5, false),
            (json!("0.5%"), 1, 200, true),
            (json!("100%"), 5, 5, true),
        ] {
            let tolerance = Tolerance::parse(&written).unwrap();
            assert_eq!(tolerance.allows(failed, items), allowed, "{written}: {failed} of {items}");
        }
        for wrong in
            [json!(-1), json!(1.5), json!("5"), json!("101%"), json!("-1%"), json!("NaN%"), json!("%")]
        {
            assert_eq!(Tolerance::parse(&wrong), None, "{wrong}");
        }
    }
}
