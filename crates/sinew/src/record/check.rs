//! Whether the facts of a record hold together.

use serde_json::Value;

/// Every index in the facts must point at something that is there by then: the fold relies on it.
pub(super) fn check(rounds: &Value, nodes: usize, edges: usize) -> Result<(), String> {
    let (mut acts, mut scopes) = (0_u64, 0_u64);
    let facts =
        rounds.as_array().into_iter().flatten().filter_map(|round| round["facts"].as_array()).flatten();
    for (n, fact) in facts.enumerate() {
        match fact["fact"].as_str() {
            Some("activated") => acts += 1,
            Some("opened") => scopes += 1,
            _ => {}
        }
        let below = |value: &Value, end: u64| match value {
            Value::Null => true,
            Value::Array(list) => list.iter().all(|value| value.as_u64().is_some_and(|ix| ix < end)),
            value => value.as_u64().is_some_and(|ix| ix < end),
        };
        let list = |key: &str| fact[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let cause = fact.pointer("/outcome/cause").unwrap_or(&Value::Null);
        let whole = ["act", "owner", "again", "acts"].iter().all(|key| below(&fact[*key], acts))
            && ["scope", "parent", "from"].iter().all(|key| below(&fact[*key], scopes + 1))
            && ["node", "reset"].iter().all(|key| below(&fact[*key], nodes as u64))
            && below(&fact["edge"], edges as u64)
            && below(cause, acts)
            && list("tokens").iter().all(|token| below(&token["edge"], edges as u64))
            && list("children").iter().all(|child| below(&child["body"], nodes as u64));
        if !whole {
            return Err(format!("fact {n} points at something that is not there"));
        }
    }
    Ok(())
}
