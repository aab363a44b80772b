//! `${NAME}` in the MCP servers of a request: which values of the environment go to which server.
//!
//! A request comes from others, and so does the address in it. Each name is therefore bound to the hosts that may be sent
//! its value: otherwise a workflow could name a server of its own and be sent every token of the agent.

use std::collections::BTreeMap;

use reqwest::Url;
use serde_json::Value;
use sinew_source::{VariableError, resolve_references};

/// In place of a host: servers that the program starts itself, which are given the value in their environment.
const LOCAL_SERVER: &str = "local";

/// Hosts by the name of the variable whose value they may be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostReferences(BTreeMap<String, Vec<String>>);

impl HostReferences {
    pub(crate) fn new(hosts: BTreeMap<String, Vec<String>>) -> Self {
        Self(hosts)
    }

    /// Names that only servers started by the program are given.
    pub(crate) fn local(names: &[String]) -> Self {
        Self(names.iter().map(|name| (name.clone(), vec![LOCAL_SERVER.to_owned()])).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts values into the headers of a server with an address, and into the environment of one without.
    pub(crate) fn resolve(
        &self,
        server: &mut Value,
        environment: &dyn Fn(&str) -> Option<String>,
        on_secret: &mut dyn FnMut(&str),
    ) -> Result<(), VariableError> {
        let address = server.get("url").map(|url| url.as_str().and_then(|url| Url::parse(url).ok()));
        // The program reads the address that was checked, not another reading of the same text.
        if let Some(Some(address)) = &address {
            server["url"] = address.as_str().into();
        }
        for (key, place) in [
            ("headers", address.as_ref().and_then(Option::as_ref).and_then(secure_host)),
            ("env", address.is_none().then(|| LOCAL_SERVER.to_owned())),
        ] {
            if let Some(texts) = server.get_mut(key) {
                let allowed = self.names_for(place.as_deref());
                *texts = resolve_references(texts, &allowed, environment, on_secret)?;
            }
        }
        Ok(())
    }

    fn names_for(&self, place: Option<&str>) -> Vec<String> {
        let takes = |hosts: &Vec<String>| {
            place.is_some_and(|place| hosts.iter().any(|host| host.eq_ignore_ascii_case(place)))
        };
        self.0.iter().filter(|(_, hosts)| takes(hosts)).map(|(name, _)| name.clone()).collect()
    }
}

/// The host of an address that nobody on the way can read; none of others.
fn secure_host(address: &Url) -> Option<String> {
    let host = address.host_str()?;
    let is_loopback = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let is_secure = address.scheme() == "https" || (address.scheme() == "http" && is_loopback);
    is_secure.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_go_to_the_hosts_that_their_names_are_bound_to() {
        let references = HostReferences::new(BTreeMap::from([
            ("TOKEN".to_owned(), vec!["tickets.example".to_owned(), "127.0.0.1".to_owned()]),
            ("KEY".to_owned(), vec![LOCAL_SERVER.to_owned()]),
        ]));
        let resolved = |mut server: Value| {
            references
                .resolve(&mut server, &|name| Some(format!("value of {name}")), &mut |_| ())
                .map(|()| server)
                .map_err(|error| error.code())
        };
        let header = |url: &str| json!({ "url": url, "headers": { "A": "Bearer ${TOKEN}" } });
        for url in
            ["https://tickets.example/mcp", "https://TICKETS.example:8443/mcp", "http://127.0.0.1:80/mcp"]
        {
            let server = resolved(header(url)).unwrap();
            assert_eq!(server["headers"]["A"], "Bearer value of TOKEN", "{url}");
        }
        for url in [
            "http://tickets.example/mcp",
            "https://evil.example/mcp",
            "https://tickets.example.evil.example/",
            "https://tickets.example@evil.example/",
            "https://evil.example/?tickets.example",
            "https://evil.example\\@tickets.example/",
            "ftp://tickets.example/",
            "tickets.example",
            "local",
            "",
        ] {
            assert_eq!(resolved(header(url)), Err("SINEW-1017"), "{url}");
        }
        // Another reading of the same text would lead elsewhere.
        let server = resolved(header("https://tickets.example\\@evil.example/")).unwrap();
        assert_eq!(server["url"], "https://tickets.example/@evil.example/");
        for (server, expected) in [
            (json!({ "command": "a", "env": { "A": "${KEY}" } }), Ok(json!("value of KEY"))),
            (json!({ "command": "a", "env": { "A": "${TOKEN}" } }), Err("SINEW-1017")),
            (json!({ "url": "https://tickets.example", "env": { "A": "${KEY}" } }), Err("SINEW-1017")),
        ] {
            assert_eq!(
                resolved(server.clone()).map(|server| server["env"]["A"].clone()),
                expected,
                "{server}"
            );
        }
        let default = json!({ "url": "https://evil.example", "headers": { "A": "${TOKEN, none}" } });
        assert_eq!(resolved(default).unwrap()["headers"]["A"], "none");
    }
}
