//! Versions of nats-server, and the oldest supported one.

use std::fmt;

/// A version of nats-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

/// Older servers silently ignore parts of requests, or lose acknowledged data.
pub const OLDEST: Version = Version { major: 2, minor: 12, patch: 0 };

impl Version {
    /// Parses `2.15.1`, `v2.15.1`, `2.12.0-RC.2`; `None` for other formats.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim().trim_start_matches('v');
        let numbers = numbers.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }

    /// Returns whether the mesh supports it.
    pub fn is_supported(self) -> bool {
        self >= OLDEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_judged() {
        for (text, supported) in [
            ("2.15.1", Some(true)),
            ("v2.12.0", Some(true)),
            ("2.12.0-RC.2", Some(true)),
            ("2.15.1+build", Some(true)),
            (" v3.0.0\n", Some(true)),
            ("2.11.11", Some(false)),
            ("2.9.10", Some(false)),
            ("1.99.99", Some(false)),
            ("2.12", None),
            ("2.12.0.1", None),
            ("two", None),
            ("", None),
            ("-1.2.3", None),
        ] {
            assert_eq!(Version::parse(text).map(Version::is_supported), supported, "{text}");
        }
    }
}
