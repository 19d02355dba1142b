//! Divides limits among those that send over what is limited.
//!
//! What is limited is a *resource*: an interface, or a whole host, in one direction. A *flow* is one
//! path of one migration; it crosses several resources and gets the least of its shares in them.
//!
//! ```text
//!   resource "eth1", 100     flow a wants all it can get   ── share 70
//!                            flow b uses 24, of 50 it had  ── share 30: what it uses and some more
//! ```
//!
//! Each resource is divided by water-filling: nobody gets more than a flow that could use more. What
//! a flow wants is seen from what it did with its last share: one that used most of it wants more,
//! another wants somewhat more than it used, so that it can grow.
//!
//! # Invariant
//! The shares of a resource are together at most its limit, whatever was measured.

use std::collections::BTreeMap;

use drover_types::ByteRate;

use crate::limits::{SHARE_LEAST, SHARE_USED};

/// A flow as it was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow<F, R> {
    /// Which.
    pub flow: F,
    /// What it crosses.
    pub over: Vec<R>,
    /// What it carries.
    pub rate: ByteRate,
}

/// Remembers the shares that were given.
#[derive(Debug, Clone)]
pub struct Division<F, R> {
    shares: BTreeMap<(R, F), u64>,
}

impl<F, R> Default for Division<F, R> {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
        }
    }
}

impl<F: Ord + Clone, R: Ord + Clone> Division<F, R> {
    /// What each flow that crosses something limited may carry from now on.
    pub fn divide(
        &mut self,
        limits: &BTreeMap<R, ByteRate>,
        flows: &[Flow<F, R>],
    ) -> BTreeMap<F, ByteRate> {
        let mut shares = BTreeMap::new();
        let mut least: BTreeMap<F, ByteRate> = BTreeMap::new();
        for (resource, limit) in limits {
            let over: Vec<_> = flows.iter().filter(|f| f.over.contains(resource)).collect();
            let wants: Vec<_> = over
                .iter()
                .map(|f| {
                    let last = self.shares.get(&(resource.clone(), f.flow.clone()));
                    wanted(f.rate.0, last.copied())
                })
                .collect();
            for (flow, share) in over.iter().zip(fill(limit.0, &wants)) {
                let known = least.entry(flow.flow.clone()).or_insert(ByteRate(share));
                known.0 = known.0.min(share);
                shares.insert((resource.clone(), flow.flow.clone()), share);
            }
        }
        self.shares = shares;
        least
    }
}

/// What a flow wants of a resource of which it had this share; `None`: all that it can get.
fn wanted(rate: u64, share: Option<u64>) -> Option<u64> {
    let share = share?;
    let used = SHARE_USED.0 * u128::from(share) / SHARE_USED.1;
    if u128::from(rate) >= used {
        return None;
    }
    // In steps, so that shares do not change with every measurement.
    let bits = u64::BITS - rate.saturating_add(rate / 4).leading_zeros();
    let step = (1u64 << bits.saturating_sub(3)).max(1);
    let more = rate.saturating_add(rate / 4).div_ceil(step);
    Some(more.saturating_mul(step))
}

/// Fills what each wants up to one level; what is left then is for all alike.
fn fill(limit: u64, wants: &[Option<u64>]) -> Vec<u64> {
    let count = u64::try_from(wants.len()).unwrap_or(u64::MAX).max(1);
    let floor = limit / count / SHARE_LEAST;
    let want = |at: usize| wants[at].map_or(u64::MAX, |want| want.max(floor));
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|at| want(*at));
    let mut shares = vec![0; wants.len()];
    let (mut left, mut others) = (limit, count);
    for at in order {
        let share = want(at).min(left / others);
        shares[at] = share;
        left -= share;
        others = (others - 1).max(1);
    }
    for share in &mut shares {
        *share += left / count;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Divided = BTreeMap<u32, ByteRate>;

    fn flow(flow: u32, over: &[&'static str], rate: u64) -> Flow<u32, &'static str> {
        Flow {
            flow,
            over: over.to_vec(),
            rate: ByteRate(rate),
        }
    }

    /// Divides again and again among flows that could carry this much, until nothing changes.
    fn settle(
        limits: &BTreeMap<&'static str, ByteRate>,
        able: &[(u32, &[&'static str], u64)],
    ) -> Divided {
        let mut division = Division::default();
        let mut shares = Divided::new();
        for _ in 0..20 {
            let measured: Vec<_> = able
                .iter()
                .map(|(id, over, most)| {
                    let share = shares.get(id).map_or(u64::MAX, |share| share.0);
                    flow(*id, over, share.min(*most))
                })
                .collect();
            shares = division.divide(limits, &measured);
        }
        shares
    }

    #[test]
    fn flows_that_want_all_get_equal_shares() {
        let limits = BTreeMap::from([("nic", ByteRate(900))]);
        let shares = settle(
            &limits,
            &[(1, &["nic"], 5000), (2, &["nic"], 700), (3, &["nic"], 800)],
        );
        assert!(
            shares.values().all(|share| *share == ByteRate(300)),
            "{shares:?}"
        );
    }

    #[test]
    fn a_share_that_is_not_used_goes_to_others() {
        let limits = BTreeMap::from([("nic", ByteRate(1000))]);
        let shares = settle(&limits, &[(1, &["nic"], 5000), (2, &["nic"], 100)]);
        assert!(shares[&1].0 >= 840 && shares[&2].0 >= 120, "{shares:?}");
    }

    #[test]
    fn a_flow_that_is_alone_gets_all_at_once_and_keeps_it_when_it_pauses() {
        let limits = BTreeMap::from([("nic", ByteRate(1000))]);
        let mut division = Division::default();
        for rate in [0, 1000, 0, 30] {
            let shares = division.divide(&limits, &[flow(1, &["nic"], rate)]);
            assert_eq!(shares[&1], ByteRate(1000));
        }
    }

    #[test]
    fn what_another_resource_holds_back_is_not_kept_for_a_flow() {
        let limits = BTreeMap::from([("host", ByteRate(1000)), ("nic", ByteRate(100))]);
        let shares = settle(
            &limits,
            &[(1, &["nic", "host"], 5000), (2, &["host"], 5000)],
        );
        assert_eq!(shares[&1], ByteRate(100));
        assert!(shares[&2].0 >= 840, "{shares:?}");
    }

    #[test]
    fn a_flow_that_begins_again_has_its_share_within_three_divisions() {
        let limits = BTreeMap::from([("nic", ByteRate(1000))]);
        let mut division = Division::default();
        let mut shares = Divided::new();
        for _ in 0..10 {
            shares = division.divide(&limits, &[flow(1, &["nic"], 990), flow(2, &["nic"], 0)]);
        }
        assert!(shares[&2].0 < 100, "{shares:?}");
        for _ in 0..3 {
            let rate = |id: u32| shares[&id].0;
            let flows = [flow(1, &["nic"], rate(1)), flow(2, &["nic"], rate(2))];
            shares = division.divide(&limits, &flows);
        }
        assert_eq!(shares[&2], ByteRate(500));
    }

    #[test]
    fn what_is_not_limited_is_not_told() {
        let limits = BTreeMap::from([("nic", ByteRate(1000))]);
        let shares = Division::default().divide(&limits, &[flow(1, &["other"], 5)]);
        assert!(shares.is_empty());
    }

    proptest! {
        #[test]
        fn no_resource_is_given_out_beyond_its_limit_and_none_is_wasted(
            limit in 1_000u64..100_000_000_000,
            rates in proptest::collection::vec(proptest::collection::vec(0u64..200_000_000_000, 4), 1..30),
        ) {
            let limits = BTreeMap::from([("nic", ByteRate(limit))]);
            let mut division = Division::default();
            for step in 0..4 {
                let flows: Vec<_> = rates
                    .iter()
                    .enumerate()
                    .map(|(at, rates)| flow(u32::try_from(at).unwrap(), &["nic"], rates[step]))
                    .collect();
                let shares = division.divide(&limits, &flows);
                let sum: u64 = shares.values().map(|share| share.0).sum();
                prop_assert!(sum <= limit);
                prop_assert!(sum + flows.len() as u64 >= limit, "{sum} of {limit}");
            }
        }

        #[test]
        fn nobody_gets_more_than_one_that_wants_more(
            limit in 1_000u64..1_000_000_000,
            wants in proptest::collection::vec(proptest::option::of(0u64..1_000_000_000), 1..20),
        ) {
            let shares = fill(limit, &wants);
            for (one, other) in (0..wants.len()).flat_map(|a| (0..wants.len()).map(move |b| (a, b))) {
                let more = |want: Option<u64>| want.unwrap_or(u64::MAX);
                if more(wants[one]) > more(wants[other]) {
                    prop_assert!(shares[one] + 1 >= shares[other], "{shares:?}");
                }
            }
        }

        #[test]
        fn any_rates_are_divided_without_panic(
            limit: u64, rate: u64, again: u64, others in 0u32..5,
        ) {
            let limits = BTreeMap::from([("nic", ByteRate(limit))]);
            let mut division = Division::default();
            for rate in [rate, again, rate] {
                let flows: Vec<_> = (0..=others).map(|id| flow(id, &["nic"], rate)).collect();
                division.divide(&limits, &flows);
            }
        }
    }
}
