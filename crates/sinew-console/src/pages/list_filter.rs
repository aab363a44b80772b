//! The filter of the list of executions, stored in the address.

use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::execution_filter::{BadFilter, ExecutionFilter, filter_terms, term};
use sinew_documents::execution_status::ExecutionStatus;
use sinew_documents::figures::ExecutionCounts;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words::status_word;
use sinew_documents::workflow::DeployedRow;
use sinew_source::duration::{DURATION_EXAMPLES, parse_duration};

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_request::PageAddress;
use crate::shown_text;
use crate::status_mark::status_mark;

/// Statuses, in the order of the filter.
const STATUSES: [ExecutionStatus; 6] = [
    ExecutionStatus::Running,
    ExecutionStatus::Waiting,
    ExecutionStatus::Paused,
    ExecutionStatus::Failure,
    ExecutionStatus::Cancelled,
    ExecutionStatus::Success,
];
/// Time spans of the filter: value and label. The search box accepts others.
const SPANS: [(&str, &str); 5] =
    [("15m", "15 minutes"), ("1h", "hour"), ("24h", "day"), ("7d", "week"), ("30d", "30 days")];
/// Columns that can be hidden: value and label.
pub(super) const COLUMNS: [(&str, &str); 6] = [
    ("started", "Started"),
    ("time", "Time"),
    ("reason", "Waiting for, or error"),
    ("models", "Models"),
    ("labels", "Labels"),
    ("caller", "Caller"),
];

/// The filter, and the columns of the table.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ListFilter {
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) workflow: String,
    #[serde(default)]
    pub(super) label: String,
    #[serde(default)]
    pub(super) since: String,
    #[serde(default)]
    pub(super) error: String,
    /// Further terms of the filter, in its language.
    #[serde(default)]
    pub(super) q: String,
    /// Hidden columns, separated by commas.
    #[serde(default)]
    pub(super) hide: String,
    #[serde(default)]
    pub(super) cursor: String,
    /// Text of the search box, which sets the other fields or names an execution.
    #[serde(default)]
    pub(super) find: String,
}

/// Target of the search box.
#[derive(Clone, Debug)]
pub(super) enum FoundTarget {
    /// The list with this filter.
    List(ListFilter),
    /// The execution whose id starts with this text; the list with this filter if there is none.
    Execution(String, ListFilter),
}

/// The comma-separated values of a parameter.
pub(super) fn comma_words(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// Removes a value if it is listed, otherwise adds it.
pub(super) fn toggled(words: &[&str], word: &str) -> String {
    let is_there = words.contains(&word);
    let rest = words.iter().copied().filter(|one| *one != word);
    rest.chain((!is_there).then_some(word)).collect::<Vec<_>>().join(",")
}

impl ListFilter {
    pub(super) fn is_empty(&self) -> bool {
        [&self.status, &self.workflow, &self.label, &self.since, &self.error, &self.q]
            .iter()
            .all(|part| part.is_empty())
    }

    /// Parses the search box: terms of [`ExecutionFilter`], such as `status:failed key:order-17
    /// since:1h`, or an id. Terms of the form's fields replace the previous filter.
    pub(super) fn target(&self) -> Result<FoundTarget, ConsoleError> {
        let mut filter =
            Self { find: String::new(), cursor: String::new(), q: String::new(), ..self.clone() };
        let bad = |error: BadFilter| ConsoleError::Input(error.to_string());
        let terms = filter_terms(&self.find).map_err(bad)?;
        let (mut labels, mut others) = (Vec::new(), Vec::new());
        for (key, value) in &terms {
            match *key {
                "status" => value.clone_into(&mut filter.status),
                "workflow" => value.clone_into(&mut filter.workflow),
                "error" if !value.contains(' ') => value.clone_into(&mut filter.error),
                "since" => value.clone_into(&mut filter.since),
                "label" => labels.push(value.as_str()),
                key => others.push(term(key, value)),
            }
        }
        if !labels.is_empty() {
            filter.label = labels.join(",");
        }
        filter.q = others.join(" ");
        // Reject invalid values here, so that the search box keeps the text.
        ExecutionFilter::parse(&self.find, Timestamp::default()).map_err(bad)?;
        Ok(match terms.as_slice() {
            [("text", word)] if !word.contains(char::is_whitespace) => {
                // The text is searched in all executions, not only in those of the current filter.
                let everywhere = Self { q: filter.q, hide: filter.hide, ..Self::default() };
                FoundTarget::Execution(word.clone(), everywhere)
            }
            _ => FoundTarget::List(filter),
        })
    }

    /// Returns true if the column is shown.
    pub(super) fn shows(&self, column: &str) -> bool {
        !comma_words(&self.hide).contains(&column)
    }

    /// API path of one page of the list.
    pub(super) fn list_path(&self, now: Timestamp, rows: &str) -> Result<ApiPath, ConsoleError> {
        let path = ApiPath::of(&["executions"]).with("limit", rows).with_some("status", Some(&self.status));
        let path = self.common(path, now)?;
        let path = path.with_some("label", Some(&self.label)).with_some("filter", Some(&self.q));
        Ok(path.with_some("cursor", Some(&self.cursor)))
    }

    /// API path of the counts per status; `None` with labels and further terms, by which executions
    /// are not counted.
    pub(super) fn counts_path(&self, now: Timestamp) -> Result<Option<ApiPath>, ConsoleError> {
        if !self.label.is_empty() || !self.q.is_empty() {
            return Ok(None);
        }
        self.common(ApiPath::of(&["execution-counts"]), now).map(Some)
    }

    fn common(&self, path: ApiPath, now: Timestamp) -> Result<ApiPath, ConsoleError> {
        let since = self.since_ms(now)?.map(|ms| ms.to_string());
        Ok(path
            .with_some("workflow", Some(&self.workflow))
            .with_some("error", Some(&self.error))
            .with_some("since", since.as_deref()))
    }

    /// Start of the listed time range in milliseconds since 1970 UTC; `None` lists all.
    fn since_ms(&self, now: Timestamp) -> Result<Option<u64>, ConsoleError> {
        if self.since.is_empty() {
            return Ok(None);
        }
        let since = parse_duration(&self.since).and_then(|since| u64::try_from(since.as_millis()).ok());
        let ms = since.ok_or_else(|| {
            ConsoleError::Input(format!("since: expected a duration such as {DURATION_EXAMPLES}"))
        })?;
        Ok(Some(now.ms().saturating_sub(ms)))
    }

    /// The filter in the language of filters, for bulk operations.
    pub(super) fn language(&self) -> String {
        let labels = comma_words(&self.label).into_iter().map(|pair| term("label", pair));
        let fields = [
            ("status", &self.status),
            ("workflow", &self.workflow),
            ("since", &self.since),
            ("error", &self.error),
        ];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let terms = fields.map(|(key, value)| term(key, value)).chain(labels);
        terms.chain((!self.q.is_empty()).then(|| self.q.clone())).collect::<Vec<_>>().join(" ")
    }

    fn with_status(&self, status: &str) -> PageAddress {
        Self { status: status.to_owned(), ..self.clone() }.address("")
    }

    fn with_hidden(&self, hide: String) -> PageAddress {
        Self { hide, ..self.clone() }.address("")
    }

    pub(super) fn address(&self, cursor: &str) -> PageAddress {
        PageAddress::of(&["executions"])
            .with_some("status", Some(&self.status))
            .with_some("workflow", Some(&self.workflow))
            .with_some("label", Some(&self.label))
            .with_some("since", Some(&self.since))
            .with_some("error", Some(&self.error))
            .with_some("q", Some(&self.q))
            .with_some("hide", Some(&self.hide))
            .with_some("cursor", Some(cursor))
    }

    /// The equivalent command.
    pub(super) fn command(&self) -> CommandText {
        let command = CommandText::new("sinew execution list");
        let command =
            self.status.split(',').fold(command, |command, status| command.flag("--status", status));
        let command = command.flag("--workflow", &self.workflow);
        let command =
            self.label.split(',').fold(command, |command, label| command.flag("--label", label.trim()));
        let command =
            self.error.split(',').fold(command, |command, error| command.flag("--error", error.trim()));
        command.flag("--since", &self.since).flag("--where", &self.q)
    }

    /// Links that filter by status, with the count of each.
    pub(super) fn chips(&self, counts: Option<&ExecutionCounts>) -> Markup {
        let chosen = comma_words(&self.status);
        html! {
            ul.chips aria-label="Status" {
                li {
                    a href=(self.with_status("")) aria-current=[chosen.is_empty().then_some("true")] {
                        "All" @if let Some(counts) = counts { " " (count_mark(counts.counts.values().sum(), counts)) }
                    }
                }
                @for (status, word) in STATUSES.map(|status| (status, status_word(status))) {
                    li {
                        a href=(self.with_status(&toggled(&chosen, word))) aria-current=[chosen.contains(&word).then_some("true")] {
                            (status_mark(status))
                            @if let Some(counts) = counts { " " (count_mark(counts.counts.get(word).copied().unwrap_or_default(), counts)) }
                        }
                    }
                }
            }
        }
    }

    /// Links that hide and show columns.
    pub(super) fn columns(&self) -> Markup {
        let hidden = comma_words(&self.hide);
        html! {
            details.columns-choice {
                summary { "Columns" }
                ul.chips aria-label="Columns" {
                    @for (value, text) in COLUMNS {
                        li { a href=(self.with_hidden(toggled(&hidden, value))) aria-current=[self.shows(value).then_some("true")] { (text) } }
                    }
                }
            }
        }
    }

    pub(super) fn form(&self, workflows: &[DeployedRow]) -> Markup {
        html! {
            form.filter method="get" role="search" aria-label="Filter" {
                @for (name, value) in [("status", &self.status), ("hide", &self.hide), ("q", &self.q)] {
                    @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
                }
                label.wide { span { "Find" }
                    input type="text" name="find" value=(self.find) placeholder="id, key or text, or status:failed agent:Clerk since:1h" data-filter autocomplete="off";
                }
                label { span { "Workflow" }
                    select name="workflow" {
                        option value="" { "any" }
                        @for row in workflows {
                            option value=(row.name) selected[row.name == self.workflow] { (shown_text::line(&row.name, 60)) }
                        }
                        // The workflow may have been deleted while its executions still exist.
                        @if !self.workflow.is_empty() && workflows.iter().all(|row| row.name != self.workflow) {
                            option value=(self.workflow) selected { (shown_text::line(&self.workflow, 60)) }
                        }
                    }
                }
                label { span { "Label" }
                    input type="text" name="label" value=(self.label) placeholder="team=a" autocomplete="off";
                }
                label { span { "Error" }
                    input type="text" name="error" value=(self.error) placeholder="SINEW-…" autocomplete="off";
                }
                label { span { "Started in the last" }
                    select name="since" {
                        option value="" { "any time" }
                        @for (value, text) in SPANS { option value=(value) selected[value == self.since] { (text) } }
                        @if !self.since.is_empty() && SPANS.iter().all(|(value, _)| *value != self.since) {
                            option value=(self.since) selected { (shown_text::line(&self.since, 20)) }
                        }
                    }
                }
                button type="submit" { "Filter" }
            }
        }
    }
}

/// A count of executions, with a plus if older ones are not counted yet.
fn count_mark(count: u64, counts: &ExecutionCounts) -> Markup {
    html! { span.quiet.count { (count) @if !counts.is_whole { "+" } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_filter() {
        let check = |filter: ListFilter, command: &str, address: &str| {
            assert_eq!(filter.command().to_string(), command);
            assert_eq!(filter.address("").to_string(), address);
        };
        check(ListFilter::default(), "sinew execution list", "/console/executions");
        check(
            ListFilter {
                status: "failed,waiting".to_owned(),
                workflow: "a b".to_owned(),
                label: "team=a, stage=b".to_owned(),
                since: "1h".to_owned(),
                error: "SINEW-5001".to_owned(),
                q: "key:order-17".to_owned(),
                hide: "caller".to_owned(),
                cursor: "x".to_owned(),
                find: "y".to_owned(),
            },
            "sinew execution list --status failed --status waiting --workflow 'a b' --label team=a --label stage=b --error SINEW-5001 --since 1h --where key:order-17",
            "/console/executions?status=failed%2Cwaiting&workflow=a+b&label=team%3Da%2C+stage%3Db&since=1h&error=SINEW-5001&q=key%3Aorder-17&hide=caller",
        );
    }

    #[test]
    fn words_of_the_search_box_are_a_filter_or_an_id() {
        let before =
            ListFilter { workflow: "orders".to_owned(), hide: "caller".to_owned(), ..ListFilter::default() };
        let target = |find: &str| ListFilter { find: find.to_owned(), ..before.clone() }.target();
        let list = |find: &str, address: &str| match target(find) {
            Ok(FoundTarget::List(filter)) => assert_eq!(filter.address("").to_string(), address, "{find}"),
            other => panic!("{find}: {other:?}"),
        };
        list(
            "status:failed since:1h",
            "/console/executions?status=failed&workflow=orders&since=1h&hide=caller",
        );
        list(
            "label:team=a  label:stage=b workflow:bills error:SINEW-5001",
            "/console/executions?workflow=bills&label=team%3Da%2Cstage%3Db&error=SINEW-5001&hide=caller",
        );
        list("workflow:", "/console/executions?hide=caller");
        list("A-17 status:failed", "/console/executions?status=failed&workflow=orders&q=A-17&hide=caller");
        list(
            "key:order-17 \"no route\" error:\"of the host\"",
            "/console/executions?workflow=orders&q=key%3Aorder-17+%22no+route%22+error%3A%22of+the+host%22&hide=caller",
        );
        match target(" A-17 ") {
            Ok(FoundTarget::Execution(id, list)) => {
                assert_eq!(
                    (id.as_str(), list.address("").to_string().as_str()),
                    ("A-17", "/console/executions?q=A-17&hide=caller")
                );
            }
            other => panic!("{other:?}"),
        }
        for wrong in ["colour:red", "since:soon", "status:failed,fine"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_hidden_and_shown_again() {
        let filter = ListFilter { hide: "labels,nonsense".to_owned(), ..ListFilter::default() };
        assert!(filter.shows("caller") && !filter.shows("labels"));
        assert_eq!(toggled(&comma_words(&filter.hide), "labels"), "nonsense");
        assert_eq!(toggled(&["labels"], "caller"), "labels,caller");
    }

    #[test]
    fn spans_count_back_from_now() {
        let now = Timestamp(2 * 3_600_000);
        let since = |text: &str| ListFilter { since: text.to_owned(), ..ListFilter::default() }.since_ms(now);
        assert_eq!(since("1h").unwrap(), Some(3_600_000));
        assert_eq!(since("24h").unwrap(), Some(0));
        assert_eq!(since("").unwrap(), None);
        assert_eq!(since("90s").unwrap(), Some(7_110_000));
        for wrong in ["1y", "h", "1é", "99999999999999999999d", "-1h"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
