//! Metrics of model calls and tool calls.

use std::sync::LazyLock;
use std::time::Duration;

use sinew_model::{CallStatus, ModelRefusal, ModelTurn, Provider, RefusalKind};
use sinew_protocol::label_names::LabelNames;

/// Names of models and agents as labels.
static MODEL_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);
static AGENT_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);

/// Counts one call of a model, as its agent file names it, by an agent.
pub(super) fn note_model_call(
    (agent, model): (&str, &str),
    provider: Provider,
    took: Duration,
    cost: Option<f64>,
    answer: Result<&ModelTurn, &ModelRefusal>,
) {
    let outcome = match answer {
        Ok(_) => "success",
        Err(refusal) => match refusal.kind {
            RefusalKind::Unavailable => "unavailable",
            RefusalKind::Limited => "limited",
            RefusalKind::QuotaExceeded => "quota_exceeded",
            RefusalKind::Denied => "denied",
            RefusalKind::BadRequest => "bad_request",
            RefusalKind::ContextTooLong => "context_too_long",
            RefusalKind::Filtered => "filtered",
            RefusalKind::Refused => "refused",
        },
    };
    metrics::counter!("sinew_model_calls_total", "outcome" => outcome).increment(1);
    metrics::histogram!("gen_ai_client_operation_duration_seconds", "provider" => provider.as_str())
        .record(took.as_secs_f64());
    let Ok(turn) = answer else { return };
    for (kind, tokens) in [("input", turn.usage.input), ("output", turn.usage.output)] {
        metrics::histogram!("gen_ai_client_token_usage", "kind" => kind).record(tokens as f64);
    }
    let micros = cost.map_or(0.0, |cost| cost * 1e6).clamp(0.0, 1e15);
    // Clamped, so the conversion is lossless.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1e15")]
    let micros = micros as u64;
    let (agent, model) = (AGENT_NAMES.label(agent), MODEL_NAMES.label(model));
    metrics::counter!("sinew_model_cost_micro_usd_total", "agent" => agent, "model" => model)
        .increment(micros);
}

/// Counts the turns that a conversation found in its log.
pub(super) fn note_replayed_turns(turns: u32) {
    metrics::counter!("sinew_turns_replayed_total").increment(u64::from(turns));
}

/// Counts one tool call. `source` is the origin of its results, such as `peer:Courier`.
pub(super) fn note_tool_call(source: &str, status: CallStatus) {
    let kind = match source.split_once(':').map_or(source, |(kind, _)| kind) {
        "peer" => "peer",
        "workflow" => "workflow",
        "mcp" => "mcp",
        "script" => "script",
        "builtin" => "builtin",
        "subagent" => "subagent",
        "program" => "program",
        _ => "other",
    };
    let outcome = if status == CallStatus::Succeeded { "success" } else { "failure" };
    metrics::counter!("sinew_tool_calls_total", "kind" => kind, "outcome" => outcome).increment(1);
}
