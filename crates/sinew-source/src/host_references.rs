//! `${NAME}` in the MCP servers of a request: which environment values are sent to which server.
//!
//! A request and the addresses in it are untrusted. Each name is therefore bound to the hosts that
//! may receive its value: otherwise a workflow could name its own server and receive all tokens of
//! the agent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;

use crate::environment::{VariableError, resolve_references};

/// In place of a host: servers that the program starts itself, which are given the value in their environment.
const LOCAL_SERVER: &str = "local";

/// Member of a request with the MCP servers, by the skill that brings each. Only workflow files write it, never data.
const MCP_SERVERS: &str = "mcp";

/// Hosts by the name of the variable whose value they may be sent.
#[derive(Clone, Debug, Default)]
pub struct HostReferences(BTreeMap<String, Vec<String>>);

impl HostReferences {
    /// Binds each name to hosts that may be sent its value in a header, over `https`; `local` stands for the `env` of
    /// servers that the agent starts itself.
    pub fn new(hosts: BTreeMap<String, Vec<String>>) -> Self {
        Self(hosts)
    }

    /// Binds names to no host: only servers that the agent starts itself are given their values.
    pub fn local(names: &[String]) -> Self {
        Self(names.iter().map(|name| (name.clone(), vec![LOCAL_SERVER.to_owned()])).collect())
    }

    /// Returns true if no name is bound: then requests stay as they are.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the MCP servers of a request (`context.request` of a task), with values in the place of references. No other
    /// text of a request is a reference, whatever it looks like.
    ///
    /// Names fail that are not bound to the host of a server; names without a binding fail too, unless they have a
    /// default. `on_secret` takes each value that went in, so that the caller can keep it out of logs and errors.
    pub fn servers_of(
        &self,
        request: &Value,
        environment: &dyn Fn(&str) -> Option<String>,
        on_secret: &mut dyn FnMut(&str),
    ) -> Result<Map<String, Value>, VariableError> {
        let mut servers = request.get(MCP_SERVERS).and_then(Value::as_object).cloned().unwrap_or_default();
        for server in servers.values_mut() {
            self.resolve(server, environment, on_secret)?;
        }
        Ok(servers)
    }

    /// Puts values into the headers of a server with an address, and into the environment of one without.
    fn resolve(
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
    fn texts_outside_of_servers_are_no_references() {
        let references =
            HostReferences::new(BTreeMap::from([("TOKEN".to_owned(), vec!["a.example".to_owned()])]));
        let request = json!({
            "text": "${TOKEN}",
            "input": { "url": "https://a.example", "headers": { "A": "${TOKEN}" } },
            "mcp": { "tickets": { "url": "https://a.example", "headers": { "A": "${TOKEN}", "B": "$${TOKEN}" } } },
        });
        let mut secrets = Vec::new();
        let environment = |_: &str| Some("value".to_owned());
        let servers = references.servers_of(&request, &environment, &mut |one| secrets.push(one.to_owned()));
        let headers = json!({ "A": "value", "B": "${TOKEN}" });
        let server = json!({ "url": "https://a.example/", "headers": headers });
        assert_eq!(Value::Object(servers.unwrap()), json!({ "tickets": server }));
        assert_eq!(secrets, ["value"]);
        assert!(references.servers_of(&json!("${TOKEN}"), &environment, &mut |_| ()).unwrap().is_empty());
    }

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
