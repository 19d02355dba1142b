//! Which interfaces stand on which, and which of them carry for others.

use std::collections::{BTreeMap, BTreeSet};

use super::{Host, Kind, Nic};

/// The interfaces of a host by their names.
#[derive(Debug)]
pub struct Layers<'h> {
    nics: BTreeMap<&'h str, &'h Nic>,
}

impl<'h> Layers<'h> {
    /// Those of that host.
    #[must_use]
    pub fn of(host: &'h Host) -> Self {
        let by_name = host.nics.iter().map(|nic| (nic.name.as_str(), nic));
        Self {
            nics: by_name.collect(),
        }
    }

    /// Interfaces that this one stands on, and those below them, as far down as there are any.
    #[must_use]
    pub fn below(&self, nic: &Nic) -> BTreeSet<&'h str> {
        self.walk(nic, |nic| self.next(nic).collect())
    }

    /// Those of [`Self::below`] that carry what this one sends and gets.
    #[must_use]
    pub fn all_carriers(&self, nic: &Nic) -> BTreeSet<&'h str> {
        self.walk(nic, |nic| self.carriers(nic))
    }

    /// Interfaces right below this one that carry for it. A bridge's ports without hardware lead to guests and containers.
    #[must_use]
    pub fn carriers(&self, nic: &Nic) -> Vec<&'h Nic> {
        let carries = |lower: &&Nic| nic.kind != Kind::Bridge || self.has_hardware(lower);
        self.next(nic).filter(carries).collect()
    }

    /// It is an adapter, or stands on one.
    fn has_hardware(&self, nic: &Nic) -> bool {
        let is_adapter = |name: &&str| self.nics[*name].kind == Kind::Adapter;
        nic.kind == Kind::Adapter || self.below(nic).iter().any(is_adapter)
    }

    fn next(&self, nic: &Nic) -> impl Iterator<Item = &'h Nic> {
        let lower = nic.lower.iter();
        lower.filter_map(|name| self.nics.get(name.as_str()).copied())
    }

    /// Who wrote the facts may have written a circle.
    fn walk(&self, from: &Nic, next: impl Fn(&Nic) -> Vec<&'h Nic>) -> BTreeSet<&'h str> {
        let mut found = BTreeSet::new();
        let mut left = next(from);
        while let Some(nic) = left.pop() {
            if found.insert(nic.name.as_str()) {
                left.extend(next(nic));
            }
        }
        found
    }
}
