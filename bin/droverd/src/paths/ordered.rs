//! What an order to load another host asks for: whether it may, and which pairs of interfaces are meant.

use std::collections::BTreeSet;

use drover_api::{AnswererView, ErrorCode, LoadOrder, LoadPath, Refusal};
use drover_migrate::limits::PATHS;
use drover_migrate::paths::Selected;
use drover_types::{HostName, Interface, PathEnd};

use super::limits;
use super::loading;
use super::pairs::{Pair, Ports, waves};

/// Whether it may be carried out, as far as that is seen from the order alone.
///
/// # Errors
/// It is out of bounds, or loads one end twice.
pub fn check(order: &LoadOrder) -> Result<(), Refusal> {
    loading::check(order.load)?;
    let (count, after) = (order.paths.len(), order.after_ms);
    let most = limits::LOAD_LEAD_MOST.as_millis();
    let mut paths = order.paths.iter();
    let (mut near, mut far) = (BTreeSet::new(), BTreeSet::new());
    let twice = paths.find(|path| !near.insert(&path.nic) || !far.insert(path.to));
    let message = if !(1..=PATHS).contains(&count) {
        format!("a host is loaded by 1 to {PATHS} paths, and not by {count}")
    } else if u128::from(after) > most {
        format!("a load begins after {most} ms at most, and not after {after}")
    } else if let Some(LoadPath { nic, to, .. }) = twice {
        format!("an end is loaded once, and {nic} or {to} would be twice")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::BadRequest, message))
}

/// What this host has for loads.
pub struct Near {
    /// The ends that migrations may use.
    pub selected: Selected,
    /// What its interfaces stand on.
    pub ports: Ports,
}

/// A path of the order, or why there is none.
pub type Found<'a> = Result<(Pair, &'a Interface), String>;

/// Those that are meant.
///
/// # Errors
/// Two of them share a line, which would have more than its share.
pub fn pairs<'a>(
    order: &LoadOrder,
    near: &Near,
    answerer: &'a AnswererView,
) -> Result<Vec<Found<'a>>, String> {
    let paths = order.paths.iter();
    let found = paths.map(|path| pair(path, &order.far, &near.selected, &answerer.interfaces));
    let found: Vec<Found<'_>> = found.collect();
    let known = found.iter().flatten().map(|(pair, _)| pair.clone());
    match waves(known.collect(), &near.ports, &answerer.ports).len() {
        0 | 1 => Ok(found),
        _ => Err("paths of the order share a line".to_owned()),
    }
}

/// The pair of interfaces that is meant, and the far one of them: what both hosts let migrations use, and nothing else, is loaded.
fn pair<'a>(
    path: &LoadPath,
    far: &HostName,
    ours: &Selected,
    theirs: &'a [Interface],
) -> Result<(Pair, &'a Interface), String> {
    let LoadPath { nic, from, to, .. } = path;
    let mut endpoints = ours.endpoints.iter();
    let own = endpoints
        .find(|end| end.interface == *nic && end.address.address() == *from)
        .ok_or_else(|| format!("{nic} does not have {from} any more, for migrations"))?;
    let has_it = |nic: &&Interface| nic.addresses.iter().any(|at| at.address() == *to);
    let other = theirs
        .iter()
        .find(has_it)
        .ok_or_else(|| format!("{far} does not have {to} any more, for migrations"))?;
    let rate = match (own.speed, other.speed) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let end = |interface: &str, address| PathEnd {
        interface: interface.to_owned(),
        address,
    };
    let pair = Pair {
        near: end(nic, *from),
        far: end(&other.name, *to),
        rate,
    };
    Ok((pair, other))
}

#[cfg(test)]
mod tests {
    use drover_api::{LoadRequest, TicketText};
    use drover_migrate::paths::{Selection, Side, select};
    use drover_types::{AnswererId, BitRate};

    use super::*;

    fn nic(name: &str, address: &str, gbit: u64) -> Interface {
        Interface {
            name: name.into(),
            addresses: vec![address.parse().unwrap()],
            speed: Some(BitRate(gbit * 1_000_000_000)),
            mtu: 1500,
            up: true,
            loopback: false,
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    fn path(nic: &str, from: &str, to: &str) -> LoadPath {
        LoadPath {
            nic: nic.into(),
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            senders: 2,
        }
    }

    fn order(paths: Vec<LoadPath>, time_ms: u64) -> LoadOrder {
        LoadOrder {
            far: "b".parse().unwrap(),
            paths,
            load: LoadRequest {
                time_ms,
                share: None,
            },
            after_ms: 1_000,
        }
    }

    fn answerer(interfaces: Vec<Interface>) -> AnswererView {
        AnswererView {
            id: AnswererId(uuid::Uuid::now_v7()),
            ticket: TicketText(String::new()),
            port: 7471,
            at: Vec::new(),
            moving: 0,
            guests: 0,
            load_port: Some(1),
            no_load: None,
            interfaces,
            ports: Ports::new(),
        }
    }

    #[test]
    fn only_what_both_hosts_let_migrations_use_is_loaded() {
        let own = [nic("a0", "10.0.0.1/24", 1)];
        let ours = select(Side::Source, &own, &Selection::default());
        let theirs = [nic("b0", "10.0.0.2/24", 10)];
        let far: HostName = "b".parse().unwrap();
        let pair = |path: &LoadPath| pair(path, &far, &ours, &theirs);
        let (found, other) = pair(&path("a0", "10.0.0.1", "10.0.0.2")).unwrap();
        assert_eq!(found.far.interface, "b0");
        assert_eq!((found.rate, other.speed), (own[0].speed, theirs[0].speed));
        for (other, told) in [
            (
                path("a1", "10.0.0.1", "10.0.0.2"),
                "a1 does not have 10.0.0.1",
            ),
            (
                path("a0", "10.0.0.9", "10.0.0.2"),
                "a0 does not have 10.0.0.9",
            ),
            (
                path("a0", "10.0.0.1", "192.0.2.1"),
                "b does not have 192.0.2.1",
            ),
        ] {
            let why = pair(&other).unwrap_err();
            assert!(why.starts_with(told), "{why}");
        }
    }

    #[test]
    fn an_order_for_more_than_there_can_be_is_refused_with_the_bounds() {
        let numbered = |at: usize| path(&format!("a{at}"), "10.0.0.1", &format!("10.0.1.{at}"));
        let order = |count: usize, after_ms, time_ms| LoadOrder {
            after_ms,
            ..order((0..count).map(numbered).collect(), time_ms)
        };
        check(&order(1, 1_000, 1_000)).unwrap();
        check(&order(32, 5_000, 10_000)).unwrap();
        for (order, told) in [
            (order(0, 1_000, 1_000), "1 to 32 paths, and not by 0"),
            (order(33, 1_000, 1_000), "1 to 32 paths, and not by 33"),
            (order(1, 5_001, 1_000), "after 5000 ms at most"),
            (order(1, 1_000, 10_001), "100 to 10000 ms"),
        ] {
            let refusal = check(&order).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::BadRequest);
            assert!(refusal.message.contains(told), "{}", refusal.message);
        }
    }

    #[test]
    fn no_line_is_loaded_twice_so_that_none_has_more_than_its_share() {
        let whole = |paths| order(paths, 1_000);
        let ends = [("a0", "10.0.0.2"), ("a0", "10.0.0.3"), ("a1", "10.0.0.2")];
        for (nic, to) in ends {
            let first = path("a0", "10.0.0.1", "10.0.0.2");
            let refusal = check(&whole(vec![first, path(nic, "10.0.0.1", to)])).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::BadRequest);
            assert!(
                refusal.message.contains("loaded once"),
                "{}",
                refusal.message
            );
        }
        // VLANs of one port are so by what their hosts say of them.
        let own = [nic("a0.1", "10.0.0.1/24", 1), nic("a0.2", "10.0.1.1/24", 1)];
        let near = |ports: Ports| Near {
            selected: select(Side::Source, &own, &Selection::default()),
            ports,
        };
        let theirs = vec![nic("b0", "10.0.0.2/24", 1), nic("b1", "10.0.1.2/24", 1)];
        let answerer = answerer(theirs);
        let order = whole(vec![
            path("a0.1", "10.0.0.1", "10.0.0.2"),
            path("a0.2", "10.0.1.1", "10.0.1.2"),
        ]);
        check(&order).unwrap();
        let apart = pairs(&order, &near(Ports::new()), &answerer).unwrap();
        assert!(apart.iter().all(Result::is_ok));
        let stands = |nic: &str| (nic.to_owned(), BTreeSet::from(["a0".to_owned()]));
        let vlans = near(["a0.1", "a0.2"].map(stands).into());
        let why = pairs(&order, &vlans, &answerer).unwrap_err();
        assert_eq!(why, "paths of the order share a line");
    }
}
