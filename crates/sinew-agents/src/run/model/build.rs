//! Builds a model agent from `run: model:`, and validates each key.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, OnceLock};

use reqwest::Url;
use reqwest::header::HeaderName;
use sinew_model::codec::default_address;
use sinew_model::script::ModelScript;
use sinew_model::{
    BudgetSpec, CompactionSpec, FallbackRule, FormBounds, ModelAbilities, ModelSpec, OutputMode, Provider,
    SchemaAbility, TaintRule, TokenPrice, ToolAbility, UnknownRule,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::code;
use sinew_source::{Limits, Schema};

use super::build_tools::doubts_about_taint;
use super::builtin_tools::SkillText;
use super::discover::PeerIndex;
use super::endpoint::ModelEndpoint;
use super::instruction::InstructionTemplate;
use super::setup::user_message;
use super::{ModelAgent, SessionRule};
use crate::complaint::{FileComplaint, escape_key};
use crate::model_file::{
    FallbackClass, ModelEntry, ModelFile, OutputModeName, ProviderName, SchemaAbilityName, TaintEntry,
    ToolAbilityName, UnknownEntry,
};
use crate::named_files::NamedFiles;
use crate::run::http::is_connection_header;
use crate::run::mcp::ToolLock;
use crate::template::{Template, TemplatePiece};

/// Name of the file with models in the folder of the agent file.
const MODELS_FILE: &str = "models.yaml";
/// Maximum bytes of a file that an agent file references.
const MAX_NAMED_FILE: u64 = 1 << 20;
/// Default context of a model, in tokens.
const USUAL_CONTEXT: u64 = 128_000;
/// Default maximum of an answer, in tokens.
const USUAL_MAX_OUTPUT: u64 = 4_096;

/// Builds parts of a model agent and collects findings about its file.
pub(super) struct ModelBuilder<'a> {
    path: &'a Path,
    pub(super) folder: &'a Path,
    named_files: NamedFiles,
    pub(super) found: Vec<FileComplaint>,
    /// Search index of the agent, shared by its `discover` entries.
    pub(super) index: Arc<PeerIndex>,
}

/// Builds a model agent. `path` is its file in `folder`, and `text` the content, for the digest.
pub(crate) fn build_model(
    file: &ModelFile,
    (path, folder, named_files): (&Path, &Path, NamedFiles),
    text: &[u8],
) -> Result<ModelAgent, Vec<FileComplaint>> {
    let mut builder = ModelBuilder { path, folder, named_files, found: Vec::new(), index: Arc::default() };
    let agent = builder.build(file, text);
    match agent {
        Some(agent) if builder.found.is_empty() => Ok(agent),
        _ => Err(builder.found),
    }
}

impl ModelBuilder<'_> {
    pub(super) fn complain(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.found.push(FileComplaint {
            pointer: format!("/run/model{}", pointer.into()),
            code: code::MODEL_FILE_NOT_VALID.as_str(),
            message: message.into(),
            within: None,
            is_warning: false,
        });
    }

    fn build(&mut self, file: &ModelFile, text: &[u8]) -> Option<ModelAgent> {
        let models = self.models(file)?;
        let (mut endpoints, mut others) = (Vec::new(), Vec::new());
        for (index, alias) in file.r#use.iter().enumerate() {
            if file.r#use[..index].contains(alias) {
                self.complain(format!("/use/{index}"), format!("model '{alias}' is duplicated"));
            }
            match models.get(alias) {
                None => {
                    let known: Vec<&str> = models.keys().map(String::as_str).collect();
                    let hint = sinew_source::did_you_mean(alias, known.iter().copied());
                    let hint = hint.map_or_else(
                        || format!("models: {}", known.join(", ")),
                        |near| format!("did you mean '{near}'?"),
                    );
                    self.complain(format!("/use/{index}"), format!("there is no model '{alias}'; {hint}"));
                }
                Some(entry) => endpoints.extend(self.endpoint(alias, entry)),
            }
        }
        for (alias, entry) in models.iter().filter(|(alias, _)| !file.r#use.contains(*alias)) {
            others.extend(self.endpoint(alias, entry));
        }
        if file.models.is_some() || self.named_files == NamedFiles::OnDisk {
            self.check_prices(file, &models);
        }
        let instruction = self.instruction(file);
        let skills = self.skills(file);
        let mut conditions = HashMap::new();
        let tools = self.tools(file, &mut conditions);
        let doubts = doubts_about_taint(file, &tools);
        let lock_path = ToolLock::path(self.path);
        let lock = match self.named_files {
            NamedFiles::OnDisk => ToolLock::read(&lock_path),
            NamedFiles::Absent => Ok(None),
        };
        let lock = lock.unwrap_or_else(|problem| {
            self.complain("/tools", format!("{} cannot be used: {problem}", lock_path.display()));
            None
        });
        let summary = file
            .compact
            .model
            .as_ref()
            .map_or(Some(0), |alias| file.r#use.iter().position(|one| one == alias));
        if summary.is_none() {
            self.complain("/compact/model", "the model that writes summaries must be one of `use`");
        }
        let examples = file.examples.iter().map(|one| (user_message(&one.input), user_message(&one.output)));
        Some(ModelAgent {
            endpoints,
            others,
            chosen: OnceLock::new(),
            summary_model: summary.unwrap_or(0),
            instruction,
            skills,
            examples: examples.collect(),
            tools,
            lock,
            lock_path,
            doubts,
            conditions,
            mode: output_mode(file.output.mode),
            repairs: file.output.repairs,
            budget: budget(file),
            compaction: CompactionSpec { at: file.compact.at, keep_turns: file.compact.keep_turns },
            fallback: fallback(&file.fallback_on),
            taint: match file.taint {
                TaintEntry::Approve => TaintRule::Approve,
                TaintEntry::Deny => TaintRule::Deny,
                TaintEntry::Allow => TaintRule::Allow,
            },
            on_unknown: match file.on_unknown {
                UnknownEntry::Tell => UnknownRule::Tell,
                UnknownEntry::Ask => UnknownRule::Ask,
                UnknownEntry::Fail => UnknownRule::Fail,
            },
            session: file.session.map(|session| SessionRule { keep: session.keep.0, turns: session.turns }),
            digest: sha256(text),
            log_keep: self.log_keep(file),
        })
    }

    /// Returns the retention of conversation logs. It must exceed the longest conversation, because
    /// a log without its first records is unusable.
    fn log_keep(&mut self, file: &ModelFile) -> std::time::Duration {
        let keep = file.log.keep.0;
        let budget = budget(file);
        let longest = std::time::Duration::from_millis(budget.wall_ms.saturating_add(budget.waiting_ms));
        if keep < longest {
            let seconds = longest.as_secs();
            self.complain(
                "/log/keep",
                format!("a conversation can last {seconds} s (budget.wall plus budget.waiting); keep its log at least as long"),
            );
        }
        keep
    }

    /// Returns the models of `models.yaml` and of the file; those of the file take precedence.
    fn models(&mut self, file: &ModelFile) -> Option<BTreeMap<String, ModelEntry>> {
        let own = file.models.clone();
        if self.named_files == NamedFiles::Absent {
            let mut models = scripted_models(&file.r#use);
            models.extend(own.unwrap_or_default());
            return Some(models);
        }
        let path = self.folder.join(MODELS_FILE);
        if own.is_some() && !path.exists() {
            return own;
        }
        let problem = match self.named_files.read_text(&path, MAX_NAMED_FILE) {
            Err(error) if own.is_some() => format!("{MODELS_FILE} next to this file cannot be read: {error}"),
            Err(error) => format!(
                "the file has no `models`, and {MODELS_FILE} next to this file cannot be read: {error}"
            ),
            Ok(text) => match read_models(&text) {
                Ok(mut models) => {
                    models.extend(own.unwrap_or_default());
                    return Some(models);
                }
                Err(problem) => format!("{MODELS_FILE}: {problem}"),
            },
        };
        self.complain("", problem);
        None
    }

    fn endpoint(&mut self, alias: &str, entry: &ModelEntry) -> Option<ModelEndpoint> {
        let at = format!("/models/{}", escape_key(alias));
        let before = self.found.len();
        let provider = match entry.provider {
            ProviderName::Openai => Provider::OpenAi,
            ProviderName::Anthropic => Provider::Anthropic,
            ProviderName::Gemini => Provider::Gemini,
            ProviderName::Script => Provider::Script,
        };
        let script = self.script(&at, entry);
        if provider != Provider::Script && entry.model.is_empty() {
            self.complain(&at, "`model` is required: the name of the model at its provider");
        }
        let key = entry.key.as_deref().and_then(|key| self.key(&format!("{at}/key"), key));
        let url = entry.url.as_deref().unwrap_or(default_address(provider)).trim_end_matches('/').to_owned();
        if provider != Provider::Script
            && let Some(problem) = wrong_address(&url)
        {
            self.complain(format!("{at}/url"), problem);
        }
        let headers = self.headers(&at, entry);
        let caps = entry.caps;
        let is_original = url == default_address(provider);
        if self.found.len() > before {
            return None;
        }
        Some(ModelEndpoint {
            spec: ModelSpec {
                alias: alias.to_owned(),
                provider,
                model: entry.model.clone(),
                context: entry.context.unwrap_or(USUAL_CONTEXT),
                max_output: entry.max_output.unwrap_or(USUAL_MAX_OUTPUT),
                bounds: FormBounds { text: entry.bounds.text, items: entry.bounds.items },
                abilities: ModelAbilities {
                    tools: match caps.tools {
                        None | Some(ToolAbilityName::Native) => ToolAbility::Native,
                        Some(ToolAbilityName::Schema) => ToolAbility::Schema,
                        Some(ToolAbilityName::None) => ToolAbility::None,
                    },
                    schema: match caps.schema {
                        // Anthropic's models use a final tool for schemas by default.
                        None if provider == Provider::Anthropic => SchemaAbility::None,
                        None | Some(SchemaAbilityName::Native) => SchemaAbility::Native,
                        Some(SchemaAbilityName::Json) => SchemaAbility::Json,
                        Some(SchemaAbilityName::None) => SchemaAbility::None,
                    },
                    stream: caps.stream.unwrap_or(true),
                    parallel: caps.parallel.unwrap_or(true),
                },
                temperature: entry.settings.temperature,
                seed: entry.settings.seed,
                reasoning: entry.settings.reasoning.clone(),
                extra: entry.settings.extra.clone(),
                price: entry.price.map(|price| TokenPrice {
                    input: price.input,
                    output: price.output,
                    cached: price.cached,
                }),
                retries: entry.retry.limit,
                is_original,
            },
            url,
            key,
            headers,
            allow_private: entry.allow_private,
            first: entry.timeout.first.0,
            idle: entry.timeout.idle.0,
            total: entry.timeout.total.0,
            script,
            client: OnceLock::new(),
            quirks: Mutex::default(),
        })
    }

    fn script(&mut self, at: &str, entry: &ModelEntry) -> Option<ModelScript> {
        let is_script = entry.provider == ProviderName::Script;
        match &entry.answers {
            Some(_) if !is_script => {
                self.complain(format!("{at}/answers"), "only a model with `provider: script` has answers");
                None
            }
            Some(answers) => match ModelScript::read(answers) {
                Ok(script) => Some(script),
                Err(bad) => {
                    self.complain(format!("{at}/answers/{}", bad.index), bad.problem);
                    None
                }
            },
            None => is_script.then(ModelScript::echo),
        }
    }

    /// Parses a key: exactly one environment variable, because a key in a file ends up in a repository.
    fn key(&mut self, at: &str, key: &str) -> Option<Template> {
        match Template::parse(key) {
            Ok(template) if matches!(template.pieces(), [TemplatePiece::Env { .. }]) => Some(template),
            Ok(_) => {
                self.complain(at, "a key must come from the environment: write ${env:NAME}");
                None
            }
            Err(problem) => {
                self.complain(at, problem);
                None
            }
        }
    }

    fn headers(&mut self, at: &str, entry: &ModelEntry) -> Vec<(HeaderName, Template)> {
        let mut headers = Vec::new();
        for (name, value) in &entry.headers {
            let place = format!("{at}/headers/{}", escape_key(name));
            let header = match HeaderName::from_str(name) {
                Ok(header) if is_connection_header(header.as_str()) => {
                    self.complain(place, format!("header '{header}' is set by the client"));
                    continue;
                }
                Ok(header) => header,
                Err(_) => {
                    self.complain(place, "this is not a valid header name");
                    continue;
                }
            };
            match Template::parse(value) {
                Ok(template)
                    if template.pieces().iter().all(|piece| !matches!(piece, TemplatePiece::Value(_))) =>
                {
                    headers.push((header, template));
                }
                Ok(_) => self.complain(place, "headers of a model cannot contain data"),
                Err(problem) => self.complain(place, problem),
            }
        }
        headers
    }

    /// Requires prices for a cost budget, which is ineffective without them.
    fn check_prices(&mut self, file: &ModelFile, models: &BTreeMap<String, ModelEntry>) {
        let Some(cost) = file.budget.cost_usd else { return };
        if !(cost.is_finite() && cost > 0.0) {
            self.complain("/budget/cost_usd", "the budget must be greater than zero");
        }
        let unpriced =
            models.iter().filter(|(_, entry)| entry.price.is_none()).map(|(alias, _)| alias.clone());
        for alias in unpriced.collect::<Vec<_>>() {
            self.complain(
                "/budget/cost_usd",
                format!("cost_usd requires the price of every model; '{alias}' has none"),
            );
        }
    }

    fn instruction(&mut self, file: &ModelFile) -> InstructionTemplate {
        let (at, text) = match (&file.instruction, &file.instruction_file) {
            (Some(_), Some(_)) => {
                self.complain("/instruction_file", "give either instruction or instruction_file");
                return InstructionTemplate::default();
            }
            (Some(text), None) => ("/instruction", text.clone()),
            (None, Some(name)) => match self.named_files.read_text(&self.folder.join(name), MAX_NAMED_FILE) {
                Ok(text) => ("/instruction_file", text),
                Err(error) => {
                    self.complain("/instruction_file", format!("cannot read '{name}': {error}"));
                    return InstructionTemplate::default();
                }
            },
            (None, None) => return InstructionTemplate::default(),
        };
        InstructionTemplate::parse(&text).unwrap_or_else(|problem| {
            self.complain(at, problem);
            InstructionTemplate::default()
        })
    }

    fn skills(&mut self, file: &ModelFile) -> Vec<SkillText> {
        let mut skills: Vec<SkillText> = Vec::new();
        for (index, folder) in file.skills.iter().enumerate() {
            let at = format!("/skills/{index}");
            let path = self.folder.join(folder).join("SKILL.md");
            match self.named_files.read_text(&path, MAX_NAMED_FILE) {
                Ok(text) => {
                    let skill = skill_of(folder, &text);
                    if skills.iter().any(|known| known.name == skill.name) {
                        self.complain(at, format!("two skills are called '{}'", skill.name));
                    } else {
                        skills.push(skill);
                    }
                }
                Err(error) => self.complain(at, format!("cannot read '{}': {error}", path.display())),
            }
        }
        skills
    }
}

/// Returns scripted models in place of those of a file that was not posted; cases define the answers.
fn scripted_models(aliases: &[String]) -> BTreeMap<String, ModelEntry> {
    let scripted = || serde_json::from_value(serde_json::json!({ "provider": "script" })).ok();
    aliases.iter().filter_map(|alias| Some((alias.clone(), scripted()?))).collect()
}

/// Parses `models.yaml`: models by alias.
fn read_models(text: &str) -> Result<BTreeMap<String, ModelEntry>, String> {
    let options = sinew_source::LoadOptions {
        name: MODELS_FILE,
        variables: sinew_source::Variables::Kept,
        read: &|_| Err("this file may not include another".to_owned()),
        limits: Limits::default(),
    };
    let document = sinew_source::load(text.as_bytes(), &options)
        .map_err(|found| sinew_source::render_text(&found, false).trim().to_owned())?;
    let schema = Schema::compile(&schemars::schema_for!(BTreeMap<String, ModelEntry>).into())
        .map_err(|error| error.to_string())?;
    let mut found = sinew_source::Diagnostics::new(document.sources.clone());
    found.extend(sinew_source::check_node(&schema, &document.root));
    if found.has_errors() {
        return Err(sinew_source::render_text(&found, false).trim().to_owned());
    }
    serde_json::from_value(document.root.to_json()).map_err(|error| error.to_string())
}

/// Parses a `SKILL.md`, whose front matter between two lines of `---` has name and description.
fn skill_of(folder: &str, text: &str) -> SkillText {
    let last = Path::new(folder).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut skill = SkillText {
        name: last.unwrap_or_else(|| folder.to_owned()),
        description: String::new(),
        body: text.to_owned(),
    };
    let Some((head, body)) = text.strip_prefix("---").and_then(|rest| rest.split_once("\n---")) else {
        return skill;
    };
    for line in head.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().trim_matches(['"', '\'']);
        match key {
            "name" => value.clone_into(&mut skill.name),
            "description" => value.clone_into(&mut skill.description),
            _ => {}
        }
    }
    body.trim_start_matches('-').trim().clone_into(&mut skill.body);
    skill
}

fn wrong_address(url: &str) -> Option<String> {
    match Url::parse(url) {
        Err(error) => Some(error.to_string()),
        Ok(parsed) if !matches!(parsed.scheme(), "http" | "https") => {
            Some("it must begin with http:// or https://".to_owned())
        }
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            Some("it must not contain credentials; use key or a header with ${env:NAME}".to_owned())
        }
        Ok(_) if url.contains("${") || url.contains("{{") => {
            Some("the address is taken literally".to_owned())
        }
        Ok(_) if url.contains(['?', '#']) => Some("it must contain neither '?' nor '#'".to_owned()),
        Ok(_) => None,
    }
}

fn output_mode(name: OutputModeName) -> OutputMode {
    match name {
        OutputModeName::Auto => OutputMode::Auto,
        OutputModeName::Native => OutputMode::Native,
        OutputModeName::Tool => OutputMode::Tool,
        OutputModeName::Text => OutputMode::Text,
        OutputModeName::Marker => OutputMode::Marker,
    }
}

fn fallback(classes: &[FallbackClass]) -> FallbackRule {
    let has = |class| classes.contains(&class);
    FallbackRule {
        unavailable: has(FallbackClass::Unavailable),
        limited: has(FallbackClass::Limited),
        filtered: has(FallbackClass::Filtered),
        refused: has(FallbackClass::Refused),
    }
}

fn budget(file: &ModelFile) -> BudgetSpec {
    let given = &file.budget;
    let milliseconds = |time: crate::file_time::Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
    BudgetSpec {
        turns: given.turns,
        tool_calls: given.tool_calls,
        parallel: given.parallel,
        input_tokens: given.input_tokens,
        output_tokens: given.output_tokens,
        cost_usd: given.cost_usd,
        wall_ms: milliseconds(given.wall),
        waiting_ms: milliseconds(given.waiting),
        repeats: given.repeats,
        last_word: given.last_word,
    }
}
