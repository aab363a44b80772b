//! The system text of a model agent: a template with values of the agent and the task, never the input.

use serde_json::Value;
use time::OffsetDateTime;

/// A system text, parsed when the file is loaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InstructionTemplate(Vec<InstructionPiece>);

#[derive(Debug, Clone, PartialEq)]
enum InstructionPiece {
    Text(String),
    Hole(InstructionHole),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionHole {
    AgentName,
    AgentDescription,
    Date,
    TimeOfDay,
    Weekday,
    Workflow,
    Node,
    Skills,
}

const HOLES: [(&str, InstructionHole); 8] = [
    ("agent.name", InstructionHole::AgentName),
    ("agent.description", InstructionHole::AgentDescription),
    ("now.date", InstructionHole::Date),
    ("now.time", InstructionHole::TimeOfDay),
    ("now.weekday", InstructionHole::Weekday),
    ("workflow", InstructionHole::Workflow),
    ("node", InstructionHole::Node),
    ("skills", InstructionHole::Skills),
];

/// Values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstructionValues<'a> {
    pub(crate) agent: &'a str,
    pub(crate) description: &'a str,
    /// Start of the conversation, in milliseconds since the Unix epoch.
    pub(crate) begun_at: u64,
    pub(crate) context: &'a Value,
    pub(crate) skills: &'a str,
}

impl InstructionTemplate {
    /// Parses a text. The error is one sentence about its defect.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.contains("${env:") {
            return Err(
                "an instruction cannot contain an environment variable: the model would see it".to_owned()
            );
        }
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find("{{") {
            let end = rest[at..].find("}}").ok_or("'{{' without '}}'")? + at;
            let word = rest[at + 2..end].trim();
            if word == "input" || word.starts_with("input.") || word.starts_with("instruction") {
                return Err("an instruction cannot contain the input, which is the user message".to_owned());
            }
            let hole = HOLES.iter().find(|(name, _)| *name == word).ok_or_else(|| {
                let names: Vec<&str> = HOLES.iter().map(|(name, _)| *name).collect();
                format!("'{{{{{word}}}}}' is not one of {}", names.join(", "))
            })?;
            if at > 0 {
                pieces.push(InstructionPiece::Text(rest[..at].to_owned()));
            }
            pieces.push(InstructionPiece::Hole(hole.1));
            rest = &rest[end + 2..];
        }
        if !rest.is_empty() {
            pieces.push(InstructionPiece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Returns whether the text has a placeholder for the skills.
    pub(crate) fn places_skills(&self) -> bool {
        self.0.contains(&InstructionPiece::Hole(InstructionHole::Skills))
    }

    /// Renders the text.
    pub(crate) fn fill(&self, values: &InstructionValues<'_>) -> String {
        let seconds = i64::try_from(values.begun_at / 1000).unwrap_or(0);
        let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let of_context =
            |key: &str| values.context.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let text: String = self
            .0
            .iter()
            .map(|piece| match piece {
                InstructionPiece::Text(words) => words.clone(),
                InstructionPiece::Hole(InstructionHole::AgentName) => values.agent.to_owned(),
                InstructionPiece::Hole(InstructionHole::AgentDescription) => values.description.to_owned(),
                InstructionPiece::Hole(InstructionHole::Date) => now.date().to_string(),
                InstructionPiece::Hole(InstructionHole::TimeOfDay) => {
                    format!("{:02}:{:02} UTC", now.hour(), now.minute())
                }
                InstructionPiece::Hole(InstructionHole::Weekday) => now.weekday().to_string(),
                InstructionPiece::Hole(InstructionHole::Workflow) => of_context("workflow"),
                InstructionPiece::Hole(InstructionHole::Node) => of_context("node"),
                InstructionPiece::Hole(InstructionHole::Skills) => values.skills.to_owned(),
            })
            .collect();
        text.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn holes_are_filled_from_agent_and_task() {
        let context = json!({"workflow": "orders", "node": "ask"});
        let values = InstructionValues {
            agent: "Clerk",
            description: "{{node}}",
            begun_at: 1_700_000_000_000,
            context: &context,
            skills: "",
        };
        for (text, expected) in [
            ("plain", Ok("plain")),
            ("You are {{agent.name}}: {{ agent.description }}.", Ok("You are Clerk: {{node}}.")),
            ("{{now.weekday}} {{now.date}} {{now.time}}", Ok("Tuesday 2023-11-14 22:13 UTC")),
            ("{{workflow}}/{{node}}", Ok("orders/ask")),
            ("{{input.text}}", Err("an instruction cannot contain the input, which is the user message")),
            ("{{input}}", Err("an instruction cannot contain the input, which is the user message")),
            (
                "key ${env:KEY}",
                Err("an instruction cannot contain an environment variable: the model would see it"),
            ),
            ("{{open", Err("'{{' without '}}'")),
        ] {
            let filled = InstructionTemplate::parse(text).map(|template| template.fill(&values));
            assert_eq!(filled, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert!(
            InstructionTemplate::parse("{{agent.nam}}")
                .unwrap_err()
                .starts_with("'{{agent.nam}}' is not one of agent.name,")
        );
    }
}
