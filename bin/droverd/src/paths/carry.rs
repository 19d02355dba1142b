//! Loading another host at the same moment as others do, by the order of the agent that has all of them do so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    AnswererRequest, AnswererView, ErrorCode, LoadOrder, LoadPath, LoadedPath, LoadedView, Refusal,
};
use drover_migrate::limits::PATHS;
use drover_migrate::paths::{Selected, Side, select};
use drover_reach::limits::{LOAD_GREETING, LOAD_REST, LOAD_WARM_UP};
use drover_tune::facts::{Carried, Fact};
use drover_types::{HostName, Interface, LoadId, PathEnd};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::ask::{interfaces, not_answered, ticket};
use super::doubts::busy_with;
use super::loading::{self, Loading, Others};
use super::pairs::Pair;
use crate::agent::Context;
use crate::limits;
use crate::migration::Migrations;

/// Loads that host by these paths; what each carried, or why it was not measured.
///
/// # Errors
/// What is asked for is out of bounds; this host is not taken for that load, or asks paths itself; the other host is no member, does not answer
/// in time, or is not taken for it.
pub async fn carry(
    context: &Arc<Context>,
    migrations: &Migrations,
    id: LoadId,
    order: LoadOrder,
) -> Result<LoadedView, Refusal> {
    let begin = Instant::now() + Duration::from_millis(order.after_ms);
    check(&order)?;
    let (near, far) = (&context.config.host, &order.far);
    let taken = context.paths.taken.is_for(near, Some(id));
    taken.map_err(|why| Refusal::new(ErrorCode::TooManyRequests, why))?;
    let client = context.peers.client(far)?;
    let asking = Arc::clone(&context.paths.asking);
    // It would be loss to whoever asks.
    let _turn = timeout_at(begin, asking.lock_owned()).await.map_err(|_| {
        let message = format!("{near} asks its paths just now");
        Refusal::new(ErrorCode::TooManyRequests, message)
    })?;
    let own = interfaces(near).await?;
    let ours = select(Side::Source, &own, &context.config.networks);
    let moving = migrations.under_way().len();
    let request = request(id, &order);
    let ordered = timeout_at(begin, client.order_answerer(&request)).await;
    let ordered = ordered.map_err(|_| late(far, order.after_ms))?;
    let answerer = ordered.map_err(|error| not_answered(far, &error))?;
    let busy = busy_with([(near, moving), (far, answerer.moving)]);
    let guests = context.registry.running();
    let loading = ticket(far, &answerer).map(|ticket| {
        Loading::agreed(order.load, far, &answerer, &ticket, guests, busy.as_deref())
    });
    let paths = match loading {
        Ok(loading) => {
            let ends = (&ours, &answerer);
            let moves: &(dyn Fn() -> bool + Sync) = &|| !migrations.under_way().is_empty();
            carried(&order, loading, ends, (begin, moves)).await
        }
        Err(refusal) => unknown(&order, &refusal.message),
    };
    // Where that is lost it ends by itself.
    let ended = client.end_answerer(answerer.id).await;
    let of_far = ended.map_or(0, |ended| ended.moving);
    let spoiled = busy_with([
        (near, moving.max(migrations.under_way().len())),
        (far, answerer.moving.max(of_far)),
    ]);
    Ok(LoadedView { paths, spoiled })
}

fn check(order: &LoadOrder) -> Result<(), Refusal> {
    loading::check(order.load)?;
    let (count, after) = (order.paths.len(), order.after_ms);
    let most = limits::LOAD_LEAD_MOST.as_millis();
    let message = if !(1..=PATHS).contains(&count) {
        format!("a host is loaded by 1 to {PATHS} paths, and not by {count}")
    } else if u128::from(after) > most {
        format!("a load begins after {most} ms at most, and not after {after}")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::BadRequest, message))
}

fn late(far: &HostName, after_ms: u64) -> Refusal {
    let message = format!("{far} did not answer within {after_ms} ms, when others began to load");
    Refusal::new(ErrorCode::PeerUnreachable, message)
}

/// For as long as it takes, and no questions.
fn request(id: LoadId, order: &LoadOrder) -> AnswererRequest {
    let askers: BTreeSet<_> = order.paths.iter().map(|path| path.from).collect();
    let time = Duration::from_millis(order.after_ms)
        .saturating_add(Duration::from_millis(order.load.time_ms))
        + LOAD_GREETING
        + LOAD_WARM_UP
        + LOAD_REST
        + limits::LOAD_TOLD;
    AnswererRequest {
        askers: askers.into_iter().collect(),
        time_s: time.as_secs() + 1,
        load: true,
        part_of: Some(id),
        only_load: true,
    }
}

/// What each of them carries, all at the same time.
async fn carried(
    order: &LoadOrder,
    loading: Result<Loading, String>,
    (ours, answerer): (&Selected, &AnswererView),
    (begin, moves): (Instant, &(dyn Fn() -> bool + Sync)),
) -> Vec<LoadedPath> {
    let loading = match loading {
        Ok(loading) => loading,
        Err(why) => return unknown(order, &why),
    };
    let loads = order.paths.iter().map(async |path| {
        let carried = match pair(path, &order.far, ours, &answerer.interfaces) {
            Ok((pair, far)) => {
                let others = Others {
                    senders: path.senders,
                    far_line: far.speed,
                    begin,
                };
                loading.beside(&pair, &others, moves).await
            }
            Err(why) => Fact::unknown(why),
        };
        told(path, carried)
    });
    join_all(loads).await
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

fn unknown(order: &LoadOrder, why: &str) -> Vec<LoadedPath> {
    let paths = order.paths.iter();
    paths.map(|path| told(path, Fact::unknown(why))).collect()
}

fn told(path: &LoadPath, carried: Fact<Carried>) -> LoadedPath {
    LoadedPath {
        nic: path.nic.clone(),
        to: path.to,
        carried,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::LoadRequest;
    use drover_migrate::paths::Selection;
    use drover_types::BitRate;

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
        let order = |count: usize, after_ms, time_ms| LoadOrder {
            far: "b".parse().unwrap(),
            paths: vec![path("a0", "10.0.0.1", "10.0.0.2"); count],
            load: LoadRequest {
                time_ms,
                share: None,
            },
            after_ms,
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
}
