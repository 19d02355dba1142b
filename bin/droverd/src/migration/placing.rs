//! Where the threads of lanes are to run, as the configuration and this host's hardware have it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use drover_types::{NicPlacement, PathEnd, Placement, with_sources};

use crate::config::{Config, PlaceBy};
use crate::facts;

/// Of lanes that begin or end at these addresses of this host.
pub async fn nics(config: &Config, ends: &[PathEnd]) -> Vec<NicPlacement> {
    let mut by_name: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
    for end in ends {
        let addresses = by_name.entry(&end.interface).or_default();
        addresses.push(end.address);
    }
    let names: Vec<&str> = by_name.keys().copied().collect();
    let read = match config.migration.placement {
        PlaceBy::None => Err("`migration.placement` is \"none\"".to_owned()),
        PlaceBy::Nic => facts::placements(&names)
            .await
            .map_err(|error| with_sources(&error)),
    };
    let placement = |name: &str| match &read {
        Ok(read) => read.get(name).cloned(),
        Err(why) => Some(Placement::anywhere(why.clone())),
    };
    let nic = |(name, addresses)| {
        let unknown = || Placement::anywhere("the host tells nothing of it");
        NicPlacement {
            addresses,
            placement: placement(name).unwrap_or_else(unknown),
        }
    };
    by_name.into_iter().map(nic).collect()
}
