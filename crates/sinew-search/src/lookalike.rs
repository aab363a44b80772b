//! Names that look like other names: `0rders` beside `orders`, or a Cyrillic `о` in it.

use std::collections::HashMap;

use unicode_security::confusable_detection::skeleton;

/// Names of a mesh by what they look like (UTS 39, section 4).
#[derive(Clone, Debug, Default)]
pub struct Lookalikes {
    names: HashMap<String, Vec<String>>,
}

impl Lookalikes {
    /// Groups names by their looks.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut groups: HashMap<String, Vec<String>> = HashMap::new();
        for name in names {
            groups.entry(looks(name)).or_default().push(name.to_owned());
        }
        groups.retain(|_, names| names.len() > 1);
        for names in groups.values_mut() {
            names.sort();
        }
        Self { names: groups }
    }

    /// Returns another name that looks the same, if there is one for which `visible` returns `true`.
    pub fn of(&self, name: &str, visible: impl Fn(&str) -> bool) -> Option<&str> {
        self.names
            .get(&looks(name))?
            .iter()
            .map(String::as_str)
            .find(|other| *other != name && visible(other))
    }
}

/// Returns what a name looks like, without regard to case and punctuation.
fn looks(name: &str) -> String {
    let plain: String = skeleton(name).filter(|character| character.is_alphanumeric()).collect();
    // The skeleton of `m` is `rn`, and those of `0` and `l` are `O` and `l`: one more pass after
    // lower case makes `0rders` and `Orders` equal.
    skeleton(&plain.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::Lookalikes;

    #[test]
    fn confusable_names_are_reported() {
        let names = ["orders", "0rders", "\u{43e}rders", "or-ders", "refund"];
        for name in &names[1..4] {
            let looks = Lookalikes::new(["orders", name].into_iter());
            assert_eq!(looks.of(name, |_| true), Some("orders"), "{name}");
            assert_eq!(looks.of("orders", |_| true), Some(*name), "{name}");
        }
        assert_eq!(Lookalikes::new(names.into_iter()).of("refund", |_| true), None);
    }
}
