//! Addresses of push notifications, and reasons why one is unreachable.

use sinew_agents::AgentError;

/// Returns why a webhook is unreachable, with the remedy for gateways: that for agent files does
/// not apply here.
pub(crate) fn webhook_problem(error: &AgentError) -> String {
    match error {
        AgentError::Address { host, address } => format!(
            "address {address} of host '{host}' is not public; start the gateway with --push-to-private-addresses to \
             reach it"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use sinew_agents::{ReachableAddresses, WebClient};

    use super::*;

    #[test]
    fn refused_webhooks_name_a_remedy_of_gateways() {
        let web = WebClient::new(ReachableAddresses::Public).unwrap();
        for (address, problem) in [
            (
                "http://127.0.0.1:1/",
                "address 127.0.0.1 of host '127.0.0.1' is not public; start the gateway with \
                 --push-to-private-addresses to reach it",
            ),
            ("ftp://example.com/", "the address has neither http nor https"),
            ("http://ann:pw@example.com/", "the address contains a user or a password"),
        ] {
            assert_eq!(webhook_problem(&web.check(address).unwrap_err()), problem);
        }
    }
}
