//! Which interfaces a plan has take larger packets, or sends larger ones by, and whether it will be proved that these cross. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{HostName, Layer};

use crate::hands::{Measured, Unknown, Untold};
use crate::order::PathTo;
use crate::plan::Plan;
use crate::sizes::{Mtu, PathSizes};

/// How the interfaces of a host stand on each other.
pub type Layers = BTreeMap<String, Layer>;

/// What a person can do whose plan is refused.
const NEXT: &str =
    "take the change out of the plan, or set it by hand where the network is known to carry them";

/// A plan, on the interfaces that it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raised<'a> {
    pub plan: &'a Plan,
    pub layers: &'a Layers,
}

impl<'a> Raised<'a> {
    fn all(&self) -> impl Iterator<Item = Mtu<'a>> + use<'a> {
        self.plan.mtus().filter(Mtu::is_raised)
    }

    /// Interfaces below one, all the way down, of which the plan sets the largest packet.
    pub(crate) fn over(&self, nic: &str) -> BTreeSet<String> {
        let mut below = BTreeSet::new();
        self.collect(nic, &mut below);
        let set = |name: &&str| self.plan.mtus().any(|mtu| mtu.nic == *name);
        below.into_iter().filter(set).map(str::to_owned).collect()
    }

    /// One that is there already is not looked at again: a circle ends.
    fn collect(&self, nic: &str, below: &mut BTreeSet<&'a str>) {
        let on = self.layers.get(nic).map(|layer| &layer.on);
        for name in on.into_iter().flatten() {
            if below.insert(name) {
                self.collect(name, below);
            }
        }
    }

    /// The largest packets that may leave by an interface and could not before: it is to take them, or follows one below that is, or was held
    /// back by it.
    pub(crate) fn larger(&self, nic: &str) -> Option<u32> {
        self.risen(nic).or_else(|| {
            let own = self.layers.get(nic)?.mtu;
            let over = self.over(nic);
            let held = self
                .all()
                .filter(|mtu| over.contains(mtu.nic) && mtu.from < own);
            held.map(|mtu| mtu.to.min(own)).max()
        })
    }

    fn risen(&self, nic: &str) -> Option<u32> {
        let own = self.plan.mtus().find(|mtu| mtu.nic == nic);
        let before = own.map(|own| own.from);
        let before = before.or_else(|| Some(self.layers.get(nic)?.mtu))?;
        let after = self.becomes(nic, &mut BTreeSet::new())?;
        (after > before).then_some(after)
    }

    /// The largest packet that an interface takes then: a bridge that follows has that of its smallest port.
    fn becomes(&self, nic: &str, seen: &mut BTreeSet<&'a str>) -> Option<u32> {
        if let Some(own) = self.plan.mtus().find(|mtu| mtu.nic == nic) {
            return Some(own.to);
        }
        let layer = self.layers.get(nic)?;
        if !layer.follows {
            return Some(layer.mtu);
        }
        let on = layer.on.iter();
        let on = on.filter_map(|below| match seen.insert(below) {
            true => self.becomes(below, seen),
            false => None,
        });
        on.min()
    }

    /// Why it would not be proved, of some interface by which larger packets may leave, that these cross: of no path that leaves by it is it
    /// known how large ones cross now, or not of one to a host that is there. `works` are paths by which hosts answer, if only to small ones.
    pub(crate) fn unproved(&self, works: &[PathTo], measured: &Measured) -> Option<String> {
        self.all().next()?;
        let why = self
            .by_no_path(&measured.paths)
            .or_else(|| self.untold(works, &measured.untold))
            .or_else(|| {
                works
                    .iter()
                    .find_map(|path| self.unmeasured(path, measured))
            })
            .or_else(|| self.by_no_path_of_its_own(&measured.paths))?;
        Some(format!(
            "nothing would prove that the network carries {why}"
        ))
    }

    /// A path over it by which nothing larger leaves proves nothing, unless nothing larger leaves by it at all.
    fn by_no_path(&self, paths: &[PathSizes]) -> Option<String> {
        let is_proved = |mtu: &Mtu<'_>| {
            let over = |path: &&PathSizes| path.nic == mtu.nic || path.over.contains(mtu.nic);
            let mut over = paths.iter().filter(over).peekable();
            over.peek().is_some()
                && (self.sends_nothing_larger(mtu.nic)
                    || over.any(|path| self.larger(&path.nic).is_some()))
        };
        let mtu = self.all().find(|mtu| !is_proved(mtu))?;
        Some(nowhere(mtu.nic, mtu.to))
    }

    /// It has no address, and all that stands on it, as VLANs do, keeps its own.
    fn sends_nothing_larger(&self, nic: &str) -> bool {
        let has_no_address = |layer: &Layer| !layer.has_address;
        let mut on = self
            .layers
            .iter()
            .filter(|(_, layer)| layer.on.contains(nic));
        self.layers.get(nic).is_some_and(has_no_address)
            && on.all(|(name, _)| self.larger(name).is_none())
    }

    /// What sends larger packets from an address of its own, whether somebody answers there or not.
    fn by_no_path_of_its_own(&self, paths: &[PathSizes]) -> Option<String> {
        let sends = self.layers.iter().filter(|(_, layer)| layer.has_address);
        let is_measured = |nic: &str| paths.iter().any(|path| path.nic == nic);
        let mut sends = sends.filter(|(nic, _)| !is_measured(nic));
        sends.find_map(|(nic, _)| Some(nowhere(nic, self.larger(nic)?)))
    }

    /// What is not known of all, or of a host that is there.
    fn untold(&self, works: &[PathTo], untold: &[Untold]) -> Option<String> {
        let is_there = |host: &HostName| works.iter().any(|path| path.host == *host);
        untold.iter().find_map(|untold| {
            let Untold { of, why } = untold;
            match of {
                Unknown::All => Some(format!("larger packets ({why}): {NEXT}")),
                Unknown::Path { host, nic } => {
                    let bytes = self.larger(nic)?;
                    Some(format!(
                        "packets of {bytes} bytes from {nic} to {host} ({why}): {NEXT}"
                    ))
                }
                Unknown::Host(host) if is_there(host) => Some(format!(
                    "larger packets to {host}, which is there ({why}): {NEXT}"
                )),
                Unknown::Host(_) | Unknown::NoPath => None,
            }
        })
    }

    /// That a path works by which larger packets may leave, and none is measured there.
    fn unmeasured(&self, path: &PathTo, measured: &Measured) -> Option<String> {
        let bytes = self.larger(&path.nic)?;
        let mut paths = measured.paths.iter();
        let is_measured = paths.any(|other| other.host == path.host && other.nic == path.nic);
        let PathTo { host, nic, .. } = path;
        (!is_measured).then(|| {
            format!(
                "packets of {bytes} bytes from {nic} to {host}, as migrations do not go there and it is not asked how large ones cross: {NEXT}, or \
                 have migrations go there (`networks`)"
            )
        })
    }
}

fn nowhere(nic: &str, bytes: u32) -> String {
    format!(
        "packets of {bytes} bytes from {nic}, as of no path that leaves by it is it known how large ones cross now: {NEXT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Sizes;
    use crate::sizes::tests::plan;

    /// A VLAN, a bridge that follows, one that has a guest's smaller port and one of the VLAN, all over `nic0`; a bond over `nic1`.
    fn layers() -> Layers {
        let layer = |(name, on, mtu, follows): &(&str, &[&str], u32, bool)| {
            let layer = Layer {
                on: on.iter().map(|on| (*on).to_owned()).collect(),
                mtu: *mtu,
                follows: *follows,
                has_address: false,
            };
            ((*name).to_owned(), layer)
        };
        let all: [(&str, &[&str], u32, bool); 9] = [
            ("nic0", &[], 1500, false),
            ("nic1", &[], 1500, false),
            ("nic0.7", &["nic0"], 1500, false),
            ("br0", &["nic0", "tap0"], 1500, true),
            ("tap1", &[], 4000, false),
            ("br1", &["nic0", "tap1"], 1500, true),
            ("br7", &["nic0.7"], 1500, true),
            ("bond0", &["nic1"], 9000, false),
            ("one", &["one"], 1500, true),
        ];
        all.iter().map(layer).collect()
    }

    /// The same without bridges over `nic0`.
    fn vlan_alone() -> Layers {
        let mut layers = layers();
        layers.retain(|nic, _| !["br0", "br1"].contains(&nic.as_str()));
        layers
    }

    fn addressed(mut layers: Layers, nic: &str) -> Layers {
        layers.get_mut(nic).unwrap().has_address = true;
        layers
    }

    const NIC0: &[(&str, &str, &str)] = &[("nic0", "1500", "9000")];

    #[test]
    fn larger_packets_leave_by_what_is_raised_what_follows_it_and_what_it_held_back() {
        let layers = layers();
        for (mtus, nic, larger) in [
            (NIC0, "nic0", Some(9000)),
            (NIC0, "br0", Some(9000)),
            // Its smallest port.
            (NIC0, "br1", Some(4000)),
            (NIC0, "tap1", None),
            (NIC0, "nic0.7", None),
            (NIC0, "br7", None),
            (NIC0, "bond0", None),
            (NIC0, "one", None),
            (NIC0, "nobody", None),
            (&[("nic1", "1500", "4000")], "bond0", Some(4000)),
            (&[("nic1", "1500", "9100")], "bond0", Some(9000)),
            (&[("nic0", "9000", "1500")], "br0", None),
            // The plan has it keep its own.
            (&[NIC0[0], ("br0", "1500", "1400")], "br0", None),
            (&[NIC0[0], ("tap1", "4000", "1500")], "br1", None),
            (&[NIC0[0], ("nic0.7", "1500", "4000")], "br7", Some(4000)),
        ] {
            let plan = plan(mtus);
            let (plan, layers) = (&plan, &layers);
            assert_eq!(
                Raised { plan, layers }.larger(nic),
                larger,
                "{mtus:?} {nic}"
            );
        }
    }

    #[test]
    fn of_what_one_stands_on_those_are_kept_that_the_plan_sets() {
        let (plan, layers) = (plan(NIC0), layers());
        let (plan, layers) = (&plan, &layers);
        let over = |nic: &str| Vec::from_iter(Raised { plan, layers }.over(nic));
        assert_eq!(over("br7"), ["nic0"]);
        assert_eq!(
            (over("nic0"), over("bond0"), over("one")),
            (vec![], vec![], vec![])
        );
    }

    fn measured(host: &str, nic: &str, over: &[&str]) -> PathSizes {
        PathSizes {
            host: host.parse().unwrap(),
            nic: nic.into(),
            from: "10.0.0.1".parse().unwrap(),
            far_nic: "nic0".into(),
            to: "10.0.0.2".parse().unwrap(),
            mtu: 1500,
            over: over.iter().map(|over| (*over).to_owned()).collect(),
            sizes: Sizes {
                there: 1500,
                back: 1500,
            },
        }
    }

    fn works(host: &str, nic: &str) -> PathTo {
        PathTo {
            host: host.parse().unwrap(),
            nic: nic.into(),
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2:7".parse().unwrap(),
        }
    }

    fn unproved(
        layers: &Layers,
        mtus: &[(&str, &str, &str)],
        works: &[PathTo],
        paths: &[PathSizes],
        untold: &[Unknown],
    ) -> Option<String> {
        let untold = untold.iter().map(|of| Untold {
            of: of.clone(),
            why: "it is asleep".to_owned(),
        });
        let measured = Measured {
            paths: paths.to_vec(),
            untold: untold.collect(),
            layers: Layers::new(),
        };
        let plan = &plan(mtus);
        Raised { plan, layers }.unproved(works, &measured)
    }

    #[test]
    fn larger_packets_are_proved_by_a_path_over_their_interface_alone() {
        let paths = [measured("b", "nic0.7", &["nic0"])];
        for fits in [
            &[][..],
            NIC0,
            &[("nic0.7", "1500", "9000")],
            &[("nic9", "9000", "1500")],
        ] {
            assert_eq!(
                unproved(&vlan_alone(), fits, &[], &paths, &[]),
                None,
                "{fits:?}"
            );
        }
        let more = [NIC0[0], ("nic9", "1500", "9000")];
        let why = unproved(&vlan_alone(), &more, &[], &paths, &[]).unwrap();
        assert!(why.contains("packets of 9000 bytes from nic9"), "{why}");
        assert!(why.contains("take the change out of the plan"), "{why}");
    }

    #[test]
    fn a_path_by_which_nothing_larger_leaves_proves_larger_packets_of_nothing_that_sends_them() {
        let by_vlan = measured("b", "nic0.7", &["nic0"]);
        let paths = [by_vlan.clone()];
        assert_eq!(unproved(&vlan_alone(), NIC0, &[], &paths, &[]), None);
        // Its own address, and a bridge by which guests send.
        for layers in [addressed(vlan_alone(), "nic0"), layers()] {
            let why = unproved(&layers, NIC0, &[], &paths, &[]).unwrap();
            assert!(why.contains("packets of 9000 bytes from nic0"), "{why}");
        }
        // Where it proves that much nothing else need be asked that has no address of its own.
        let both = &[NIC0[0], ("nic0.7", "1500", "9000")];
        for (nic, refused) in [
            ("nic0.7", false),
            ("bond0", false),
            ("nic0", true),
            ("br0", true),
        ] {
            let layers = addressed(layers(), nic);
            let why = unproved(&layers, both, &[], &paths, &[]);
            assert_eq!(why.is_some(), refused, "{nic}: {why:?}");
            let from = format!("packets of 9000 bytes from {nic}, as of no path");
            assert!(why.is_none_or(|why| why.contains(&from)), "{nic}");
        }
        let paths = [by_vlan, measured("b", "br0", &["nic0"])];
        let layers = addressed(layers(), "br0");
        assert_eq!(unproved(&layers, both, &[], &paths, &[]), None);
    }

    #[test]
    fn a_host_that_is_there_and_does_not_tell_has_larger_packets_refused_and_one_that_is_off_has_not()
     {
        let layers = layers();
        let paths = [measured("b", "nic0", &[])];
        let of_b = [works("b", "nic0")];
        let silent = [Unknown::Host("c".parse().unwrap())];
        assert_eq!(unproved(&layers, NIC0, &of_b, &paths, &silent), None);
        // By whatever way it is there.
        let both = [works("b", "nic0"), works("c", "nic5")];
        let why = unproved(&layers, NIC0, &both, &paths, &silent).unwrap();
        assert!(why.contains("to c, which is there (it is asleep)"), "{why}");
        assert_eq!(
            unproved(&layers, &[("nic0", "9000", "1500")], &both, &paths, &silent),
            None
        );
        // One of its paths.
        let by = |nic: &str| {
            let (host, nic) = ("c".parse().unwrap(), nic.to_owned());
            [Unknown::Path { host, nic }]
        };
        let why = unproved(&layers, NIC0, &of_b, &paths, &by("nic0")).unwrap();
        assert!(why.contains("from nic0 to c (it is asleep)"), "{why}");
        let other = by("nic0.7");
        assert_eq!(unproved(&layers, NIC0, &of_b, &paths, &other), None);
        // All of them, though some answered.
        let why = unproved(&layers, NIC0, &of_b, &paths, &[Unknown::All]).unwrap();
        assert!(why.contains("larger packets (it is asleep)"), "{why}");
        let none = [Unknown::NoPath];
        assert_eq!(unproved(&layers, NIC0, &both, &paths, &none), None);
    }

    #[test]
    fn what_follows_a_raised_interface_has_a_path_of_its_own_measured_to_each_host_that_answers_there()
     {
        let layers = layers();
        let raised = &[NIC0[0], ("nic0.7", "1500", "9000")];
        let by_vlan = measured("b", "nic0.7", &["nic0"]);
        let both = [works("b", "nic0.7"), works("b", "br0")];
        let paths = [by_vlan.clone()];
        assert_eq!(unproved(&layers, raised, &both[..1], &paths, &[]), None);
        let why = unproved(&layers, raised, &both, &paths, &[]).unwrap();
        assert!(why.contains("packets of 9000 bytes from br0 to b"), "{why}");
        // One that the kernel keeps at its port's own size would be taken for one that follows again.
        assert!(
            why.ends_with("have migrations go there (`networks`)"),
            "{why}"
        );
        let paths = [by_vlan, measured("b", "br0", &["nic0"])];
        assert_eq!(unproved(&layers, raised, &both, &paths, &[]), None);
    }
}
