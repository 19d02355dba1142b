//! Rates of links, for limits in percent.

use drover_api::{Limit, MigrationView};
use drover_migrate::paths::{Selection, Side, select};
use drover_types::{BitRate, Interface};

use crate::facts;

/// The interfaces of this host.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// The names of all.
    pub names: Vec<String>,
    /// All together that migrations may use; none when the rate of one is not known.
    pub host: Option<BitRate>,
    interfaces: Vec<Interface>,
}

impl Links {
    /// As they are now; none when the kernel does not tell.
    pub async fn read(selection: &Selection) -> Self {
        match facts::interfaces().await {
            Ok(interfaces) => Self::of_all(interfaces, selection),
            Err(error) => {
                tracing::warn!(%error, "the rates of links are not known");
                Self::default()
            }
        }
    }

    fn of_all(interfaces: Vec<Interface>, selection: &Selection) -> Self {
        let selected = select(Side::Source, &interfaces, selection);
        let used = |link: &&Interface| {
            let ends = &selected.endpoints;
            ends.iter().any(|end| end.interface == link.name)
        };
        let rates: Option<Vec<_>> = interfaces.iter().filter(used).map(|l| l.speed).collect();
        let host = rates.filter(|rates| !rates.is_empty());
        Self {
            names: interfaces.iter().map(|link| link.name.clone()).collect(),
            host: host.map(|rates| rates.into_iter().sum()),
            interfaces,
        }
    }

    /// The rate of one.
    pub fn of(&self, nic: &str) -> Option<BitRate> {
        let link = self.interfaces.iter().find(|link| link.name == nic);
        link.and_then(|link| link.speed)
    }
}

/// All paths of a migration together; none when the rate of one is not known.
pub fn of_paths(view: &MigrationView) -> Option<BitRate> {
    let rates: Option<Vec<_>> = view.paths.iter().map(|path| path.path.rate).collect();
    let rates = rates.filter(|rates| !rates.is_empty());
    rates.map(|rates| rates.into_iter().sum())
}

/// A limit in bits per second; none in percent of a rate that is not known.
pub fn resolve(limit: Limit, link: Option<BitRate>) -> Option<BitRate> {
    match limit {
        Limit::Rate(rate) => Some(rate),
        Limit::Percent(percent) => {
            let bits = u128::from(link?.0) * u128::from(percent) / 100;
            u64::try_from(bits).ok().map(BitRate)
        }
    }
}
