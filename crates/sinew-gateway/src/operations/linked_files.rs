//! Files that a message to a workflow names by address: fetched by the gateway, under the rules of
//! webhooks, so that a file may be larger than a message.

use std::time::Duration;

use data_encoding::BASE64;
use sinew_protocol::a2a::{A2aError, Message, PartContent};
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::{Fault, code};

use super::A2aOperations;
use crate::file_link::own_file;
use crate::push_address::webhook_problem;

/// Maximum total size of the files of one message, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Time limit for one file.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

impl A2aOperations {
    /// Replaces addresses (`http`, `https`) in the parts of a message by the bytes there. An address
    /// of a file at a gateway of this mesh is read from the mesh. Addresses of artifacts stay.
    pub(super) async fn fetch_files(&self, message: &mut Message) -> Result<(), A2aError> {
        let is_web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
        let has_links =
            message.parts.iter().any(|part| matches!(&part.content, PartContent::Url(url) if is_web(url)));
        if !has_links {
            return Ok(());
        }
        let closed = |_| A2aError::internal("the gateway is shutting down");
        let _permit = self.shared.fetches.acquire().await.map_err(closed)?;
        let mut left = MAX_BYTES;
        for (nth, part) in message.parts.iter_mut().enumerate() {
            let PartContent::Url(url) = &part.content else { continue };
            if !is_web(url) {
                continue;
            }
            let bytes = self.fetch_file(url, left).await.map_err(|reason| refused(nth, &reason))?;
            left = left.saturating_sub(bytes.len());
            if part.filename.is_none() {
                part.filename = file_name(url);
            }
            part.content = PartContent::Raw(BASE64.encode(&bytes));
        }
        Ok(())
    }

    async fn fetch_file(&self, url: &str, max_bytes: usize) -> Result<Vec<u8>, String> {
        if let Some(address) = self.shared.signer.as_ref().and_then(|signer| own_file(signer, url)) {
            let bytes = self.stored_bytes(&address, max_bytes).await;
            return bytes.map(|bytes| bytes.to_vec()).map_err(|error| error.to_string());
        }
        let Some(web) = &self.shared.webhooks else {
            return Err("the gateway cannot fetch files; its user requires the role gateway".to_owned());
        };
        web.get(url, max_bytes, FETCH_TIMEOUT).await.map_err(|error| webhook_problem(&error))
    }
}

/// Returns the last segment of an address as a file name.
fn file_name(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    let last = url.path_segments()?.next_back()?;
    let name = percent_encoding::percent_decode_str(last).decode_utf8().ok()?;
    Some(name.into_owned()).filter(|name| !name.is_empty())
}

fn refused(nth: usize, reason: &str) -> A2aError {
    let text = format!("message.parts[{nth}].url: the file cannot be fetched: {reason}");
    error_of(&Fault::invalid(code::GATEWAY_MESSAGE_MALFORMED.as_str(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_at_the_end_of_its_address() {
        for (url, expected) in [
            ("https://x.example/a/r%20b.csv?k=1", Some("r b.csv")),
            ("https://x.example/", None),
            ("https://x.example/a/", None),
        ] {
            assert_eq!(file_name(url).as_deref(), expected, "{url}");
        }
    }
}
