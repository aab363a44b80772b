//! The part of a file that a request selects: `Range` of RFC 9110, one range of bytes.

use std::ops::Range;

/// Requested bytes of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WantedBytes {
    /// The whole file: no range, several ranges, or an unsupported form.
    All,
    /// These bytes.
    Part(Range<usize>),
    /// Bytes beyond the end of the file.
    None,
}

/// Parses the header for a file of this size.
pub(super) fn wanted_bytes(header: Option<&str>, size: usize) -> WantedBytes {
    let Some(range) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else {
        return WantedBytes::All;
    };
    let Some((first, last)) = range.trim().split_once('-') else { return WantedBytes::All };
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let size = size as u64;
    let (begin, end) = match (first, last) {
        ("", last) => match number(last) {
            Some(0) => return WantedBytes::None,
            Some(count) => (size.saturating_sub(count), size),
            None => return WantedBytes::All,
        },
        (first, "") => match number(first) {
            Some(first) => (first, size),
            None => return WantedBytes::All,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => (first, size.min(last.saturating_add(1))),
            _ => return WantedBytes::All,
        },
    };
    match (usize::try_from(begin), usize::try_from(end)) {
        (Ok(begin), Ok(end)) if begin < end => WantedBytes::Part(begin..end),
        _ => WantedBytes::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let check = |header: &str, size: usize, expected: WantedBytes| {
            assert_eq!(wanted_bytes(Some(header), size), expected, "{header}");
        };
        assert_eq!(wanted_bytes(None, 10), WantedBytes::All);
        check("bytes=0-3", 10, WantedBytes::Part(0..4));
        check("bytes=4-", 10, WantedBytes::Part(4..10));
        check("bytes=-3", 10, WantedBytes::Part(7..10));
        check("bytes=-30", 10, WantedBytes::Part(0..10));
        check("bytes=8-99", 10, WantedBytes::Part(8..10));
        check("bytes=9-9", 10, WantedBytes::Part(9..10));
        for absent in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=18446744073709551615-"] {
            check(absent, 10, WantedBytes::None);
        }
        check("bytes=0-0", 0, WantedBytes::None);
        for other in
            ["items=0-3", "bytes=a-b", "bytes=3-1", "bytes=0-1,3-4", "bytes=+1-2", "bytes=", "bytes=-", "0-3"]
        {
            check(other, 10, WantedBytes::All);
        }
    }
}
