//! Fields of an object that resemble a known, missing field.

use sinew_source::{Diagnostic, Member, Node, Span, did_you_mean};

/// Minimum length of compared names, in characters. Shorter names resemble too many others: `mode`
/// and `code` are not misspellings of `model`.
const MIN_NAME_CHARS: usize = 5;

/// Known fields of an object: each entry lists the names of one field, of which an object has one.
pub(crate) type KnownMembers = [&'static [&'static str]];

/// Returns the member of an object whose name resembles a missing one.
pub(crate) fn misspelled<'n>(object: &'n Node, missing: &str) -> Option<&'n Member> {
    let members = object.as_object()?;
    if members.iter().any(|member| member.key == missing) {
        return None;
    }
    let others = members.iter().filter(|member| !MEMBERS.contains(&member.key.as_str()));
    others.into_iter().find(|member| did_you_mean(&member.key, std::iter::once(missing)).is_some())
}

/// Members of graphs, nodes and edges that are no misspellings of each other.
const MEMBERS: [&str; 18] = [
    "id",
    "name",
    "type",
    "subtype",
    "data",
    "nodes",
    "edges",
    "connections",
    "source",
    "target",
    "sourceHandle",
    "targetHandle",
    "from",
    "to",
    "from_node",
    "to_node",
    "output_key",
    "when",
];

/// Returns the position of a finding about a missing member, with the advice to rename the member that
/// resembles it, if there is one.
pub(crate) fn missing_member(finding: Diagnostic, object: &Node, missing: &str) -> Diagnostic {
    let span: Span = object.get(missing).map_or(object.span, |value| value.span);
    match misspelled(object, missing) {
        Some(near) => finding.at(near.key_span).hint(format!("did you mean '{missing}'?")),
        None => finding.at(span),
    }
}

/// Pairs each unknown name with the known name that it resembles, if the object lacks that one.
pub(crate) fn near_members<'n>(names: &[&'n str], known: &[&KnownMembers]) -> Vec<(&'n str, &'static str)> {
    let all = || known.iter().flat_map(|members| members.iter().copied());
    let lacking = all().filter(|member| !member.iter().any(|name| names.contains(name)));
    let lacking: Vec<&'static str> = lacking.flatten().copied().collect();
    let is_candidate =
        |name: &&&str| name.chars().count() >= MIN_NAME_CHARS && !all().any(|member| member.contains(*name));
    let near = |name: &&'n str| Some((*name, did_you_mean(name, lacking.iter().copied())?));
    names.iter().filter(is_candidate).filter_map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_near_a_missing_member_are_paired_with_it() {
        let known: &KnownMembers = &[&["field"], &["template", "prompt"], &["model"]];
        let check = |names: &[&'static str], want: &[(&str, &str)]| {
            assert_eq!(near_members(names, &[known]), want, "{names:?}");
        };
        check(&["feild"], &[("feild", "field")]);
        check(&["FIELD", "model"], &[("FIELD", "field")]);
        check(&["promt"], &[("promt", "prompt")]);
        // The field exists, under this name or another.
        check(&["feild", "field"], &[]);
        check(&["promt", "template"], &[]);
        check(&["mode", "width", "x"], &[]);
        check(&[], &[]);
    }
}
