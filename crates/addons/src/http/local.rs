//! Link-local addresses, at which cloud machines serve their own credentials.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// A host is, or resolves to, nothing but link-local addresses.
#[derive(Debug, thiserror::Error)]
#[error("its host has a link-local address, which is not asked")]
pub(super) struct LinkLocal;

/// Where one cloud has its metadata although it is no link-local address.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether a url's host is written as a link-local address.
#[must_use]
pub fn is_link_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => forbidden(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => forbidden(IpAddr::V6(address)),
        Some(Host::Domain(_)) | None => false,
    }
}

fn forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => match mapped(address) {
            Some(address) => forbidden(address),
            None => address.is_unicast_link_local() || address == METADATA,
        },
    }
}

fn mapped(address: Ipv6Addr) -> Option<IpAddr> {
    address.to_ipv4_mapped().map(IpAddr::V4)
}

/// Resolves names as the system does, without the link-local addresses among what it finds.
pub(super) struct NoLinkLocal;

impl Resolve for NoLinkLocal {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (bad, good): (Vec<SocketAddr>, Vec<_>) =
                found.partition(|address| forbidden(address.ip()));
            if good.is_empty() && !bad.is_empty() {
                return Err(LinkLocal.into());
            }
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_that_lead_to_link_local_addresses_are_refused() {
        // The system's resolver takes an address for a name.
        let rows = [
            ("127.0.0.1", true),
            ("169.253.255.255", true),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("febf::1", false),
            ("fec0::1", true),
            ("fd00:ec2::254", false),
            ("fd00:ec2::253", true),
        ];
        for (name, allowed) in rows {
            let found = NoLinkLocal.resolve(name.parse().unwrap()).await;
            let refused = found.err().map(|error| error.is::<LinkLocal>());
            assert_eq!(refused, (!allowed).then_some(true), "{name}");
        }
    }
}
