//! Where other hosts find this one's agent.

use std::net::{IpAddr, SocketAddr};

use drover_api::{ErrorCode, Refusal};
use drover_types::Interface;

use crate::config::Config;
use crate::facts;

/// The addresses at which this host listens, as others can use them.
///
/// # Errors
/// There are none, or the kernel does not tell them.
pub async fn advertised(config: &Config) -> Result<Vec<SocketAddr>, Refusal> {
    let interfaces = facts::interfaces().await.map_err(|error| {
        let message = format!("cannot read the interfaces of this host: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let found = among(&config.listen, &interfaces);
    if found.is_empty() {
        let message = format!(
            "{} has no address at which other hosts could reach it",
            config.host
        );
        return Err(Refusal::new(ErrorCode::NoPath, message)
            .next("bring an interface up, or set `api.listen` in droverd.toml"));
    }
    Ok(found)
}

fn among(listen: &[SocketAddr], interfaces: &[Interface]) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in listen {
        if !address.ip().is_unspecified() {
            found.push(*address);
            continue;
        }
        let usable = interfaces.iter().filter(|i| i.up && !i.loopback);
        let own = usable.flat_map(|i| i.addresses.iter().map(|a| a.address()));
        let fits = |ip: &IpAddr| ip.is_ipv4() == address.ip().is_ipv4() && reaches(ip);
        found.extend(
            own.filter(fits)
                .map(|ip| SocketAddr::new(ip, address.port())),
        );
    }
    let mut once: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !once.contains(&address) {
            once.push(address);
        }
    }
    once.truncate(drover_trust::limits::ADDRESSES);
    once
}

/// Whether it says to another host what it says here; link-local ones need an interface's name.
fn reaches(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_loopback(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, up: bool, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            speed: None,
            mtu: 1500,
            up,
            loopback: name == "lo",
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    #[test]
    fn every_address_that_another_host_can_use_is_advertised() {
        let interfaces = [
            interface("lo", true, &["127.0.0.1/8", "::1/128"]),
            interface("eth0", true, &["10.0.0.1/24", "fe80::1/64", "fd00::1/64"]),
            interface("eth1", false, &["10.0.1.1/24"]),
            interface("eth2", true, &["169.254.3.4/16", "10.0.2.1/24"]),
        ];
        let shown = |listen: &[&str]| -> Vec<String> {
            let listen: Vec<_> = listen.iter().map(|a| a.parse().unwrap()).collect();
            let found = among(&listen, &interfaces);
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&["0.0.0.0:7470"]), ["10.0.0.1:7470", "10.0.2.1:7470"]);
        assert_eq!(shown(&["[::]:7470"]), ["[fd00::1]:7470"]);
        assert_eq!(shown(&["10.9.9.9:1", "10.9.9.9:1"]), ["10.9.9.9:1"]);
    }
}
