//! The history of a task: its messages, newest last (A2A 1.0, sections 3.2.4 and 4.1.1).

use super::{Message, Task};

/// Maximum number of messages in a history.
pub const MAX_HISTORY: usize = 100;
/// Maximum size of a history, in bytes of JSON.
pub const MAX_HISTORY_BYTES: usize = 64 << 10;

/// Removes the oldest messages until a history is within the limits.
pub fn bound_history(history: &mut Vec<Message>) {
    let mut left = MAX_HISTORY_BYTES;
    let kept = history.iter().rev().take(MAX_HISTORY).take_while(|message| {
        let bytes = serde_json::to_vec(message).map_or(usize::MAX, |json| json.len());
        let is_fitting = bytes <= left;
        left = left.saturating_sub(bytes);
        is_fitting
    });
    let oldest = history.len() - kept.count();
    history.drain(..oldest);
}

/// Keeps the newest messages of a task's history: all for `None`, no history for 0.
pub fn trim_history(task: &mut Task, history_length: Option<u32>) {
    let Some(most) = history_length.map(|most| most as usize) else { return };
    match &mut task.history {
        Some(_) if most == 0 => task.history = None,
        Some(history) if history.len() > most => drop(history.drain(..history.len() - most)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Part, TaskState, TaskStatus};

    fn messages(sizes: &[usize]) -> Vec<Message> {
        let message = |(nth, size): (usize, &usize)| {
            Message::user(nth.to_string(), vec![Part::text("x".repeat(*size))])
        };
        sizes.iter().enumerate().map(message).collect()
    }

    fn ids(history: &[Message]) -> Vec<&str> {
        history.iter().map(|message| message.id.0.as_str()).collect()
    }

    #[test]
    fn the_newest_messages_within_the_limits_are_kept() {
        for (sizes, expected) in [
            (vec![1, 1], vec!["0", "1"]),
            (vec![40 << 10, 40 << 10, 1], vec!["1", "2"]),
            (vec![1, 70 << 10, 1], vec!["2"]),
        ] {
            let mut history = messages(&sizes);
            bound_history(&mut history);
            assert_eq!(ids(&history), expected);
        }
        let mut many = messages(&[1; MAX_HISTORY + 5]);
        bound_history(&mut many);
        assert_eq!((many.len(), many[0].id.0.as_str()), (MAX_HISTORY, "5"));
    }

    #[test]
    fn a_history_length_limits_the_messages() {
        for (length, expected) in
            [(None, Some(vec!["0", "1", "2"])), (Some(2), Some(vec!["1", "2"])), (Some(0), None)]
        {
            let mut task = Task {
                id: "t".into(),
                context_id: "c".into(),
                status: TaskStatus::new(TaskState::Working),
                artifacts: None,
                history: Some(messages(&[1, 1, 1])),
                metadata: None,
            };
            trim_history(&mut task, length);
            assert_eq!(task.history.as_deref().map(ids), expected, "{length:?}");
        }
    }
}
