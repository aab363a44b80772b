//! Payloads of connections: port values, converted by the functions of the connections.

use sinew_protocol::code;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationId, ActivationOutput, AdapterContext, OutgoingToken, RouteDecision, SharedJson, TaskRequest,
    TokenValue, out_edges,
};
use sinew_plan::EdgeIndex;
use sinew_protocol::Fault;
use sinew_script::{CallBatch, CallOutcome, ScriptError};

use super::adapter::RAW;
use super::argument::ConversionArgument;
use super::convert::{self, ConversionResult};
use super::flow::ITERATION;
use super::lower::{ConnectionData, PlanRules};

fn script_fault(connection: &str, error: &ScriptError) -> Fault {
    let line = error.line.map(|line| format!(" at line {line}")).unwrap_or_default();
    let text = format!("the conversion function of '{connection}' failed{line}: {error}");
    Fault::failure(error.code(), text).with_retryable(false)
}

/// Returns the targets of an activation's output. All conversion functions are evaluated first, in
/// one batch; their outcomes are the last reply.
pub(super) fn select(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<RouteDecision, Fault> {
    let deliveries = deliveries(ctx, act);
    let recorded = outcomes(ctx, act)?;
    if recorded.is_none() {
        let batch = conversions(&deliveries, PlanRules::of(ctx.plan()).argument);
        if !batch.calls.is_empty() {
            return Ok(RouteDecision::Ask(Box::new(TaskRequest::evaluation(batch.to_json()))));
        }
    }
    let mut outcomes = recorded.unwrap_or_default().into_iter();
    let mut sends = Vec::new();
    for delivery in &deliveries {
        delivery.send(ctx, &mut outcomes, &mut sends)?;
    }
    Ok(RouteDecision::Tokens(sends))
}

/// Returns the payloads of the out-edges of an activation, in the order in which tokens are sent.
fn deliveries<'a>(ctx: &AdapterContext<'a>, act: ActivationId) -> Vec<ConnectionDelivery<'a>> {
    let one = ctx.act(act);
    let Some(output) = &one.output else { return Vec::new() };
    let mut edges: Vec<EdgeIndex> = out_edges(ctx, one.node).collect();
    // Items are sent before the output that follows the loop.
    edges.sort_by_key(|edge| ctx.plan().edge(*edge).port != ITERATION);
    edges.into_iter().filter_map(|edge| ConnectionDelivery::of(ctx, output, edge)).collect()
}

/// Returns the recorded outcomes of the activation's conversion functions; `None` if they were not
/// evaluated.
fn outcomes(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<Option<Vec<CallOutcome>>, Fault> {
    let Some(reply) = ctx.act(act).replies.last().filter(|reply| reply.tag == TaskRequest::EVALUATION) else {
        return Ok(None);
    };
    let reply = reply.result.as_ref().map_err(Clone::clone)?;
    let outcomes = CallOutcome::read_all(&reply.output);
    outcomes.map(Some).map_err(|error| {
        Fault::error(
            code::SCRIPT_INTERPRETER_FAILED.as_str(),
            format!("cannot parse the results of scripts: {error}"),
        )
    })
}

/// Returns the calls of all conversion functions, in the order of their outcomes.
fn conversions(deliveries: &[ConnectionDelivery<'_>], argument: ConversionArgument) -> CallBatch {
    let mut batch = CallBatch::default();
    // Connections of one port convert the same payload.
    let mut known: BTreeMap<*const Value, usize> = BTreeMap::new();
    for delivery in deliveries {
        let Some((_, source)) = &delivery.conversion else { continue };
        for payload in delivery.payloads() {
            let at = *known.entry(std::ptr::from_ref(payload)).or_insert_with(|| {
                batch.values.push(payload.clone());
                batch.values.len() - 1
            });
            batch.calls.push(convert::call(source, argument, payload, at));
        }
    }
    batch
}

/// Payload of one connection, before conversion.
struct ConnectionDelivery<'a> {
    edge: EdgeIndex,
    /// The value of the port for later nodes.
    shaped: &'a SharedJson,
    /// The same before shaping, for conversion functions.
    raw: &'a Value,
    /// Whether the output has the port; otherwise the connection carries the whole output.
    own: bool,
    /// Id of the connection and its conversion function.
    conversion: Option<(String, String)>,
    /// Items, if each is sent separately.
    items: Option<&'a [Value]>,
}

impl<'a> ConnectionDelivery<'a> {
    fn of(ctx: &AdapterContext<'a>, output: &'a ActivationOutput, edge: EdgeIndex) -> Option<Self> {
        let port = ctx.plan().edge(edge).port.as_str();
        let extra: Option<ConnectionData> = serde_json::from_value(ctx.plan().edge(edge).extra.clone()).ok();
        let at = |name: &str| output.ports.iter().find(|(port, _)| port == name).map(|(_, value)| value);
        let is_port = !port.starts_with('_');
        let shaped = at(port).filter(|value| is_port && !value.is_null());
        let (shaped, own) = match shaped {
            Some(shaped) => (shaped, true),
            None if port == "result" && !output.value.as_object().is_none_or(Map::is_empty) => {
                (&output.value, false)
            }
            None => return None,
        };
        let raw = at(RAW).and_then(|all| all.get(port)).unwrap_or(shaped);
        let conversion = extra.and_then(|ConnectionData { id, conversion }| Some((id, conversion?)));
        let items = shaped.as_array().filter(|_| port == ITERATION).map(Vec::as_slice);
        Some(Self { edge, shaped, raw, own, conversion, items })
    }

    /// Returns the payloads to convert.
    fn payloads(&self) -> &[Value] {
        self.items.unwrap_or(std::slice::from_ref(self.raw))
    }

    fn send(
        &self,
        ctx: &AdapterContext<'_>,
        outcomes: &mut impl Iterator<Item = CallOutcome>,
        sends: &mut Vec<OutgoingToken>,
    ) -> Result<(), Fault> {
        let edge = self.edge;
        if let Some(items) = self.items {
            for (index, item) in (0..).zip(items) {
                let value = self.converted(ctx, outcomes)?.unwrap_or_else(|| item.clone());
                sends.push(OutgoingToken { fan: Some(index), ..OutgoingToken::given(edge, value) });
            }
            return Ok(());
        }
        sends.push(match self.converted(ctx, outcomes)? {
            Some(value) => OutgoingToken::given(edge, value),
            None if self.own => OutgoingToken::port(edge),
            None => {
                OutgoingToken { edge, value: TokenValue::Given(SharedJson::clone(self.shaped)), fan: None }
            }
        });
        Ok(())
    }

    /// Returns the converted payload; `None` if the connection has no function or the function raised.
    fn converted(
        &self,
        ctx: &AdapterContext<'_>,
        outcomes: &mut impl Iterator<Item = CallOutcome>,
    ) -> Result<Option<Value>, Fault> {
        let Some((id, _)) = &self.conversion else { return Ok(None) };
        let Some(outcome) = outcomes.next() else {
            return Err(Fault::error(
                code::SCRIPT_INTERPRETER_FAILED.as_str(),
                "the result of a script is missing",
            ));
        };
        match convert::convert_outcome(outcome).map_err(|error| script_fault(id, &error))? {
            ConversionResult::Value(value) => Ok(Some(value)),
            ConversionResult::Raised(error) => {
                let failed = FailedConversion { connection: id.clone(), error: Some(error) };
                ctx.note(json!({ "conversion_failed": failed.to_json() }));
                Ok(None)
            }
        }
    }
}

/// A conversion function that raised: its connection carries the unconverted value.
pub(super) struct FailedConversion {
    /// Id of the connection.
    pub(super) connection: String,
    /// The error; `None` in records of earlier versions.
    pub(super) error: Option<ScriptError>,
}

impl FailedConversion {
    /// Returns the failure as JSON for people and programs.
    pub(super) fn to_json(&self) -> Value {
        let error = self.error.as_ref();
        json!({
            "connection": self.connection,
            "error": error.map(|error| error.message.as_str()),
            "line": error.and_then(|error| error.line),
            "column": error.and_then(|error| error.column),
        })
    }
}

/// Returns the conversion functions of an activation that raised, once per item.
pub(super) fn failed_conversions(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<FailedConversion> {
    if let Ok(Some(outcomes)) = outcomes(ctx, act) {
        let deliveries = deliveries(ctx, act);
        let converting = deliveries.iter().flat_map(|delivery| {
            delivery.conversion.iter().flat_map(|(id, _)| delivery.payloads().iter().map(move |_| id))
        });
        let raised = converting.zip(outcomes).filter_map(|(id, outcome)| match outcome {
            CallOutcome::Error(error) => Some((id, convert::unmask(error))),
            CallOutcome::Value(_) => None,
        });
        return raised
            .map(|(id, error)| FailedConversion { connection: id.clone(), error: Some(error) })
            .collect();
    }
    // Records of earlier versions contain no outcomes. There, an unconverted token shows that the
    // function raised.
    let sent = ctx.act(act).sent.iter().filter_map(|token| {
        let edge = ctx.plan().edge(token.edge);
        let extra: ConnectionData = serde_json::from_value(edge.extra.clone()).ok()?;
        let fell_back = match &token.value {
            TokenValue::Port => true,
            TokenValue::Given(value) => {
                unconverted(ctx, act, &edge.port, token.fan).is_some_and(|before| **value == *before)
            }
            _ => false,
        };
        let connection = extra.id;
        extra.conversion.filter(|_| fell_back).map(|_| FailedConversion { connection, error: None })
    });
    sent.collect()
}

/// Returns the unconverted value of a token: one item, or the whole map of ports.
fn unconverted<'a>(
    ctx: &AdapterContext<'a>,
    act: ActivationId,
    port: &str,
    item: Option<u32>,
) -> Option<&'a Value> {
    let all = &ctx.act(act).output.as_ref()?.value;
    match item {
        Some(index) => all.get(port)?.get(index as usize),
        None => Some(&**all),
    }
}
