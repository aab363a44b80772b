//! The audit of a mesh, from the streams that store changes: commands to executions, deployments, keys and
//! webhook triggers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sinew_documents::audit::{AuditEntry, AuditReport};
use sinew_documents::execution::caller;
use sinew_documents::words;
use sinew_mesh::HeaderMap;
use sinew_mesh::changes::{ChangeKind, StoredChange};
use sinew_protocol::access::AccessKey;
use sinew_protocol::catalogue_record::CatalogueRecord;
use sinew_protocol::command::Command;
use sinew_protocol::deployment::Deployment;
use sinew_protocol::subject::AccessKind;
use sinew_protocol::webhook::WebhookTrigger;
use sinew_protocol::{Subject, Token, header};

use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;

/// Maximum number of changes that are kept while they are read; the newest stay.
const MAX_READ: usize = 50_000;
/// Maximum length of a reason.
const MAX_WHY: usize = 1_000;
/// Name of an unknown caller.
const UNKNOWN: &str = "-";

/// Which changes an audit lists. Empty fields match everything.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only changes since this time, milliseconds since 1970 UTC.
    pub since: u64,
    /// Only changes of this caller.
    pub who: Option<String>,
    /// Only changes with this word in what was done or in its target.
    pub what: Option<String>,
    /// Maximum number of changes.
    pub limit: usize,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let given = |filter: &Option<String>| filter.clone().filter(|text| !text.is_empty());
        entry.at.ms() >= self.since
            && given(&self.who).is_none_or(|who| who == entry.who)
            && given(&self.what).is_none_or(|what| entry.what.contains(&what) || entry.target == what)
    }
}

impl MeshOperator {
    /// Lists the changes of the mesh that match, newest first. Kinds of changes that the user may not read
    /// are named.
    ///
    /// # Errors
    /// Fails if the mesh does not respond, or the user may read none of the changes.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<AuditReport, Failure> {
        let mut report = AuditReport { is_whole: true, ..AuditReport::default() };
        let mut denied = None;
        let mut names: BTreeMap<Token, String> = BTreeMap::new();
        for kind in ChangeKind::ALL {
            let rows = &mut report.rows;
            let is_whole = &mut report.is_whole;
            let read = self.mesh().visit_changes(kind, filter.since, |change| {
                rows.extend(entries(&change, &mut names).into_iter().filter(|entry| filter.takes(entry)));
                if rows.len() > 2 * MAX_READ {
                    *is_whole = false;
                    rows.sort_by_key(|row| Reverse(row.at));
                    rows.truncate(MAX_READ);
                }
            });
            match read.await.map_err(Failure::from) {
                Ok(()) => {}
                Err(failure) if failure.kind == FailureKind::Denied => {
                    report.unread.push(word(kind).to_owned());
                    denied = Some(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        if let Some(denied) = denied.filter(|_| report.unread.len() == ChangeKind::ALL.len()) {
            return Err(denied);
        }
        report.rows.sort_by_key(|row| Reverse(row.at));
        report.is_whole &= report.rows.len() <= filter.limit;
        report.rows.truncate(filter.limit);
        Ok(report)
    }
}

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Commands => "commands",
        ChangeKind::Deployments => "deployments",
        ChangeKind::Keys => "keys",
        ChangeKind::Hooks => "hooks",
        ChangeKind::Entries => "catalogue",
    }
}

/// Returns the entries of a stored change; none for one that cannot be read. `names` has the names of
/// workflows by their tokens, because the removal of a workflow has no name.
fn entries(change: &StoredChange, names: &mut BTreeMap<Token, String>) -> Vec<AuditEntry> {
    let origin = |who: Option<String>, at: u64| of_origin(&change.headers, who, at);
    match &change.subject {
        Subject::Command { operation, caller: sender, id, .. } => {
            let Ok(command) = Command::read(*operation, id, &change.body) else { return Vec::new() };
            let entry = origin(Some(caller(sender)), change.at);
            vec![of_command(entry, &command)]
        }
        Subject::Workflow { name } => match Deployment::read(&change.body) {
            _ if change.body.is_empty() => {
                let target = names.get(name).cloned().unwrap_or_else(|| caller(name));
                vec![AuditEntry { what: "delete".to_owned(), target, ..origin(None, change.at) }]
            }
            Ok(deployed) => {
                names.insert(name.clone(), deployed.name.clone());
                let entry = origin(Some(deployed.by), change.at);
                let detail = words::short(&deployed.digest).to_owned();
                vec![AuditEntry { what: "deploy".to_owned(), target: deployed.name, detail, ..entry }]
            }
            Err(_) => Vec::new(),
        },
        Subject::Access { kind: AccessKind::Key, id } => {
            AccessKey::read(id, &change.body).map(|key| of_key(&key, &origin)).unwrap_or_default()
        }
        Subject::Access { kind: AccessKind::Hook, id } => match WebhookTrigger::read(id, &change.body) {
            _ if change.body.is_empty() => {
                let entry = origin(None, change.at);
                vec![AuditEntry { what: "delete hook".to_owned(), target: caller(id), ..entry }]
            }
            Ok(trigger) => {
                let entry = origin(Some(trigger.created_by), change.at);
                let (target, detail) = (trigger.name.to_string(), trigger.workflow);
                vec![AuditEntry { what: "deploy hook".to_owned(), target, detail, ..entry }]
            }
            Err(_) => Vec::new(),
        },
        Subject::Access { kind: AccessKind::Entry, id } => match CatalogueRecord::read(id, &change.body) {
            _ if change.body.is_empty() => {
                let entry = origin(None, change.at);
                vec![AuditEntry { what: "clear catalogue".to_owned(), target: caller(id), ..entry }]
            }
            Ok(record) => {
                let entry = origin(Some(record.set_by.clone()), change.at);
                let detail = entry_marks(&record);
                vec![AuditEntry { what: "set catalogue".to_owned(), target: record.name, detail, ..entry }]
            }
            Err(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Names what a record of the catalogue sets.
fn entry_marks(record: &CatalogueRecord) -> String {
    let marks = [
        record.pinned.then(|| "pinned".to_owned()),
        record.hidden.then(|| "hidden".to_owned()),
        record.stage.map(|stage| stage.name().to_owned()),
        record.replaced_by.as_ref().map(|name| format!("use {name}")),
    ];
    marks.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The part of an entry that states its origin. A caller in the subject or body comes before the one of the
/// headers.
fn of_origin(headers: &HeaderMap, who: Option<String>, at: u64) -> AuditEntry {
    let text = |name: &str| {
        let value = headers.get(name).map(|value| words::one_line(value.as_str(), 100));
        value.unwrap_or_default()
    };
    let stated = Token::parse(&text(header::CALLER)).ok().map(|token| caller(&token));
    AuditEntry {
        at: at.into(),
        who: who.or(stated).map_or_else(|| UNKNOWN.to_owned(), |who| words::one_line(&who, 100)),
        unproven: text(header::PROVEN) != "true",
        what: String::new(),
        target: String::new(),
        detail: String::new(),
        why: String::new(),
        via: text(header::VIA),
        key: text(header::KEY),
    }
}

fn of_command(entry: AuditEntry, command: &Command) -> AuditEntry {
    let (what, detail, why) = match command {
        Command::Cancel(one) => ("cancel", String::new(), one.reason.as_str()),
        Command::Pause(one) => ("pause", String::new(), one.reason.as_str()),
        Command::Resume(_) => ("resume", String::new(), ""),
        Command::Retry(one) => ("retry", one.nodes.join(", "), one.reason.as_str()),
        Command::Approve(one) => {
            let what = if one.reject { "reject" } else { "approve" };
            (what, one.node.clone().unwrap_or_default(), one.comment.as_deref().unwrap_or_default())
        }
        Command::Start(_) => ("start", String::new(), ""),
        Command::Wait(_) => ("wait", String::new(), ""),
    };
    let target = command.execution().to_string();
    let detail = words::one_line(&detail, MAX_WHY);
    AuditEntry { what: what.to_owned(), target, detail, why: words::one_line(why, MAX_WHY), ..entry }
}

/// Returns the creation of a key, and its revocation. The record is that of the last change.
fn of_key(key: &AccessKey, origin: &dyn Fn(Option<String>, u64) -> AuditEntry) -> Vec<AuditEntry> {
    let entry = |what: &str, entry: AuditEntry| AuditEntry {
        what: what.to_owned(),
        target: key.name.clone(),
        detail: key.id.to_string(),
        ..entry
    };
    let created = origin(Some(key.created_by.clone()), key.created_at);
    match key.revoked_at {
        None => vec![entry("create key", created)],
        Some(at) => {
            // The headers are those of the revocation.
            let created = AuditEntry { unproven: true, via: String::new(), key: String::new(), ..created };
            vec![entry("create key", created), entry("revoke key", origin(None, at))]
        }
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::command::{ApproveCommand, CancelCommand};
    use sinew_protocol::origin::{ChangeOrigin, EntryPoint};
    use sinew_protocol::{ExecutionId, subject::Operation};

    use super::*;

    fn stored(subject: Subject, body: &str, origin: Option<ChangeOrigin>) -> StoredChange {
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            for (name, value) in origin.headers(&Token::of("ann")) {
                headers.insert(name, value);
            }
        }
        StoredChange { subject, at: 5_000, headers, body: body.to_owned().into() }
    }

    fn read(change: &StoredChange) -> AuditEntry {
        entries(change, &mut BTreeMap::new()).remove(0)
    }

    #[test]
    fn commands_have_their_caller_reason_and_origin() {
        let execution = ExecutionId::parse("e1").unwrap();
        let command = |operation, command: Command, origin| {
            let (caller, id) = (Token::of("eve"), Token::of("c1"));
            let subject = Subject::Command { shard: 0, operation, caller, id };
            read(&stored(subject, &command.to_json(), origin))
        };
        let cancel = || {
            Command::Cancel(CancelCommand { execution: execution.clone(), reason: "wrong night".to_owned() })
        };
        let entry = command(Operation::Cancel, cancel(), None);
        assert_eq!((entry.who.as_str(), entry.what.as_str(), entry.target.as_str()), ("eve", "cancel", "e1"));
        assert_eq!((entry.why.as_str(), entry.unproven, entry.via.as_str()), ("wrong night", true, ""));
        let console = ChangeOrigin { via: EntryPoint::Console, key: Some(Token::of("k1")), is_proven: true };
        let reject = Command::Approve(ApproveCommand {
            execution: execution.clone(),
            node: Some("ask".to_owned()),
            activation: None,
            data: serde_json::Value::Null,
            comment: Some("too dear".to_owned()),
            reject: true,
            member: None,
        });
        let entry = command(Operation::Approve, reject, Some(console));
        assert_eq!(
            (entry.what.as_str(), entry.detail.as_str(), entry.why.as_str()),
            ("reject", "ask", "too dear")
        );
        assert_eq!((entry.unproven, entry.via.as_str(), entry.key.as_str()), (false, "console", "k1"));
        let claimed = ChangeOrigin { via: EntryPoint::Cli, key: None, is_proven: false };
        let entry = command(Operation::Cancel, cancel(), Some(claimed));
        assert_eq!((entry.unproven, entry.via.as_str()), (true, "cli"));
    }

    #[test]
    fn removals_are_those_of_the_stated_caller() {
        let origin = ChangeOrigin { via: EntryPoint::Rest, key: None, is_proven: true };
        let entry = read(&stored(Subject::Workflow { name: Token::of("invoice") }, "", Some(origin)));
        assert_eq!(
            (entry.who.as_str(), entry.what.as_str(), entry.target.as_str()),
            ("ann", "delete", "invoice")
        );
        let hook = Subject::Access { kind: AccessKind::Hook, id: Token::of("pushes") };
        let entry = read(&stored(hook, "", None));
        assert_eq!((entry.who.as_str(), entry.what.as_str(), entry.unproven), ("-", "delete hook", true));
        assert!(
            entries(&stored(Subject::Workflow { name: Token::of("x") }, "{", None), &mut BTreeMap::new())
                .is_empty()
        );
    }

    #[test]
    fn entries_are_filtered() {
        let entry = read(&stored(Subject::Workflow { name: Token::of("invoice") }, "", None));
        let check = |since: u64, who: &str, what: &str, expected: bool| {
            let text = |text: &str| Some(text.to_owned());
            let filter = AuditFilter { since, who: text(who), what: text(what), limit: 1 };
            assert_eq!(filter.takes(&entry), expected, "{since} {who} {what}");
        };
        check(0, "", "", true);
        check(5_000, "-", "delete", true);
        check(0, "", "invoice", true);
        check(5_001, "", "", false);
        check(0, "ann", "", false);
        check(0, "", "deploy", false);
    }
}
