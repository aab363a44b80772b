//! `${NAME}` in what an agent is asked with: resolved here, where the call is made, and nowhere before.

use serde_json::Value;
use sinew_source::VariableError;

/// Puts values of this process's environment into the texts of a value, for instance into the headers of the MCP servers
/// that a request names. Plans, journals and events hold the reference only.
///
/// Only names in `allowed` are read; `NATS_*` and `SINEW_*` never are. A default, `${NAME, default}`, stands in for a
/// variable that is not set or not allowed. The result holds secrets: keep it out of outputs, logs and errors.
pub fn resolve_references(value: &Value, allowed: &[&str]) -> Result<Value, VariableError> {
    let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    let environment = |name: &str| std::env::var(name).ok();
    sinew_source::resolve_references(value, &allowed, &environment, &mut |_| {})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_agent_allows_is_read() {
        // Cargo sets this one for every test.
        let name = "CARGO_PKG_NAME";
        let asked = json!({"headers": {"X": "name ${CARGO_PKG_NAME}", "Y": "${HOME, none}"}});
        let resolved = resolve_references(&asked, &[name]).unwrap();
        assert_eq!(resolved, json!({"headers": {"X": "name sinew-agent", "Y": "none"}}));
        assert_eq!(resolve_references(&asked, &["HOME"]).unwrap_err().code(), "SINEW-1017");
    }
}
