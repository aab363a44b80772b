//! An asset, with an address that changes with its content.

use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use crate::api_client::join_segments;
use crate::page_request::BASE;

/// Media type of modules.
pub(crate) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Minimum size of a file that is compressed.
const MIN_PACKED_BYTES: usize = 8 << 10;

/// A file with an address that changes with its content.
#[derive(Debug)]
pub(crate) struct PageFile {
    pub(crate) name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) content: String,
    /// The content as gzip, created on first use.
    packed: OnceLock<Bytes>,
    /// Address with a prefix of the content's digest.
    pub(crate) address: String,
}

impl PageFile {
    pub(crate) fn of(name: &'static str, media_type: &'static str, content: String) -> Self {
        let digest = Sha256::digest(content.as_bytes());
        let version = hex::encode(&digest[..6]);
        let address = format!("{}?v={version}", join_segments(BASE, &["assets", name]));
        Self { name, media_type, content, packed: OnceLock::new(), address }
    }

    /// The content as gzip; `None` if it is too small to benefit.
    pub(crate) fn packed(&self) -> Option<Bytes> {
        if self.content.len() < MIN_PACKED_BYTES {
            return None;
        }
        let packed = self.packed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            // Writing to memory cannot fail; an empty result is never sent.
            let written = encoder.write_all(self.content.as_bytes()).and_then(|()| encoder.finish());
            written.unwrap_or_default().into()
        });
        Some(packed.clone()).filter(|packed| !packed.is_empty())
    }
}

/// The text of a module with addresses in place of the imported names: browsers do not resolve bare
/// names, and addresses contain the digest of their content.
pub(crate) fn with_addresses(text: &str, addresses: &[(&str, String)]) -> String {
    let named = addresses.iter().filter(|(name, _)| text.contains(*name));
    named.fold(text.to_owned(), |text, (name, address)| {
        text.replace(&format!("from '{name}'"), &format!("from '{address}'"))
            .replace(&format!("from \"{name}\""), &format!("from \"{address}\""))
    })
}
