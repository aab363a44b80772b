//! String encodings in current use.

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextCodec {
    Utf8 { has_mark: bool },
    Ascii,
    Latin1,
    Utf16(ByteOrder),
    Utf32(ByteOrder),
}

/// Byte order of a number; `Marked` starts with a byte order mark and defaults to little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Marked,
    Little,
    Big,
}

/// The encoding does not support a character.
pub(super) struct UnencodableText;

impl TextCodec {
    /// Finds an encoding by one of its names in Python.
    pub(super) fn of(name: &str) -> Option<Self> {
        let plain: String =
            name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect();
        Some(match plain.as_str() {
            "utf8" | "u8" | "utf" | "cp65001" => Self::Utf8 { has_mark: false },
            "utf8sig" => Self::Utf8 { has_mark: true },
            "ascii" | "usascii" | "646" => Self::Ascii,
            "latin1" | "latin" | "l1" | "iso88591" | "8859" | "cp819" => Self::Latin1,
            "utf16" | "u16" => Self::Utf16(ByteOrder::Marked),
            "utf16le" => Self::Utf16(ByteOrder::Little),
            "utf16be" => Self::Utf16(ByteOrder::Big),
            "utf32" | "u32" => Self::Utf32(ByteOrder::Marked),
            "utf32le" => Self::Utf32(ByteOrder::Little),
            "utf32be" => Self::Utf32(ByteOrder::Big),
            _ => return None,
        })
    }

    /// Returns the name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Utf8 { .. } => "utf-8",
            Self::Ascii => "ascii",
            Self::Latin1 => "latin-1",
            Self::Utf16(_) => "utf-16",
            Self::Utf32(_) => "utf-32",
        }
    }

    /// Writes the byte order mark before the first character.
    pub(super) fn start(self, out: &mut Vec<u8>) {
        match self {
            Self::Utf8 { has_mark: true } => out.extend([0xef, 0xbb, 0xbf]),
            Self::Utf16(ByteOrder::Marked) => out.extend([0xff, 0xfe]),
            Self::Utf32(ByteOrder::Marked) => out.extend([0xff, 0xfe, 0, 0]),
            _ => {}
        }
    }

    /// Writes a character.
    pub(super) fn encode(self, c: char, out: &mut Vec<u8>) -> Result<(), UnencodableText> {
        let code = u32::from(c);
        match self {
            Self::Utf8 { .. } => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            Self::Ascii | Self::Latin1 => {
                let byte = u8::try_from(code).map_err(|_| UnencodableText)?;
                if self == Self::Ascii && !byte.is_ascii() {
                    return Err(UnencodableText);
                }
                out.push(byte);
            }
            Self::Utf16(order) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend(if order == ByteOrder::Big { unit.to_be_bytes() } else { unit.to_le_bytes() });
                }
            }
            Self::Utf32(order) => {
                out.extend(if order == ByteOrder::Big { code.to_be_bytes() } else { code.to_le_bytes() });
            }
        }
        Ok(())
    }

    /// Decodes bytes to strings and the undecodable bytes between them.
    pub(super) fn decode(self, bytes: &[u8]) -> Vec<Result<String, Vec<u8>>> {
        match self {
            Self::Utf8 { has_mark } => {
                let mark: &[u8] = if has_mark { &[0xef, 0xbb, 0xbf] } else { &[] };
                let bytes = bytes.strip_prefix(mark).unwrap_or(bytes);
                let chunks = bytes.utf8_chunks().flat_map(|chunk| {
                    let bad = (!chunk.invalid().is_empty()).then(|| Err(chunk.invalid().to_vec()));
                    [Some(Ok(chunk.valid().to_owned())), bad]
                });
                chunks.flatten().collect()
            }
            Self::Ascii => each(bytes, 1, |byte| byte[0].is_ascii().then(|| char::from(byte[0]))),
            Self::Latin1 => vec![Ok(bytes.iter().copied().map(char::from).collect())],
            Self::Utf16(order) => decode_utf16(bytes, order),
            Self::Utf32(order) => {
                let (is_big, bytes) = match order {
                    ByteOrder::Marked => match bytes {
                        [0, 0, 0xfe, 0xff, rest @ ..] => (true, rest),
                        rest => (false, rest.strip_prefix(&[0xff, 0xfe, 0, 0]).unwrap_or(rest)),
                    },
                    order => (order == ByteOrder::Big, bytes),
                };
                each(bytes, 4, |four| {
                    let four = <[u8; 4]>::try_from(four).ok()?;
                    char::from_u32(if is_big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
                })
            }
        }
    }
}

/// Decodes characters of `size` bytes each.
fn each(bytes: &[u8], size: usize, read: impl Fn(&[u8]) -> Option<char>) -> Vec<Result<String, Vec<u8>>> {
    let mut parts = Vec::new();
    for chunk in bytes.chunks(size) {
        let found = if chunk.len() == size { read(chunk) } else { None };
        push_part(&mut parts, found.ok_or_else(|| chunk.to_vec()));
    }
    parts
}

fn decode_utf16(bytes: &[u8], order: ByteOrder) -> Vec<Result<String, Vec<u8>>> {
    let (is_big, bytes) = match (order, bytes) {
        (ByteOrder::Marked, [0xfe, 0xff, rest @ ..]) => (true, rest),
        (ByteOrder::Marked, [0xff, 0xfe, rest @ ..]) => (false, rest),
        (order, rest) => (order == ByteOrder::Big, rest),
    };
    let units = bytes.chunks_exact(2).map(|two| {
        let two = [two[0], two[1]];
        if is_big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
    });
    let mut parts = Vec::new();
    for found in char::decode_utf16(units) {
        let found = found.map_err(|bad| {
            let unit = bad.unpaired_surrogate();
            if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() }.to_vec()
        });
        push_part(&mut parts, found);
    }
    if let [odd] = bytes.chunks_exact(2).remainder() {
        parts.push(Err(vec![*odd]));
    }
    parts
}

/// Appends a character to the preceding string, or undecodable bytes.
fn push_part(parts: &mut Vec<Result<String, Vec<u8>>>, found: Result<char, Vec<u8>>) {
    match (found, parts.last_mut()) {
        (Ok(c), Some(Ok(text))) => text.push(c),
        (Ok(c), _) => parts.push(Ok(c.to_string())),
        (Err(bad), _) => parts.push(Err(bad)),
    }
}
