//! Clusters with hardly any room to spare.

use drover_plan::inventory::Inventory;
use drover_plan::plan;

use crate::build::{drain, host, loose, vm};

/// The same numbers in each run (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        let factor = 6_364_136_223_846_793_005;
        self.0 = self
            .0
            .wrapping_mul(factor)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Guests that fill hosts of 64 GiB but for 2 GiB each, all of them on one other host.
fn filled(hosts: usize, seed: u64) -> Inventory {
    let mut numbers = Numbers(seed);
    let mut facts = Inventory {
        hosts: vec![host("full", 100_000)],
        vms: Vec::new(),
    };
    for index in 0..hosts {
        facts.hosts.push(host(&format!("h{index}"), 64));
        let mut left = 62;
        while left > 0 {
            let gib = (1 + numbers.below(31)).min(left);
            left -= gib;
            let mut guest = vm(&format!("vm{}", facts.vms.len()), "full", gib);
            guest.vcpus = 1;
            facts.vms.push(guest);
        }
    }
    facts
}

#[test]
fn every_guest_finds_a_place_where_2_of_64_gib_are_to_spare_on_each_host() {
    for hosts in [4, 8, 12] {
        for seed in 1..=40 {
            let facts = filled(hosts, seed);
            let made = plan(&facts, &loose(), &drain(&["full"]));
            let moved = made.map(|plan| plan.steps.len());
            assert_eq!(moved, Ok(facts.vms.len()), "{hosts} hosts, seed {seed}");
        }
    }
}
