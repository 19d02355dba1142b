//! What a host's interfaces for migrations carry together.

use std::collections::BTreeSet;

use drover_api::{LimitScope, LimitView};
use drover_migrate::paths::{Selection, Side, select};
use drover_types::{BitRate, Interface};

/// What an interface counts whose driver tells no rate.
const UNKNOWN: BitRate = BitRate(1_000_000_000);

/// The rate of all interfaces that may carry guests, within the limits, and what was assumed. Zero where
/// there is no such interface.
pub fn bandwidth(
    interfaces: &[Interface],
    selection: &Selection,
    limits: &[LimitView],
) -> (BitRate, Vec<String>) {
    let selected = select(Side::Source, interfaces, selection);
    let names: BTreeSet<_> = selected
        .endpoints
        .iter()
        .map(|end| &end.interface)
        .collect();
    let limit = |scope: &LimitScope| {
        let view = limits.iter().find(|view| view.scope == *scope)?;
        view.bits_per_second
    };
    let (mut sum, mut notes) = (BitRate(0), Vec::new());
    for interface in interfaces.iter().filter(|one| names.contains(&one.name)) {
        let nic = interface.name.clone();
        let rate = interface.speed.unwrap_or_else(|| {
            notes.push(format!(
                "the driver of {nic} tells no rate: {UNKNOWN} is assumed"
            ));
            UNKNOWN
        });
        let most = limit(&LimitScope::Nic { nic }).unwrap_or(rate);
        sum = BitRate(sum.0.saturating_add(rate.min(most).0));
    }
    let most = limit(&LimitScope::Host).unwrap_or(sum);
    (sum.min(most), notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GBIT: u64 = 1_000_000_000;

    fn nic(name: &str, address: &str, speed: Option<u64>) -> Interface {
        Interface {
            name: name.to_owned(),
            addresses: vec![address.parse().unwrap()],
            speed: speed.map(BitRate),
            mtu: 1500,
            up: true,
            loopback: false,
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    fn nics() -> [Interface; 3] {
        [
            nic("eth0", "10.0.0.1/24", Some(10 * GBIT)),
            nic("eth1", "10.0.1.1/24", Some(25 * GBIT)),
            nic("lan", "192.168.0.1/24", Some(GBIT)),
        ]
    }

    fn selection() -> Selection {
        serde_json::from_value(json!({"exclude": ["lan"]})).unwrap()
    }

    #[test]
    fn the_interfaces_that_are_selected_are_added_up() {
        let (rate, notes) = bandwidth(&nics(), &selection(), &[]);
        assert_eq!((rate, notes), (BitRate(35 * GBIT), vec![]));
    }

    #[test]
    fn limits_of_interfaces_and_of_the_host_are_kept() {
        let limit = |scope: serde_json::Value, rate: u64| -> LimitView {
            let limit = json!({"scope": scope, "bits_per_second": rate, "out": 0, "in": 0});
            serde_json::from_value(limit).unwrap()
        };
        let of_nic = limit(json!({"of": "nic", "nic": "eth1"}), 5 * GBIT);
        let (rate, _) = bandwidth(&nics(), &selection(), std::slice::from_ref(&of_nic));
        assert_eq!(rate, BitRate(15 * GBIT));
        let limits = [of_nic, limit(json!({"of": "host"}), 8 * GBIT)];
        assert_eq!(
            bandwidth(&nics(), &selection(), &limits).0,
            BitRate(8 * GBIT)
        );
    }

    #[test]
    fn an_interface_whose_driver_tells_no_rate_counts_a_gigabit_and_is_named() {
        let nics = [nic("eth0", "10.0.0.1/24", None)];
        let (rate, notes) = bandwidth(&nics, &selection(), &[]);
        assert_eq!(rate, UNKNOWN);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].contains("eth0") && notes[0].contains("1 Gbit/s"),
            "{notes:?}"
        );
        let none = [nic("lan", "192.168.0.1/24", None)];
        assert_eq!(bandwidth(&none, &selection(), &[]), (BitRate(0), vec![]));
    }
}
