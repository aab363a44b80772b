//! Which questions for people a list contains, and the data of a question that is shown in lists.

use serde_json::{Map, Value};
use sinew_documents::approval::OpenApproval;
use sinew_documents::words;

use crate::failure::Failure;

/// Maximum number of fields that a list shows of a question.
const MAX_FIELDS: usize = 6;
/// Maximum length of a shown value, in characters.
const MAX_VALUE_CHARS: usize = 200;
/// Member of the data of a model agent's question that identifies its conversation.
const ASKED_BY: &str = "asked_by";
/// Comparison operators; longer ones first, because `<` begins `<=`.
const COMPARISONS: [&str; 6] = ["<=", ">=", "!=", "=", "<", ">"];

/// Filter of a list of questions. An empty filter accepts all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only questions of this workflow.
    pub workflow: Option<String>,
    /// Only questions whose text, node, execution or shown data contains this text, ignoring case.
    pub text: Option<String>,
    /// Only questions that this person may answer, including questions that anyone may answer.
    pub person: Option<String>,
    /// Only questions whose data meets all these conditions.
    pub conditions: Vec<FieldCondition>,
}

/// Condition on one field of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldCondition {
    field: String,
    comparison: &'static str,
    value: String,
}

impl ApprovalFilter {
    /// Accepts the questions of one workflow.
    pub fn of_workflow(name: &str) -> Self {
        Self { workflow: Some(name.to_owned()), ..Self::default() }
    }

    /// Returns whether a question matches; `input` is the input of its execution.
    pub fn takes(&self, one: &OpenApproval, input: &Value) -> bool {
        let given = |filter: &Option<String>| filter.clone().filter(|text| !text.is_empty());
        let question = one.wait.question.as_ref();
        let allowed = question.map(|question| question.allowed.as_slice()).unwrap_or_default();
        let contains = |wanted: String| {
            let wanted = wanted.to_lowercase();
            let review = one.review.values().map(plain);
            let texts = [
                question.map_or("", |question| question.prompt.as_str()),
                one.wait.node.as_deref().unwrap_or_default(),
                &one.execution,
            ];
            let mut texts = texts.into_iter().map(str::to_owned).chain(review);
            texts.any(|text| text.to_lowercase().contains(&wanted))
        };
        given(&self.workflow).is_none_or(|name| name == one.workflow)
            && given(&self.person).is_none_or(|person| allowed.is_empty() || allowed.contains(&person))
            && given(&self.text).is_none_or(contains)
            && self.conditions.iter().all(|condition| condition.holds(one, input))
    }
}

impl FieldCondition {
    /// Parses conditions: `FIELD=VALUE`, several joined by `and`. Operators: `=`, `!=`, `<`, `<=`,
    /// `>`, `>=`.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, Failure> {
        if text.trim().is_empty() { Ok(Vec::new()) } else { text.split(" and ").map(Self::parse).collect() }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let refused = || {
            Failure::usage(format!("where: expected FIELD=VALUE, found '{}'", words::one_line(text, 80)))
                .hint("operators: =, !=, <, <=, >, >=; join several conditions by `and`")
        };
        let at = text.find(['=', '!', '<', '>']).ok_or_else(refused)?;
        let (field, rest) = (text[..at].trim(), &text[at..]);
        let comparison = COMPARISONS.into_iter().find(|one| rest.starts_with(one)).ok_or_else(refused)?;
        if field.is_empty() {
            return Err(refused());
        }
        let value = rest[comparison.len()..].trim().trim_matches(['\'', '"']);
        Ok(Self { field: field.to_owned(), comparison, value: value.to_owned() })
    }

    /// Returns whether a question meets the condition. The field is `workflow`, `node`, `execution` or
    /// `caller`, or a path into the question's data or else the execution's input, as `order.amount`.
    fn holds(&self, one: &OpenApproval, input: &Value) -> bool {
        let question = one.wait.question.as_ref().map_or(&Value::Null, |question| &question.data);
        let path = format!("/{}", self.field.replace('.', "/"));
        let found = match self.field.as_str() {
            "workflow" => one.workflow.clone(),
            "node" => one.wait.node.clone().unwrap_or_default(),
            "execution" => one.execution.clone(),
            "caller" => one.caller.clone(),
            _ => match question.pointer(&path).or_else(|| input.pointer(&path)) {
                Some(value) => plain(value),
                None => return self.comparison == "!=",
            },
        };
        let order = match (found.parse::<f64>(), self.value.parse::<f64>()) {
            (Ok(found), Ok(value)) => found.partial_cmp(&value),
            _ => None,
        };
        match self.comparison {
            "=" => found == self.value || order.is_some_and(std::cmp::Ordering::is_eq),
            "!=" => found != self.value && order.is_none_or(std::cmp::Ordering::is_ne),
            "<" => order.is_some_and(std::cmp::Ordering::is_lt),
            "<=" => order.is_some_and(std::cmp::Ordering::is_le),
            ">" => order.is_some_and(std::cmp::Ordering::is_gt),
            _ => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

/// Returns the fields to judge a question by: the data that it declares, else the input of its execution.
/// Texts and nested values are shortened.
pub fn review_fields(prompt: &str, data: &Value, input: &Value) -> Map<String, Value> {
    let is_shown =
        |(name, value): &(&String, &Value)| !value.is_null() && *name != ASKED_BY && *value != prompt;
    let fields = |value: &Value| -> Map<String, Value> {
        match value {
            Value::Null => Map::new(),
            Value::Object(members) => {
                let shown = members.iter().filter(is_shown).take(MAX_FIELDS);
                shown.map(|(name, value)| (words::one_line(name, 60), shortened(value))).collect()
            }
            value if *value == prompt => Map::new(),
            value => Map::from_iter([("data".to_owned(), shortened(value))]),
        }
    };
    let declared = fields(data);
    if declared.is_empty() { fields(input) } else { declared }
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        value => Value::String(words::one_line(&plain(value), MAX_VALUE_CHARS)),
    }
}

/// Formats a value for people: text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_documents::execution::{PersonQuestion, ShownWait, WaitKind};

    use super::*;

    fn approval(data: &Value) -> OpenApproval {
        OpenApproval {
            wait: ShownWait {
                node: Some("ask".to_owned()),
                activation: Some(1),
                what: WaitKind::Person,
                text: String::new(),
                subject: String::new(),
                is_late: false,
                since: 0.into(),
                until: None,
                agent: None,
                question: Some(PersonQuestion {
                    prompt: "Pay?".to_owned(),
                    data: data.clone(),
                    allowed: vec!["ann".to_owned()],
                }),
                asked_in: None,
            },
            execution: "e1".to_owned(),
            workflow: "refund".to_owned(),
            caller: "shop".to_owned(),
            path: Vec::new(),
            review: review_fields("Pay?", data, &Value::Null),
        }
    }

    #[test]
    fn declared_data_comes_before_the_input() {
        let check = |data: Value, input: Value, expected: Value| {
            assert_eq!(Value::Object(review_fields("Pay?", &data, &input)), expected, "{data} {input}");
        };
        let input = json!({"prompt": "Pay?", "order": {"id": "A-17"}, "amount": 4.5, "note": null});
        check(json!({"amount": 9}), input.clone(), json!({"amount": 9}));
        check(Value::Null, input.clone(), json!({"order": "{\"id\":\"A-17\"}", "amount": 4.5}));
        check(
            json!({"asked_by": {"session": "s"}}),
            input,
            json!({"order": "{\"id\":\"A-17\"}", "amount": 4.5}),
        );
        check(json!(["a"]), Value::Null, json!({"data": "[\"a\"]"}));
        check(json!("Pay?"), json!("Pay?"), json!({}));
        let many: Map<String, Value> = (0..20).map(|n| (format!("f{n}"), json!("x".repeat(900)))).collect();
        let shown = review_fields("", &Value::Object(many), &Value::Null);
        assert_eq!(shown.keys().collect::<Vec<_>>(), ["f0", "f1", "f2", "f3", "f4", "f5"]);
        assert!(shown["f0"].as_str().unwrap().chars().count() <= MAX_VALUE_CHARS + 1);
    }

    #[test]
    fn conditions_compare_numbers_and_texts() {
        let one = approval(&json!({"amount": 42, "customer": "Margaret", "order": {"id": "A-17"}}));
        let check = |text: &str, expected: bool| {
            let filter = ApprovalFilter {
                conditions: FieldCondition::parse_all(text).unwrap(),
                ..ApprovalFilter::default()
            };
            assert_eq!(filter.takes(&one, &json!({"region": "north"})), expected, "{text}");
        };
        for text in [
            "",
            "amount<100",
            "amount >= 42.0",
            "amount=42",
            "customer='Margaret' and order.id = A-17",
            "region=north",
            "workflow=refund and node=ask and caller=shop",
            "missing!=1",
        ] {
            check(text, true);
        }
        for text in
            ["amount>42", "amount!=42.0", "customer<5", "customer=margaret", "missing=1", "execution=e2"]
        {
            check(text, false);
        }
        for text in ["amount", "=5", "amount ! 5", "amount=1 and "] {
            assert!(FieldCondition::parse_all(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_are_filtered_by_text_person_and_workflow() {
        let one = approval(&json!({"customer": "Margaret"}));
        let filter = |workflow: &str, text: &str, person: &str| ApprovalFilter {
            workflow: Some(workflow.to_owned()),
            text: Some(text.to_owned()),
            person: Some(person.to_owned()),
            conditions: Vec::new(),
        };
        for (wanted, expected) in [
            (filter("", "", ""), true),
            (filter("refund", "MARGA", "ann"), true),
            (filter("refund", "pay?", ""), true),
            (filter("other", "", ""), false),
            (filter("", "nobody", ""), false),
            (filter("", "", "bob"), false),
        ] {
            assert_eq!(wanted.takes(&one, &Value::Null), expected, "{wanted:?}");
        }
    }
}
