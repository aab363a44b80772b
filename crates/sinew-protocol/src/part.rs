//! Bodies that exceed the message limit: split into parts with `Sinew-Part: i/n`, and reassembled.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::message::BadMessage;

/// Maximum body bytes in one message; the rest of a message's 1 MiB is for headers.
pub const PART_LIMIT: usize = 900 * 1024;
/// Maximum number of parts of a body.
pub const MAX_PARTS: u32 = 1024;

/// Number of a part and of all parts, counted from 1; formatted as `i/n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Number of this part.
    pub number: u32,
    /// Number of all parts.
    pub of: u32,
}

impl Part {
    /// Body in one message, which needs no header.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Parses the value of the header; without a header, returns [`Part::WHOLE`].
    pub fn parse(header: Option<&str>) -> Result<Self, BadMessage> {
        let Some(text) = header else { return Ok(Self::WHOLE) };
        let bad =
            || field(&format!("{:?} is not of the form i/n", text.chars().take(40).collect::<String>()));
        let (number, of) = text.split_once('/').ok_or_else(bad)?;
        let part = Self { number: number.parse().map_err(|_| bad())?, of: of.parse().map_err(|_| bad())? };
        let legal = part.number >= 1 && part.number <= part.of && part.of <= MAX_PARTS;
        if legal { Ok(part) } else { Err(bad()) }
    }

    /// Returns whether this is the last part.
    pub const fn is_last(self) -> bool {
        self.number == self.of
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Splits a body into parts of at most `most` bytes; an empty body becomes one empty part.
pub fn split(body: &Bytes, most: usize) -> Result<Vec<(Part, Bytes)>, BadMessage> {
    let most = most.max(1);
    let of = body.len().div_ceil(most).max(1);
    let of = u32::try_from(of).ok().filter(|of| *of <= MAX_PARTS);
    let of = of.ok_or_else(|| field(&format!("{} bytes need more than {MAX_PARTS}", body.len())))?;
    let piece = |number: u32| {
        let start = (number as usize - 1) * most;
        body.slice(start..(start + most).min(body.len()))
    };
    Ok((1..=of).map(|number| (Part { number, of }, piece(number))).collect())
}

/// Reassembles parts that are received in order.
#[derive(Debug, Default)]
pub struct PartAssembler {
    got: BytesMut,
    next: u32,
    of: u32,
}

impl PartAssembler {
    /// Adds a part and returns the whole body with the last one. A first part discards an
    /// incomplete body; any other part out of order is rejected.
    pub fn take(&mut self, part: Part, bytes: Bytes) -> Result<Option<Bytes>, BadMessage> {
        if part == Part::WHOLE {
            self.reset();
            return Ok(Some(bytes));
        }
        if part.number == 1 {
            self.reset();
            self.of = part.of;
        } else if part.of != self.of || part.number != self.next {
            let reason = format!("{part} does not follow {}/{}", self.next.saturating_sub(1), self.of);
            self.reset();
            return Err(field(&reason));
        }
        self.got.extend_from_slice(&bytes);
        self.next = part.number + 1;
        if !part.is_last() {
            return Ok(None);
        }
        let whole = std::mem::take(&mut self.got).freeze();
        self.reset();
        Ok(Some(whole))
    }

    /// Returns whether parts are still missing.
    pub fn is_open(&self) -> bool {
        self.next > 1
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

fn field(reason: &str) -> BadMessage {
    BadMessage::Field { kind: "parts".to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bodies_survive_being_cut(body in prop::collection::vec(any::<u8>(), 0..300), most in 1_usize..200) {
            let body = Bytes::from(body);
            let parts = split(&body, most).unwrap();
            let mut whole = PartAssembler::default();
            for (n, (part, bytes)) in parts.iter().enumerate() {
                prop_assert!(bytes.len() <= most);
                let read = Part::parse(Some(&part.to_string())).unwrap();
                let done = whole.take(read, bytes.clone()).unwrap();
                prop_assert_eq!(done, (n + 1 == parts.len()).then(|| body.clone()));
                prop_assert_eq!(whole.is_open(), n + 1 < parts.len());
            }
        }

        #[test]
        fn no_header_panics(text in ".{0,20}", number in "[0-9/-]{0,12}") {
            drop(Part::parse(Some(&text)));
            drop(Part::parse(Some(&number)));
        }
    }

    #[test]
    fn incomplete_bodies_are_dropped_and_wrong_parts_refused() {
        let part = |text: &str| Part::parse(Some(text)).unwrap();
        let mut whole = PartAssembler::default();
        assert_eq!(whole.take(part("1/3"), "a".into()), Ok(None));
        assert_eq!(whole.take(part("1/2"), "b".into()), Ok(None));
        assert_eq!(whole.take(part("2/2"), "c".into()), Ok(Some("bc".into())));
        assert!(whole.take(part("2/2"), "c".into()).is_err());
        assert_eq!(whole.take(part("1/3"), "a".into()), Ok(None));
        assert!(whole.take(part("3/3"), "c".into()).is_err());
        assert!(!whole.is_open());
        assert_eq!(whole.take(Part::parse(None).unwrap(), "x".into()), Ok(Some("x".into())));
        for bad in ["0/1", "2/1", "1", "1/", "/1", "a/b", "-1/2", "1/1025", "1/2/3", ""] {
            assert!(Part::parse(Some(bad)).is_err(), "{bad}");
        }
        assert!(split(&Bytes::from(vec![0; 1025]), 1).is_err());
    }
}
