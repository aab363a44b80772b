//! The form of a decision: in the card of a question, and on the page of a question.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::approval::OpenApproval;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::token_field;
use crate::page_request::PageRequest;
use crate::shown_text;

/// A decision, as the form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DecisionForm {
    /// The execution that asks; absent on the page of its question.
    #[serde(default)]
    pub(super) execution: String,
    #[serde(default)]
    pub(super) node: String,
    #[serde(default)]
    decision: String,
    #[serde(default)]
    comment: String,
    /// The answer as JSON, if it is more than an approval.
    #[serde(default)]
    data: String,
    /// Whether it is one of several decisions of a bulk form.
    #[serde(skip)]
    pub(super) is_bulk: bool,
}

/// Separates execution and node in a value of a bulk form. Ids of executions contain no slash.
const SEPARATOR: char = '/';

impl DecisionForm {
    /// Reads the form of one card, or one decision for all selected cards.
    pub(super) fn read(fields: &[(String, String)]) -> Vec<Self> {
        let text = |name: &str| {
            fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let form = |execution: &str, node: &str, is_bulk: bool| Self {
            execution: execution.to_owned(),
            node: node.to_owned(),
            decision: text("decision"),
            comment: text("comment"),
            data: String::new(),
            is_bulk,
        };
        let execution = text("execution");
        if !execution.is_empty() {
            return vec![form(&execution, &text("node"), false)];
        }
        let selected = fields.iter().filter(|(key, _)| key == "question");
        let selected = selected.filter_map(|(_, value)| value.split_once(SEPARATOR));
        selected.map(|(execution, node)| form(execution, node, true)).collect()
    }

    /// The value of a card's checkbox.
    pub(super) fn bulk_value(question: &OpenApproval) -> String {
        format!("{}{SEPARATOR}{}", question.execution, question.wait.node.as_deref().unwrap_or_default())
    }

    /// Returns true if the form rejects without stating the reason. The field is marked then.
    pub(super) fn lacks_comment(&self) -> bool {
        self.decision == "reject" && self.comment.trim().is_empty()
    }

    /// Returns true if the form is that of this question.
    pub(super) fn is_for(&self, question: &OpenApproval) -> bool {
        self.execution == question.execution && self.node == question.wait.node.as_deref().unwrap_or_default()
    }

    /// Sends the decision.
    pub(super) async fn send(&self, id: &str, request: &PageRequest) -> Result<(), ConsoleError> {
        if self.lacks_comment() {
            return Err(ConsoleError::Input("a rejection needs a comment that states the reason".to_owned()));
        }
        let data = match self.data.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|error| ConsoleError::Input(format!("the answer is not valid JSON: {error}")))?,
        };
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let body = json!({
            "decision": self.decision,
            "node": text(&self.node),
            "comment": text(&self.comment),
            "data": data,
        });
        request.api.post::<Value>(&ApiPath::of(&["executions", id, "decisions"]), &body).await.map(drop)
    }

    /// The form, with the values of a rejected one. With an action it is part of a card; without one, it
    /// posts to the page of the question and also takes data.
    pub(super) fn markup(
        &self,
        request: &PageRequest,
        question: &OpenApproval,
        action: Option<&str>,
    ) -> Markup {
        let node = question.wait.node.as_deref().unwrap_or_default();
        let lacks = self.lacks_comment();
        let field =
            format!("comment-{}-{}", question.execution, question.wait.activation.unwrap_or_default());
        let command = |verb| shown_text::name(&decision_command(question, verb).to_string());
        html! {
            form.steer method="post" action=[action] {
                (token_field(request))
                input type="hidden" name="execution" value=(question.execution);
                input type="hidden" name="node" value=(node);
                label { span { "Comment " span.quiet { "(required to reject)" } }
                    // Approve skips the check of the browser, so only Reject requires the field.
                    textarea name="comment" rows="1" required autofocus[lacks] aria-invalid=[lacks.then_some("true")]
                        aria-describedby=[lacks.then_some(&field)] { (self.comment) }
                }
                @if lacks { p.field-error id=(field) role="alert" { "Comment missing: a rejection needs a comment that states the reason" } }
                @if action.is_none() {
                    details open[!self.data.is_empty()] {
                        summary { "Answer with data" }
                        label { span { "Data as JSON" } textarea.mono name="data" rows="4" spellcheck="false" { (self.data) } }
                    }
                }
                div.actions {
                    button.primary type="submit" name="decision" value="approve" formnovalidate data-command=(command("approve")) { "Approve" }
                    button.danger type="submit" name="decision" value="reject" data-command=(command("reject")) { "Reject" }
                }
            }
        }
    }
}

/// The command that makes a decision.
pub(super) fn decision_command(question: &OpenApproval, verb: &str) -> CommandText {
    let command = CommandText::of_execution(&format!("sinew approval {verb}"), &question.execution);
    let command = command.flag("--node", question.wait.node.as_deref().unwrap_or_default());
    if verb == "reject" { command.with("--comment …") } else { command }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_carry_one_decision_or_several() {
        let check = |fields: &[(&str, &str)], expected: &[(&str, &str, bool)]| {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let read = DecisionForm::read(&fields);
            let found: Vec<_> = read
                .iter()
                .map(|one| (one.execution.as_str(), one.node.as_str(), one.lacks_comment()))
                .collect();
            assert_eq!(found, expected, "{fields:?}");
        };
        check(&[("execution", "e1"), ("node", "ask"), ("decision", "approve")], &[("e1", "ask", false)]);
        check(&[("execution", "e1"), ("decision", "reject"), ("comment", " ")], &[("e1", "", true)]);
        let several =
            [("decision", "reject"), ("comment", "late"), ("question", "e1/a"), ("question", "e2/b[1/2]")];
        check(&several, &[("e1", "a", false), ("e2", "b[1/2]", false)]);
        check(&[("decision", "reject")], &[]);
    }
}
