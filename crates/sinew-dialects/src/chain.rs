//! Node paths in messages.

/// Number of nodes that a message names at each end of a long path.
const NAMED_AT_END: usize = 10;

/// Formats a path as `a -> b -> c`. Shortens the middle of long paths, because every edge of a
/// large file may close a path through all its nodes.
pub(crate) fn path_text(ids: &[&str]) -> String {
    let hidden = ids.len().saturating_sub(2 * NAMED_AT_END);
    if hidden <= 1 {
        return ids.join(" -> ");
    }
    let (first, rest) = ids.split_at(NAMED_AT_END);
    let last = &rest[hidden..];
    format!("{} -> ({hidden} more) -> {}", first.join(" -> "), last.join(" -> "))
}

#[cfg(test)]
mod tests {
    use super::path_text;

    #[test]
    fn long_paths_are_shortened() {
        assert_eq!(path_text(&["a", "b", "a"]), "a -> b -> a");
        let long = path_text(&vec!["n"; 10_000]);
        assert!(long.contains(" -> (9980 more) -> ") && long.len() < 200, "{long}");
        assert_eq!(path_text(&["n"; 21]).matches('n').count(), 21);
    }
}
