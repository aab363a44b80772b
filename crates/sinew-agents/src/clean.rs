//! Makes text from outside processes fit for terminals and logs: no control characters, no secrets, no flood.

use crate::template::Environment;

/// Values that must never be shown; collected while a call resolves `${env:NAME}`.
#[derive(Debug, Default, Clone)]
pub(crate) struct ResolvedSecrets(Vec<String>);

impl ResolvedSecrets {
    /// Shorter values would blot out ordinary words.
    const SHORTEST: usize = 4;

    pub(crate) fn add(&mut self, value: &str) {
        if value.len() >= Self::SHORTEST {
            self.0.push(value.to_owned());
            // The longest first, so that a secret inside another leaves no rest.
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// Looks up a variable and remembers its value as one that must not be shown.
    pub(crate) fn read(&mut self, environment: &Environment, name: &str) -> Option<String> {
        environment(name).inspect(|value| self.add(value))
    }

    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

/// Decodes, drops escape sequences, control and text-direction characters (line feed and tab stay), hides secrets, trims.
pub(crate) fn clean(bytes: &[u8], secrets: &ResolvedSecrets) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain: String = anstream::adapter::strip_str(&text)
        .to_string()
        .chars()
        .filter(|&c| matches!(c, '\n' | '\t') || !(c.is_control() || changes_direction(c)))
        .collect();
    secrets.hide(plain.trim())
}

fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans() {
        let mut secrets = ResolvedSecrets::default();
        for secret in ["hunter2", "hunter2-long", "abc"] {
            secrets.add(secret);
        }
        for (given, expected) in [
            (&b"plain"[..], "plain"),
            (b"\x1b[31mred\x1b[0m\r\n", "red"),
            (b"a\x00b\x07c\td\ne", "abc\td\ne"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            ("evil\u{202e}txt".as_bytes(), "eviltxt"),
            (b"token=hunter2!", "token=***!"),
            (b"token=hunter2-long!", "token=***!"),
            (b"hun\x00ter2", "***"),
            (b"abc is too short to hide", "abc is too short to hide"),
        ] {
            assert_eq!(clean(given, &secrets), expected, "{}", given.escape_ascii());
        }
    }
}
