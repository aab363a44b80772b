//! Signed addresses of files, and results that contain them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_protocol::a2a::Task;
use sinew_protocol::artifact::StoredAt;

use crate::access::now_ms;
use crate::gateway_signer::GatewaySigner;

/// Lifetime of an address.
const LINK_LIFETIME: Duration = Duration::from_hours(1);
/// Maximum length of an address that is parsed.
const MAX_TOKEN_BYTES: usize = 8_192;
/// Prefix of signed data: a signature of a file is not valid for anything else.
const PURPOSE: &str = "sinew file 1 ";
/// Prefix of addresses on the mesh in JSON.
const MESH_ADDRESS: &[u8] = b"\"artifact://";
/// Characters of a name that are not escaped in a path.
pub(crate) const PATH_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Permission to read a file until it expires.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FileGrant {
    /// Address on the mesh.
    #[serde(rename = "a")]
    pub(crate) address: String,
    /// Media type that the result declares.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// Expiry in milliseconds since 1970.
    #[serde(rename = "e")]
    pub(crate) ends_at: u64,
}

/// Creates file addresses for the client of one request.
#[derive(Clone)]
pub(crate) struct FileLinks {
    signer: Arc<GatewaySigner>,
    /// Address of the gateway as seen by that client.
    base: Arc<str>,
}

impl std::fmt::Debug for FileLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileLinks").field("base", &self.base).finish_non_exhaustive()
    }
}

impl FileLinks {
    pub(crate) fn new(signer: Arc<GatewaySigner>, base: &str) -> Self {
        Self { signer, base: base.into() }
    }

    /// Replaces addresses of the mesh in a result by addresses of this gateway.
    pub(crate) fn in_value(&self, value: Box<RawValue>) -> Box<RawValue> {
        match self.rewritten(value.get().as_bytes()) {
            Some(linked) => sinew_protocol::jsonrpc::raw(&linked),
            None => value,
        }
    }

    /// Does the same for an event.
    pub(crate) fn in_event(&self, body: Bytes) -> Bytes {
        match self.rewritten(&body) {
            Some(linked) => serde_json::to_vec(&linked).map_or(body, Bytes::from),
            None => body,
        }
    }

    /// Returns `None` for a result that contains no file on the mesh, which is the usual case.
    fn rewritten(&self, json: &[u8]) -> Option<Value> {
        if !json.windows(MESH_ADDRESS.len()).any(|window| window == MESH_ADDRESS) {
            return None;
        }
        let mut value: Value = serde_json::from_slice(json).ok()?;
        self.rewrite(&mut value, None);
        Some(value)
    }

    /// Rewrites addresses in parts and in data of agents: a client cannot open one of the mesh.
    fn rewrite(&self, value: &mut Value, media_type: Option<&str>) {
        match value {
            Value::String(text) => {
                let Ok(address) = text.parse::<StoredAt>() else { return };
                let lifetime = u64::try_from(LINK_LIFETIME.as_millis()).unwrap_or(u64::MAX);
                *text = self.link(&FileGrant {
                    address: address.to_string(),
                    media_type: media_type.map(str::to_owned),
                    ends_at: now_ms().saturating_add(lifetime),
                });
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(item, None)),
            Value::Object(members) => {
                let declared = ["mediaType", "media_type"].into_iter().find_map(|name| members.get(name));
                let declared = declared.and_then(Value::as_str).map(str::to_owned);
                for (name, member) in members.iter_mut() {
                    self.rewrite(member, declared.as_deref().filter(|_| name == "url"));
                }
            }
            _ => {}
        }
    }

    /// Rewrites the addresses in a task.
    pub(crate) fn in_task(&self, task: &mut Task) {
        let linked = serde_json::to_vec(&*task).ok().and_then(|json| self.rewritten(&json));
        if let Some(linked) = linked.and_then(|linked| serde_json::from_value(linked).ok()) {
            *task = linked;
        }
    }

    /// Returns the address of a file, with its readable name at the end.
    fn link(&self, grant: &FileGrant) -> String {
        let name = grant.address.parse::<StoredAt>().map(|at| at.uri.artifact.name.to_string());
        let name = name.unwrap_or_default();
        // Plain data with string keys always serializes.
        let payload = BASE64URL_NOPAD.encode(&serde_json::to_vec(grant).unwrap_or_default());
        let signature = self.signer.sign(format!("{PURPOSE}{payload}").as_bytes());
        let signature = BASE64URL_NOPAD.encode(&signature);
        format!("{}/files/{payload}.{signature}/{}", self.base, utf8_percent_encode(&name, PATH_SEGMENT))
    }
}

/// Returns the address on the mesh of a file whose address a gateway of this mesh created; `None` for
/// another address, and for one that expired.
pub(crate) fn own_file(signer: &GatewaySigner, url: &str) -> Option<StoredAt> {
    let (token, _name) = url.split_once("/files/")?.1.split_once('/')?;
    read_token(signer, token, now_ms())?.address.parse().ok()
}

/// Returns the grant of an address, or `None` if it is forged, modified or expired.
pub(crate) fn read_token(signer: &GatewaySigner, token: &str, now: u64) -> Option<FileGrant> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let (payload, signature) = token.split_once('.')?;
    let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    signer.has_signed(format!("{PURPOSE}{payload}").as_bytes(), &signature).then_some(())?;
    let grant: FileGrant = serde_json::from_slice(&BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?).ok()?;
    (now < grant.ends_at).then_some(grant)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn links() -> FileLinks {
        FileLinks::new(Arc::new(GatewaySigner::of_seed(&[7; 32]).unwrap()), "https://gateway.example")
    }

    fn address() -> String {
        let (hash, key) = ("0f".repeat(32), "A".repeat(43));
        format!("artifact://orders/u/e1/report%20a.pdf?version=0&task=t1&sha256={hash}&key={key}")
    }

    #[test]
    fn parts_get_addresses_of_the_gateway() {
        let task = json!({"task": {"artifacts": [{"parts": [
            {"url": address(), "mediaType": "application/pdf"},
            {"url": "https://example.com/a"},
            {"data": {"url": address(), "parts": [{"url": address()}]}},
        ]}], "metadata": {"parts": [{"url": address()}]}}});
        let linked = links().in_event(Bytes::from(task.to_string()));
        let linked: Value = serde_json::from_slice(&linked).unwrap();
        let parts = &linked["task"]["artifacts"][0]["parts"];
        let url = parts[0]["url"].as_str().unwrap();
        let rest = url.strip_prefix("https://gateway.example/files/").unwrap();
        let (token, name) = rest.split_once('/').unwrap();
        assert_eq!(name, "report%20a.pdf");
        let grant = read_token(&links().signer, token, now_ms()).unwrap();
        assert_eq!((grant.address, grant.media_type.as_deref()), (address(), Some("application/pdf")));
        assert!(grant.ends_at > now_ms());
        assert_eq!(own_file(&links().signer, url).unwrap().to_string(), address());
        assert_eq!(own_file(&links().signer, "https://example.com/files/x/y"), None);
        assert_eq!(parts[1], task["task"]["artifacts"][0]["parts"][1]);
        // Data of agents names files as well.
        for data in [&parts[2]["data"]["url"], &parts[2]["data"]["parts"][0]["url"]] {
            assert!(data.as_str().unwrap().starts_with("https://gateway.example/files/"), "{data}");
        }
        assert!(!linked.to_string().contains("artifact://"), "{linked}");
    }

    #[test]
    fn forged_changed_and_ended_addresses_grant_nothing() {
        let links = links();
        let grant = |ends_at| FileGrant { address: address(), media_type: None, ends_at };
        let token = |link: String| link.split('/').nth(4).unwrap().to_owned();
        let good = token(links.link(&grant(1_000)));
        assert!(read_token(&links.signer, &good, 999).is_some());
        assert!(read_token(&links.signer, &good, 1_000).is_none(), "ended");
        let (payload, signature) = good.split_once('.').unwrap();
        let later = token(links.link(&grant(2_000)));
        let mixed = format!("{}.{signature}", later.split_once('.').unwrap().0);
        let other = GatewaySigner::of_seed(&[8; 32]).unwrap();
        let foreign = BASE64URL_NOPAD.encode(&other.sign(format!("{PURPOSE}{payload}").as_bytes()));
        let unsigned =
            format!("{payload}.{}", BASE64URL_NOPAD.encode(&links.signer.sign(payload.as_bytes())));
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        for bad in [
            mixed,
            format!("{payload}.{foreign}"),
            unsigned,
            format!("{payload}."),
            payload.to_owned(),
            String::new(),
            long,
        ] {
            assert!(read_token(&links.signer, &bad, 1).is_none(), "{bad}");
        }
    }
}
