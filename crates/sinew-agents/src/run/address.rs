//! The addresses to which a request can connect, and the resolver that enforces them.
//!
//! The resolver passes the checked addresses to the connector. A second lookup, which DNS rebinding
//! exploits, never happens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::AgentError;

/// Returns whether `address` is public: not in a special-purpose registry (RFC 6890).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local() // includes cloud metadata services
        || address.is_documentation()
        || a == 0
        || a >= 224 // multicast, reserved, broadcast
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 192 && b == 88 && c == 99) // 6to4 relays
        || (a == 198 && (18..20).contains(&b))) // benchmarks
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let [a, b, ..] = address.segments();
    // Only 2000::/3 is allocated; some of its blocks have special purposes.
    a & 0xe000 == 0x2000
        && !(a == 0x2001 && b < 0x0200) // protocol assignments, Teredo
        && !(a == 0x2001 && b == 0x0db8) // documentation
        && a != 0x2002 // 6to4 carries any IPv4 address
        && !(a == 0x3fff && b < 0x1000) // documentation
}

/// Resolves names and refuses those with an address that is not public.
#[derive(Debug)]
pub(crate) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            check(&host, found.iter().map(SocketAddr::ip))?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Refuses a name if any of its addresses is not public: mixed answers are a sign of DNS rebinding.
pub(crate) fn check(host: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), AgentError> {
    match addresses.into_iter().find(|&address| !is_public(address)) {
        Some(address) => Err(AgentError::Address { host: host.to_owned(), address }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_and_special_addresses() {
        let public = "1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 \
                      198.20.0.1 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:81b::200e 2001:4860:4860::8888 \
                      ::ffff:8.8.8.8";
        let special = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.0.1 \
                       169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 \
                       192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 \
                       255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 \
                       64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:10::1 2001:db8::1 2002:7f00:1::1 3fff::1 fc00::1 \
                       fd00:ec2::254 fe80::1 fec0::1 ff02::1 5f00::1 ::ffff:0:127.0.0.1";
        for (addresses, expected) in [(public, true), (special, false)] {
            for address in addresses.split_whitespace() {
                assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
            }
        }
    }

    #[test]
    fn one_bad_address_spoils_the_name() {
        let mixed = ["8.8.8.8", "10.0.0.1"].map(|address| address.parse().unwrap());
        let error = check("mixed.example", mixed).unwrap_err();
        assert!(
            matches!(error, AgentError::Address { address: IpAddr::V4(found), .. } if found.is_private()),
            "{error}"
        );
        assert_eq!(check("good.example", ["8.8.8.8".parse().unwrap()]), Ok(()));
    }

    #[tokio::test]
    async fn names_of_this_machine_are_refused() {
        let error = PublicOnly.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert!(
            error.downcast_ref::<AgentError>().is_some_and(|error| error.code() == "SINEW-5030"),
            "{error}"
        );
    }
}
