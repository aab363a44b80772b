//! The filter of executions: one type and one language for flags, queries, the search box and bulk
//! operations.
//!
//! A filter is a list of terms: `status:failed workflow:orders key:order-17 "no route"`. Terms of
//! different keys must all match. A row in a list decides most terms; texts of inputs, outputs and
//! errors need the record.

use std::fmt;

use sinew_protocol::Token;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::query::ExecutionStatus;
use sinew_source::duration::{DURATION_EXAMPLES, parse_duration};

use crate::execution_list::ExecutionRow;
use crate::timestamp::Timestamp;
use crate::words::{self, status_word};

/// Maximum size of a filter, in bytes.
pub const MAX_FILTER_BYTES: usize = 4 << 10;
/// Maximum number of terms of a filter.
pub const MAX_TERMS: usize = 32;
/// Keys of terms.
pub const KEYS: [&str; 18] = [
    "status", "workflow", "version", "label", "key", "caller", "user", "session", "parent", "agent", "node",
    "waiting", "error", "input", "output", "since", "until", "text",
];

/// Error for an invalid filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter(String);

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFilter {}

/// A filter of executions. Empty lists match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// Statuses, one of which the execution has.
    pub status: Vec<ExecutionStatus>,
    /// Names of workflows.
    pub workflow: Vec<String>,
    /// Digests of plans, or prefixes of them.
    pub versions: Vec<String>,
    /// Labels, all of which the execution has.
    pub labels: Vec<(String, String)>,
    /// Idempotency keys.
    pub keys: Vec<String>,
    /// Callers who started the execution.
    pub callers: Vec<String>,
    /// Users on whose behalf it runs.
    pub users: Vec<String>,
    /// Sessions.
    pub sessions: Vec<String>,
    /// Ids of executions that called it, or prefixes of them.
    pub parents: Vec<String>,
    /// Agents or workflows, all of which it called.
    pub agents: Vec<String>,
    /// Nodes, one of which failed or waits.
    pub nodes: Vec<String>,
    /// What it waits for: `agent`, `person`, `timer` and the other kinds of waits, or the name of an
    /// agent.
    pub waits: Vec<String>,
    /// Codes of errors, or parts of their messages.
    pub errors: Vec<String>,
    /// Parts of the input as JSON, regardless of case.
    pub inputs: Vec<String>,
    /// Parts of the output as JSON, regardless of case.
    pub outputs: Vec<String>,
    /// Started at or after, milliseconds since 1970 UTC.
    pub since: Option<u64>,
    /// Started before, milliseconds since 1970 UTC.
    pub until: Option<u64>,
    /// Texts, each of which occurs in its id, key, names, labels, error, input or output.
    pub texts: Vec<String>,
    /// Token of the caller whose executions alone are visible. Not part of the language.
    pub owner: Option<String>,
}

/// What a filter compares of an execution in a list.
#[derive(Clone, Copy, Debug)]
pub struct FilteredRow<'a> {
    /// Id of the execution.
    pub execution: &'a str,
    /// Name of the workflow.
    pub workflow: &'a str,
    /// Status of the execution.
    pub status: ExecutionStatus,
    /// Start, milliseconds since 1970 UTC.
    pub started: u64,
    /// Caller: name, or token of a subject.
    pub caller: &'a str,
    /// Digest of the plan, if known.
    pub plan: Option<&'a str>,
    /// Code of the error that ended it.
    pub error_code: Option<&'a str>,
    /// What it waits for; see [`ExecutionRow::waits_for`].
    pub waits_for: &'a [String],
    /// Its attributes.
    pub attributes: &'a ExecutionAttributes,
}

impl<'a> From<&'a ExecutionRow> for FilteredRow<'a> {
    fn from(row: &'a ExecutionRow) -> Self {
        Self {
            execution: &row.execution,
            workflow: &row.workflow,
            status: row.status,
            started: row.started.ms(),
            caller: &row.caller,
            plan: row.plan.as_deref(),
            error_code: row.fault.as_ref().map(|fault| fault.code.as_str()),
            waits_for: &row.waits_for,
            attributes: &row.attributes,
        }
    }
}

/// What only the record of an execution contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilteredRecord {
    /// Input, as JSON in lower case.
    pub input: String,
    /// Output, as JSON in lower case.
    pub output: String,
    /// Messages and codes of its errors, in lower case.
    pub errors: String,
    /// Nodes that failed or wait.
    pub nodes: Vec<String>,
}

impl ExecutionFilter {
    /// Parses a filter; durations in `since:` and `until:` count back from `now`.
    ///
    /// # Errors
    /// An unknown key, an invalid value, an open quotation mark, or more than [`MAX_TERMS`] terms or
    /// [`MAX_FILTER_BYTES`].
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, BadFilter> {
        let mut filter = Self::default();
        for (key, value) in filter_terms(text)? {
            filter.add(key, &value, now)?;
        }
        Ok(filter)
    }

    /// Adds a term. Values of `status`, `workflow`, `label` and `error` may be several, separated by
    /// commas.
    ///
    /// # Errors
    /// An unknown key, or an invalid value.
    pub fn add(&mut self, key: &str, value: &str, now: Timestamp) -> Result<(), BadFilter> {
        let parts = || value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let list = match key {
            "status" => {
                for word in parts() {
                    let found = ExecutionStatus::ALL
                        .into_iter()
                        .find(|one| one.as_str() == word || status_word(*one) == word);
                    self.status.push(found.ok_or_else(|| {
                        let all = ExecutionStatus::ALL.map(status_word).join(", ");
                        BadFilter(format!("status: {word:?} is not one of {all}"))
                    })?);
                }
                return Ok(());
            }
            "label" => {
                for pair in parts() {
                    let (key, value) = pair
                        .split_once('=')
                        .ok_or_else(|| BadFilter("label: expected KEY=VALUE".to_owned()))?;
                    self.labels.push((key.to_owned(), value.to_owned()));
                }
                return Ok(());
            }
            "since" | "until" => {
                let time = if value.is_empty() { None } else { Some(time_of(key, value, now)?) };
                *(if key == "since" { &mut self.since } else { &mut self.until }) = time;
                return Ok(());
            }
            "workflow" => &mut self.workflow,
            "error" if value.contains(' ') => return self.add_one("error", value),
            "error" => &mut self.errors,
            _ => return self.add_one(key, value),
        };
        list.extend(parts().map(str::to_owned));
        Ok(())
    }

    fn add_one(&mut self, key: &str, value: &str) -> Result<(), BadFilter> {
        let list = match key {
            "version" => &mut self.versions,
            "key" => &mut self.keys,
            "caller" => &mut self.callers,
            "user" => &mut self.users,
            "session" => &mut self.sessions,
            "parent" => &mut self.parents,
            "agent" => &mut self.agents,
            "node" => &mut self.nodes,
            "waiting" => &mut self.waits,
            "error" => &mut self.errors,
            "input" => &mut self.inputs,
            "output" => &mut self.outputs,
            "text" => &mut self.texts,
            _ => {
                let text =
                    format!("{key:?} is not one of {}; put a text in quotation marks", KEYS.join(", "));
                return Err(BadFilter(text));
            }
        };
        if !value.is_empty() {
            list.push(value.to_owned());
        }
        Ok(())
    }

    /// Returns whether the filter matches every execution.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether some rows can only be decided with their records.
    pub fn needs_records(&self) -> bool {
        let is_text = |error: &String| !is_code(error);
        !(self.inputs.is_empty() && self.outputs.is_empty() && self.texts.is_empty() && self.nodes.is_empty())
            || self.errors.iter().any(is_text)
    }

    /// Returns whether the filter compares attributes, which rows of older releases lack.
    pub fn needs_attributes(&self) -> bool {
        !self.labels.is_empty()
            || [&self.keys, &self.users, &self.sessions, &self.parents, &self.agents]
                .into_iter()
                .any(|values| !values.is_empty())
    }

    /// Returns whether a row matches; `None` if only the record decides.
    pub fn takes(&self, row: &FilteredRow<'_>) -> Option<bool> {
        self.decide(row, None)
    }

    /// Returns whether an execution matches whose record was read. Attributes and error of the row
    /// are those of the record.
    pub fn takes_record(&self, row: &FilteredRow<'_>, record: &FilteredRecord) -> bool {
        self.decide(row, Some(record)).unwrap_or(false)
    }

    fn decide(&self, row: &FilteredRow<'_>, record: Option<&FilteredRecord>) -> Option<bool> {
        let any = |wanted: &[String], is: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|one| is(one))
        };
        let is_caller = |name: &str| name == row.caller || Token::of(name).as_str() == row.caller;
        let waits = |wanted: &str| row.waits_for.iter().any(|wait| is_wait(wait, wanted));
        let is_certain = (self.status.is_empty() || self.status.contains(&row.status))
            && any(&self.workflow, &|name| name == row.workflow)
            && any(&self.versions, &|digest| row.plan.is_some_and(|plan| plan.starts_with(digest)))
            && any(&self.callers, &is_caller)
            && self
                .owner
                .as_ref()
                .is_none_or(|owner| owner == row.caller || Token::of(row.caller).as_str() == owner)
            && any(&self.waits, &waits)
            && self.since.is_none_or(|since| row.started >= since)
            && self.until.is_none_or(|until| row.started < until);
        if !is_certain {
            return Some(false);
        }
        [self.takes_attributes(row), self.takes_error(row, record), self.takes_texts(row, record)]
            .into_iter()
            .reduce(and)
            .flatten()
    }

    fn takes_attributes(&self, row: &FilteredRow<'_>) -> Option<bool> {
        let has = row.attributes;
        let any = |wanted: &[String], is: &dyn Fn(&str) -> bool| {
            wanted.is_empty() || wanted.iter().any(|one| is(one))
        };
        let is_match = self.labels.iter().all(|(key, value)| has.labels.get(key) == Some(value))
            && any(&self.keys, &|key| has.idempotency_key.as_deref() == Some(key))
            && any(&self.users, &|user| has.user == user)
            && any(&self.sessions, &|session| has.session == session)
            && any(&self.parents, &|id| has.parent.as_ref().is_some_and(|parent| parent.starts_with(id)))
            && self.agents.iter().all(|name| has.called.contains(name));
        if is_match {
            Some(true)
        } else if has.incomplete {
            None
        } else {
            Some(false)
        }
    }

    fn takes_error(&self, row: &FilteredRow<'_>, record: Option<&FilteredRecord>) -> Option<bool> {
        if self.errors.is_empty() || self.errors.iter().any(|error| row.error_code == Some(error)) {
            return Some(true);
        }
        let mut texts = self.errors.iter().filter(|error| !is_code(error)).peekable();
        if texts.peek().is_none()
            || !matches!(row.status, ExecutionStatus::Failure | ExecutionStatus::Cancelled)
        {
            return Some(false);
        }
        let record = record?;
        Some(texts.any(|text| record.errors.contains(&text.to_lowercase())))
    }

    fn takes_texts(&self, row: &FilteredRow<'_>, record: Option<&FilteredRecord>) -> Option<bool> {
        let unknown: Vec<String> =
            self.texts.iter().map(|text| text.to_lowercase()).filter(|text| !has_text(row, text)).collect();
        if self.nodes.is_empty() && self.inputs.is_empty() && self.outputs.is_empty() && unknown.is_empty() {
            return Some(true);
        }
        let record = record?;
        let all =
            |texts: &[String], within: &str| texts.iter().all(|text| within.contains(&text.to_lowercase()));
        Some(
            all(&self.inputs, &record.input)
                && all(&self.outputs, &record.output)
                && (self.nodes.is_empty() || self.nodes.iter().any(|node| record.nodes.contains(node)))
                && unknown.iter().all(|text| {
                    [&record.input, &record.output, &record.errors].iter().any(|part| part.contains(text))
                }),
        )
    }
}

/// Three-valued logic: a false part decides, otherwise an unknown one.
fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn has_text(row: &FilteredRow<'_>, text: &str) -> bool {
    let has = |value: &str| value.to_lowercase().contains(text);
    let attributes = row.attributes;
    row.execution.starts_with(text)
        || [row.workflow, row.caller, &attributes.user, &attributes.session].into_iter().any(has)
        || [row.error_code, attributes.idempotency_key.as_deref()].into_iter().flatten().any(has)
        || attributes.called.iter().any(|name| has(name))
        || attributes.labels.iter().any(|(key, value)| has(&format!("{key}={value}")))
}

/// Returns whether a wait is of this kind, or for the agent or workflow with this name.
fn is_wait(wait: &str, wanted: &str) -> bool {
    wait == wanted || wait.split_once(' ').is_some_and(|(kind, name)| kind == wanted || name == wanted)
}

/// Returns whether a text is an operator code of Sinew, which headers contain.
fn is_code(text: &str) -> bool {
    text.strip_prefix("SINEW-")
        .is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn time_of(key: &str, value: &str, now: Timestamp) -> Result<u64, BadFilter> {
    let ago = parse_duration(value).and_then(|time| u64::try_from(time.as_millis()).ok());
    if let Some(ago) = ago {
        return Ok(now.ms().saturating_sub(ago));
    }
    let time = Timestamp::parse(value).map(Timestamp::ms);
    time.ok_or_else(|| {
        BadFilter(format!("{key}: expected a duration such as {DURATION_EXAMPLES}, or a time in RFC 3339"))
    })
}

/// Splits a filter into terms: key and value. A word without a key has the key `text`. Quotation
/// marks enclose spaces and colons: `error:"no route"`, `"a: b"`.
///
/// # Errors
/// See [`ExecutionFilter::parse`]; keys are not checked.
pub fn filter_terms(text: &str) -> Result<Vec<(&str, String)>, BadFilter> {
    if text.len() > MAX_FILTER_BYTES {
        return Err(BadFilter(format!("a filter has at most {MAX_FILTER_BYTES} bytes")));
    }
    let mut terms = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || c == '"' || c == ':').unwrap_or(rest.len());
        let (key, value) = match rest.as_bytes().get(end) {
            Some(b':') => (&rest[..end], &rest[end + 1..]),
            _ => ("text", rest),
        };
        let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
            let close =
                quoted.find('"').ok_or_else(|| BadFilter("a quotation mark is not closed".to_owned()))?;
            (&quoted[..close], &quoted[close + 1..])
        } else {
            value.split_at(value.find(char::is_whitespace).unwrap_or(value.len()))
        };
        terms.push((key, value.to_owned()));
        rest = after.trim_start();
    }
    if terms.len() > MAX_TERMS {
        return Err(BadFilter(format!("a filter has at most {MAX_TERMS} terms, not {}", terms.len())));
    }
    Ok(terms)
}

impl fmt::Display for ExecutionFilter {
    /// Writes the filter in its language, without its owner. A value with a quotation mark loses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses = self.status.iter().map(|status| ("status", status_word(*status).to_owned()));
        let labels = self.labels.iter().map(|(key, value)| ("label", format!("{key}={value}")));
        let times = [("since", self.since), ("until", self.until)];
        let times = times.into_iter().filter_map(|(key, ms)| Some((key, words::instant(ms?))));
        let lists = [
            ("workflow", &self.workflow),
            ("version", &self.versions),
            ("key", &self.keys),
            ("caller", &self.callers),
            ("user", &self.users),
            ("session", &self.sessions),
            ("parent", &self.parents),
            ("agent", &self.agents),
            ("node", &self.nodes),
            ("waiting", &self.waits),
            ("error", &self.errors),
            ("input", &self.inputs),
            ("output", &self.outputs),
            ("text", &self.texts),
        ];
        let lists =
            lists.into_iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value.clone())));
        let terms = statuses.chain(lists).chain(labels).chain(times).map(|(key, value)| term(key, &value));
        f.write_str(&terms.collect::<Vec<_>>().join(" "))
    }
}

/// Returns one term in the language of filters.
pub fn term(key: &str, value: &str) -> String {
    let value = value.replace('"', "");
    let needs_quotes =
        value.is_empty() || value.contains(char::is_whitespace) || (key == "text" && value.contains(':'));
    let value = if needs_quotes { format!("\"{value}\"") } else { value };
    if key == "text" { value } else { format!("{key}:{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10 * 3_600_000);

    fn attributes() -> ExecutionAttributes {
        ExecutionAttributes {
            labels: [("team".to_owned(), "a".to_owned())].into(),
            idempotency_key: Some("order-17".to_owned()),
            called: vec!["Clerk".to_owned(), "Courier".to_owned()],
            user: "ada".to_owned(),
            session: "s-1".to_owned(),
            parent: Some("x7f3aa".to_owned()),
            ..ExecutionAttributes::default()
        }
    }

    fn record() -> FilteredRecord {
        FilteredRecord {
            input: r#"{"order":"a-17"}"#.to_owned(),
            output: r#"{"paid":true}"#.to_owned(),
            errors: "sinew-5001 no route to host".to_owned(),
            nodes: vec!["ship".to_owned()],
        }
    }

    /// Decision from the row, and with the record.
    fn check(filter: &str, attributes: &ExecutionAttributes) -> (Option<bool>, bool) {
        let filter = ExecutionFilter::parse(filter, NOW).unwrap();
        let waits_for = ["agent Clerk".to_owned(), "person".to_owned()];
        let row = FilteredRow {
            execution: "b7k2",
            workflow: "orders",
            status: ExecutionStatus::Failure,
            started: 9 * 3_600_000,
            caller: "bob",
            plan: Some("3f2a91"),
            error_code: Some("SINEW-5001"),
            waits_for: &waits_for,
            attributes,
        };
        (filter.takes(&row), filter.takes_record(&row, &record()))
    }

    #[test]
    fn rows_and_records_match_terms() {
        let certain = |filter: &str, is: bool| {
            assert_eq!(check(filter, &attributes()), (Some(is), is), "{filter}");
        };
        for filter in [
            "",
            "status:failed,waiting",
            "workflow:orders",
            "workflow:a,orders",
            "version:3f2a",
            "label:team=a",
            "key:order-17",
            "caller:bob",
            "user:ada",
            "session:s-1",
            "parent:x7f3",
            "agent:Clerk agent:Courier",
            "waiting:agent",
            "waiting:Clerk",
            "waiting:person",
            "error:SINEW-5001",
            "since:2h until:30m",
            "error:SINEW-1,SINEW-5001",
            "order-17",
            "b7k",
            "ORDERS",
            "team=a",
            "since:1970-01-01T08:00:00Z",
            "status:failed workflow:orders key:order-17",
        ] {
            certain(filter, true);
        }
        for filter in [
            "status:succeeded",
            "workflow:bills",
            "version:4",
            "label:team=b",
            "key:order-1",
            "caller:eve",
            "agent:Scorer",
            "waiting:timer",
            "error:SINEW-5002",
            "since:30m",
            "until:2h",
            "parent:y",
            "status:failed key:order-18 A-17",
        ] {
            certain(filter, false);
        }
        for (filter, is) in [
            ("A-17", true),
            ("input:A-17", true),
            ("output:paid", true),
            ("output:A-17", false),
            ("node:ship", true),
            ("node:pay", false),
            ("error:\"no ROUTE\"", true),
            ("error:timeout", false),
            ("\"no route\" order-17", true),
            ("nothing", false),
        ] {
            assert_eq!(check(filter, &attributes()), (None, is), "{filter}");
        }
        let unknown = ExecutionAttributes { incomplete: true, ..ExecutionAttributes::default() };
        assert_eq!(check("key:order-17", &unknown).0, None, "the row is of an older release");
        assert_eq!(check("key:order-17 status:succeeded", &unknown).0, Some(false));
    }

    #[test]
    fn the_owner_restricts_any_filter() {
        let attributes = attributes();
        let row = |caller| FilteredRow {
            execution: "e",
            workflow: "w",
            status: ExecutionStatus::Running,
            started: 0,
            caller,
            plan: None,
            error_code: None,
            waits_for: &[],
            attributes: &attributes,
        };
        let owner = Token::of("a.b c").to_string();
        let filter = ExecutionFilter { owner: Some(owner.clone()), ..ExecutionFilter::default() };
        for (caller, is) in [("a.b c", true), (owner.as_str(), true), ("eve", false)] {
            assert_eq!(filter.takes(&row(caller)), Some(is), "{caller}");
        }
    }

    #[test]
    fn filters_read_back() {
        for text in [
            "status:failed status:waiting workflow:orders label:team=a",
            "key:order-17 error:\"no route\" \"a: b\" x since:1970-01-01T09:00:00.000Z",
        ] {
            let filter = ExecutionFilter::parse(text, NOW).unwrap();
            assert_eq!(ExecutionFilter::parse(&filter.to_string(), Timestamp(0)), Ok(filter), "{text}");
        }
        let long = format!("text:{}", "x".repeat(MAX_FILTER_BYTES));
        let many = "a ".repeat(MAX_TERMS + 1);
        for bad in ["colour:red", "status:fine", "label:team", "since:soon", "error:\"open", &long, &many] {
            assert!(ExecutionFilter::parse(bad, NOW).is_err(), "{bad}");
        }
    }
}
