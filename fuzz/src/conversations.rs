//! Bytes of providers of language models, and logs of conversations. A panic is a finding.

use serde_json::Value;
use sinew_model::codec::AnswerReader;
use sinew_model::rehearsal::{RehearsalStubs, StubAnswer, rehearse};
use sinew_model::script::ModelScript;
use sinew_model::{
    BudgetSpec, CompactionSpec, ConversationSpec, ConversationState, FallbackRule, FormBounds,
    ModelAbilities, ModelSpec, OutputMode, OutputSpec, Provider, SchemaAbility, StepRecord, TaintRule,
    ToolAbility, ToolCall, UnknownRule,
};

/// Longest log that is tried, in records.
const MAX_RECORDS: usize = 200;
/// Records that a conversation may add to its log until it ends: its budgets allow fewer.
const MAX_ADDED_RECORDS: usize = 1_000;

/// The answer of a provider. The first byte names the provider and the size of the pieces that arrive; the answer is the same
/// however it is cut.
pub(crate) fn model_answer(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let provider = [Provider::OpenAi, Provider::Anthropic, Provider::Gemini][usize::from(first % 3)];
    let size = usize::from(first / 3) % 17 + 1;
    let mut whole = AnswerReader::new(provider);
    whole.feed(body);
    let mut pieces = AnswerReader::new(provider);
    for piece in body.chunks(size) {
        pieces.feed(piece);
    }
    match (whole.end(), pieces.end()) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.kind, pieces.kind),
        (whole, pieces) => panic!("at once {whole:?}, in pieces {pieces:?}"),
    }
}

/// Stubs that answer all calls alike.
struct EqualStubs;

impl RehearsalStubs for EqualStubs {
    fn call(&mut self, call: &ToolCall, earlier: usize) -> StubAnswer {
        let result = Ok(Value::from(format!("{} {earlier}", call.tool)));
        StubAnswer { after_ms: 1, ..StubAnswer::from(result) }
    }

    fn decide(&mut self, call: &ToolCall) -> bool {
        call.tool.len().is_multiple_of(2)
    }

    fn needs_approval(&self, _: &str, _: &Value) -> bool {
        false
    }
}

/// A log of a conversation: a record for each line. Lines that are not records are left out. The conversation goes on from any
/// such log, within its budgets, and its log reads back as it was written.
pub(crate) fn conversation_log(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').take(MAX_RECORDS);
    let log: Vec<StepRecord> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for end in 0..log.len() {
        let _ = ConversationState::fold(&log[..end]);
        let _ = ConversationState::fold_within(&log[..end], log[end].within.as_deref());
    }
    let answers = [serde_json::json!({"text": "the end"}), serde_json::json!({"echo": true})];
    let Ok(script) = ModelScript::read(&answers) else { return };
    let rehearsal = rehearse(&spec(), &script, &mut EqualStubs, &log, "fuzz");
    assert!(rehearsal.log.len() <= log.len() + MAX_ADDED_RECORDS, "the conversation does not end");
    // Numbers that JSON cannot hold are told as null.
    let Ok(text) = serde_json::to_string(&rehearsal.log) else { return };
    if let Ok(read) = serde_json::from_str::<Vec<StepRecord>>(&text) {
        assert_eq!(ConversationState::fold(&read).totals.turns, rehearsal.state.totals.turns);
    }
}

fn spec() -> ConversationSpec {
    let model = ModelSpec {
        alias: "main".to_owned(),
        provider: Provider::Script,
        model: "main".to_owned(),
        context: 8_000,
        max_output: 1_000,
        bounds: FormBounds::default(),
        abilities: ModelAbilities {
            tools: ToolAbility::Native,
            schema: SchemaAbility::Native,
            stream: false,
            parallel: true,
        },
        temperature: None,
        seed: None,
        reasoning: None,
        extra: serde_json::Map::new(),
        price: None,
        retries: 1,
        is_original: true,
    };
    ConversationSpec {
        activation: "fuzz".to_owned(),
        system: vec!["You answer.".to_owned()],
        examples: Vec::new(),
        history: Vec::new(),
        input: "A question".to_owned(),
        models: vec![model],
        summary_model: 0,
        fallback: FallbackRule { unavailable: true, limited: true, filtered: false, refused: false },
        tools: std::sync::Arc::default(),
        discover_rules: std::sync::Arc::default(),
        output: OutputSpec { schema: None, mode: OutputMode::Auto, repairs: 1 },
        budget: BudgetSpec::default(),
        compaction: CompactionSpec::default(),
        taint: TaintRule::Approve,
        tainted: false,
        on_unknown: UnknownRule::Tell,
        cache_key: "fuzz".to_owned(),
    }
}
