//! How the shared types look in JSON, for the OpenAPI document.
//!
//! The shared types know nothing of the API; these mirrors describe them and are never built.
//! Tests hold each mirror against the JSON of the type that it describes.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use utoipa::ToSchema;

/// A network interface of a host.
#[derive(Serialize, ToSchema)]
#[schema(as = Interface)]
pub struct InterfaceSchema {
    /// The kernel's name, such as `eth0`.
    pub name: String,
    /// Its addresses in CIDR notation, host bits included.
    pub addresses: Vec<String>,
    /// Negotiated link rate in bits per second, where the driver tells one.
    pub speed: Option<u64>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Administratively up, with carrier.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// The RDMA device on this interface, such as `mlx5_0`.
    pub rdma: Option<String>,
}

/// One end of a path.
#[derive(Serialize, ToSchema)]
#[schema(as = PathEnd)]
pub struct PathEndSchema {
    /// The interface's name on its host.
    pub interface: String,
    /// The address that lanes are bound or connected to.
    #[schema(value_type = String)]
    pub address: IpAddr,
}

/// A pair of interfaces, one on each host, that reach each other.
#[derive(Serialize, ToSchema)]
#[schema(as = Path)]
pub struct PathSchema {
    /// Its number within the session.
    pub id: u16,
    /// The end at the source.
    #[schema(inline)]
    pub source: PathEndSchema,
    /// The end at the destination.
    #[schema(inline)]
    pub destination: PathEndSchema,
    /// The slower end's link rate in bits per second, where known.
    pub rate: Option<u64>,
    /// The smaller end's MTU in bytes.
    pub mtu: u32,
}

/// A host of the cluster and where its agent listens.
#[derive(Serialize, ToSchema)]
#[schema(as = Member)]
pub struct MemberSchema {
    /// Its name.
    pub host: String,
    /// Addresses with their port.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
}

/// Who is in the cluster, and which certificates are no longer good.
#[derive(Serialize, ToSchema)]
#[schema(as = Membership)]
pub struct MembershipSchema {
    /// Grows with every change.
    pub revision: u64,
    /// The host that has the authority's key.
    pub authority: String,
    /// Every host.
    #[schema(inline)]
    pub members: Vec<MemberSchema>,
    /// Hosts that may coordinate beside the authority's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coordinators: Vec<String>,
    /// The authority's signed list of removed certificates: an X.509 CRL, PEM.
    pub removals: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_trust::{Member, Membership};
    use drover_types::{BitRate, Interface, Path, PathEnd, PathId};

    fn keys(value: impl Serialize) -> Vec<String> {
        let value = serde_json::to_value(value).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }

    #[test]
    fn an_interface_is_described_as_it_is_sent() {
        let real = Interface {
            name: "eth0".into(),
            addresses: vec!["10.0.0.1/24".parse().unwrap()],
            speed: Some(BitRate(1)),
            mtu: 9000,
            up: true,
            loopback: false,
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        };
        let mirror = InterfaceSchema {
            name: "eth0".into(),
            addresses: vec!["10.0.0.1/24".into()],
            speed: Some(1),
            mtu: 9000,
            up: true,
            loopback: false,
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        };
        assert_eq!(
            serde_json::to_value(&real).unwrap(),
            serde_json::to_value(&mirror).unwrap()
        );
    }

    #[test]
    fn a_path_is_described_as_it_is_sent() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let end = || PathEnd {
            interface: "eth0".into(),
            address,
        };
        let real = Path {
            id: PathId(1),
            source: end(),
            destination: end(),
            rate: None,
            mtu: 1500,
        };
        let end = || PathEndSchema {
            interface: "eth0".into(),
            address,
        };
        let mirror = PathSchema {
            id: 1,
            source: end(),
            destination: end(),
            rate: None,
            mtu: 1500,
        };
        assert_eq!(keys(&real), keys(&mirror));
        assert_eq!(
            serde_json::to_value(&real).unwrap(),
            serde_json::to_value(&mirror).unwrap()
        );
    }

    #[test]
    fn a_membership_is_described_as_it_is_sent() {
        let addresses: Vec<SocketAddr> = vec!["10.0.0.1:7470".parse().unwrap()];
        let real = Membership {
            revision: 1,
            authority: "a".parse().unwrap(),
            members: vec![Member {
                host: "a".parse().unwrap(),
                addresses: addresses.clone(),
            }],
            coordinators: vec!["a".parse().unwrap()],
            removals: "list".into(),
        };
        let mirror = MembershipSchema {
            revision: 1,
            authority: "a".into(),
            members: vec![MemberSchema {
                host: "a".into(),
                addresses,
            }],
            coordinators: vec!["a".into()],
            removals: "list".into(),
        };
        assert_eq!(
            serde_json::to_value(&real).unwrap(),
            serde_json::to_value(&mirror).unwrap()
        );
    }
}
