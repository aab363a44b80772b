//! Fields of an object that resemble a known, missing field.

use sinew_source::did_you_mean;

/// Minimum length of compared names, in characters. Shorter names resemble too many others: `mode`
/// and `code` are not misspellings of `model`.
const MIN_NAME_CHARS: usize = 5;

/// Known fields of an object: each entry lists the names of one field, of which an object has one.
pub(crate) type KnownMembers = [&'static [&'static str]];

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
