//! Whether two hosts name one server. Pure.
//!
//! # Invariant
//! What a host reaches by itself is not known by its address: two hosts may both have it (a network that each has for itself, such as
//! libvirt's 192.168.122.0/24), and two servers by it.

use std::net::IpAddr;

use drover_api::{FileSeen, FileServer};

/// Those of a host's addresses by which others may reach it, of all that it has.
pub fn reachable(all: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    all.filter(|address| !is_near(*address)).collect()
}

/// What is seen of a file by a host of these addresses, with whether its server is that host.
pub fn by_host(seen: &FileSeen, own: &[IpAddr]) -> FileSeen {
    let mut seen = seen.clone();
    if let Some(server) = &mut seen.server {
        server.is_own = has_one_of(server, own);
    }
    seen
}

/// Whether it is called so, or reached by it.
pub fn has_one_of(server: &FileServer, addresses: &[IpAddr]) -> bool {
    self::addresses(server).any(|address| addresses.contains(&address))
}

/// By what it is called, or by where it is reached: a name may stand for several addresses, and an address have several names.
pub fn is_one(source: &FileServer, here: &FileServer) -> bool {
    let is_name = source.name.eq_ignore_ascii_case(&here.name);
    let is_address = source.address.is_some() && source.address == here.address;
    let are_both_own = source.is_own && here.is_own;
    !is_nearby(source) && !is_nearby(here) && !are_both_own && (is_name || is_address)
}

/// Whether a volume of one name may be one: each host names the server that it has the volume's description from, which may be itself. Two
/// that are named may be of two clusters, of which one is a copy of the other with the same ids (geo-replication).
pub fn may_be_one_cluster(source: &FileServer, here: &FileServer) -> bool {
    let may_be_itself = |server: &FileServer| server.is_own || is_nearby(server);
    may_be_itself(source) || may_be_itself(here) || is_one(source, here)
}

/// Whether what it is called or where it is reached is another machine on another host.
fn is_nearby(server: &FileServer) -> bool {
    server.name.to_ascii_lowercase().starts_with("localhost") || addresses(server).any(is_near)
}

/// Whether it is another machine's on another host, or on another cable.
fn is_near(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    address.is_loopback() || address.is_unspecified() || is_link_local
}

/// What of its names is an address, in brackets or with an interface (`fe80::1%eth0`).
fn addresses(server: &FileServer) -> impl Iterator<Item = IpAddr> {
    let names = [Some(&server.name), server.address.as_ref()];
    names.into_iter().flatten().filter_map(|name| {
        let name = name.trim_matches(['[', ']']);
        let address = name.split_once('%').map_or(name, |(address, _)| address);
        address.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, address: &str) -> FileServer {
        FileServer {
            name: name.to_owned(),
            address: Some(address.to_owned()),
            is_own: false,
            volume: None,
            path: "/export/web.img".to_owned(),
        }
    }

    #[test]
    fn a_server_is_known_by_its_name_or_address_and_not_by_one_that_each_host_has_for_itself() {
        let of = |name, address| server(name, address);
        assert!(is_one(&of("nas", "10.0.0.5"), &of("NAS", "10.0.1.5")));
        assert!(is_one(&of("nas", "10.0.0.5"), &of("store", "10.0.0.5")));
        assert!(!is_one(&of("nas", "10.0.0.5"), &of("store", "10.0.0.6")));
        for (name, address) in [
            ("localhost", "127.0.0.1"),
            ("nas", "127.0.1.1"),
            ("nas", "::1"),
            ("169.254.0.5", "169.254.0.5"),
            ("[fe80::1%eth0]", "fe80::1%eth0"),
        ] {
            assert!(!is_one(&of(name, address), &of(name, address)), "{name}");
        }
    }

    #[test]
    fn a_server_that_both_hosts_are_themselves_is_not_one_and_that_of_one_of_them_is() {
        let of = |is_own| FileServer {
            is_own,
            ..server("192.168.122.1", "192.168.122.1")
        };
        assert!(!is_one(&of(true), &of(true)));
        assert!(is_one(&of(true), &of(false)));
        assert!(is_one(&of(false), &of(true)));
    }

    #[test]
    fn of_a_hosts_addresses_those_count_by_which_others_reach_it() {
        let all = [
            "127.0.0.1",
            "::1",
            "169.254.1.1",
            "fe80::1",
            "10.0.0.9",
            "fd00::9",
        ];
        let own = reachable(all.iter().map(|address| address.parse().unwrap()));
        let expected: [IpAddr; 2] = ["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()];
        assert_eq!(own, expected);
        let seen = |name, address| FileSeen {
            file_system: "nfs4".to_owned(),
            fsid: None,
            server: Some(server(name, address)),
            inode: Some(12),
        };
        let is_own = |name, address| by_host(&seen(name, address), &own).server.unwrap().is_own;
        assert!(is_own("nas", "10.0.0.9"));
        assert!(is_own("[fd00::9]", "?"));
        assert!(!is_own("nas", "10.0.0.5"));
        assert!(!is_own("nas", "127.0.0.1"), "that is near anyway");
    }
}
