//! `${NAME}` in the MCP servers of a request: which environment values are sent to which server.
//!
//! A request and its addresses are untrusted. Each name is therefore bound to the hosts that may
//! receive its value: otherwise a workflow could use its own server and receive all tokens of the
//! agent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;

use crate::environment::{VariableError, resolve_references};

/// Pseudo-host for servers that the agent starts itself, which receive the value in their
/// environment.
const LOCAL_SERVER: &str = "local";

/// Field of a request with the MCP servers, by the skill that adds each. Only workflow files write
/// it, never data.
const MCP_SERVERS: &str = "mcp";

/// Hosts that may receive the value of a variable, by its name.
#[derive(Clone, Debug, Default)]
pub struct HostReferences(BTreeMap<String, Vec<String>>);

impl HostReferences {
    /// Binds each name to hosts that may receive its value in a header, over `https`. `local` means
    /// the `env` of servers that the agent starts itself.
    pub fn new(hosts: BTreeMap<String, Vec<String>>) -> Self {
        Self(hosts)
    }

    /// Binds names to no host: only servers that the agent starts itself receive their values.
    pub fn local(names: &[String]) -> Self {
        Self(names.iter().map(|name| (name.clone(), vec![LOCAL_SERVER.to_owned()])).collect())
    }

    /// Returns whether no name is bound; then requests are unchanged.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the MCP servers of a request (`context.request` of a task) with all references
    /// replaced by values. No other string of a request is treated as a reference.
    ///
    /// Names that are not bound to the host of a server fail. Names without a binding fail too,
    /// unless they have a default. `on_secret` receives each substituted value, so that the caller
    /// can redact it in logs and errors.
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

    /// Substitutes values in the headers of a server with an address, or in the environment of one
    /// without.
    fn resolve(
        &self,
        server: &mut Value,
        environment: &dyn Fn(&str) -> Option<String>,
        on_secret: &mut dyn FnMut(&str),
    ) -> Result<(), VariableError> {
        let address = server.get("url").map(|url| url.as_str().and_then(|url| Url::parse(url).ok()));
        // The agent uses the address that was checked, so that another parser cannot interpret it
        // differently.
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

/// Returns the host of an encrypted address; `None` for any other.
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
        // Another parser would interpret the address differently.
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
