//! What of this host's interfaces a guest may arrive over.

use drover_migrate::paths::{Endpoint, LeftOut, LeftOutReason, Selected, Selection, Side, select};
use drover_types::{Interface, NicPlacement, PathEnd};

use super::placing;
use crate::config::Config;

/// The interfaces and addresses that this host's configuration lets migrations use.
#[derive(Debug, Default)]
pub struct Offered {
    /// With those of their addresses alone.
    pub interfaces: Vec<Interface>,
    /// Each of these addresses, and where the threads of lanes to it run.
    pub nics: Vec<NicPlacement>,
    /// What is to be said of the others.
    pub left_out: Vec<String>,
}

impl Offered {
    /// Of these interfaces.
    pub async fn of(config: &Config, interfaces: Vec<Interface>) -> Self {
        let (interfaces, selected) = offered(&config.networks, interfaces);
        let (endpoints, host) = (&selected.endpoints, &config.host);
        // Loopback is nobody's loss, nor is one address of an interface that is used.
        let silent = |left: &&LeftOut| {
            let same = |end: &Endpoint| end.interface == left.interface;
            matches!(left.reason, LeftOutReason::Loopback) || endpoints.iter().any(same)
        };
        let left_out = selected.left_out.iter().filter(|left| !silent(left));
        let said = left_out
            .map(|left| format!("{host} does not offer {}: {}", left.interface, left.reason));
        let ends: Vec<PathEnd> = endpoints.iter().map(end).collect();
        Self {
            nics: placing::nics(config, &ends).await,
            left_out: said.collect(),
            interfaces,
        }
    }
}

/// Of these interfaces and their addresses those that this configuration lets migrations use; and of all, why.
pub fn offered(networks: &Selection, mut interfaces: Vec<Interface>) -> (Vec<Interface>, Selected) {
    let selected = select(Side::Destination, &interfaces, networks);
    for interface in &mut interfaces {
        let name = &interface.name;
        interface.addresses.retain(|address| {
            let same = |end: &Endpoint| end.interface == *name && end.address == *address;
            selected.endpoints.iter().any(same)
        });
    }
    interfaces.retain(|interface| !interface.addresses.is_empty());
    (interfaces, selected)
}

fn end(endpoint: &Endpoint) -> PathEnd {
    PathEnd {
        interface: endpoint.interface.clone(),
        address: endpoint.address.address(),
    }
}
