//! Loading another host at the same moment as others do, by the order of the agent that has all of them do so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_api::{
    AnsweredView, AnswererRequest, AnswererView, Client, ClientError, ErrorCode, LoadOrder,
    LoadPath, LoadedPath, LoadedView, Refusal,
};
use drover_migrate::paths::{Side, select};
use drover_reach::limits::{LOAD_GREETING, LOAD_REST, LOAD_WARM_UP};
use drover_tune::facts::{Carried, Fact};
use drover_types::{AnswererId, HostName, LoadId};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout, timeout_at};

use super::ask::{not_loaded, own_interfaces, ticket};
use super::doubts::busy_with;
use super::limits;
use super::loading::{Loading, Others};
use super::milliseconds;
use super::ordered::{Found, Near, check, pairs};
use super::pairs::ports;
use super::taken::join;
use crate::agent::Context;
use crate::api::Caller;
use crate::limits::PEER_PROBE;
use crate::migration::Migrations;
use crate::present;

/// Loads that host by these paths; what each carried, or why it was not measured.
///
/// # Errors
/// What is asked for is out of bounds; this host is not taken for that load by the caller, or asks paths itself; the other host is no member, does not answer
/// in time, or is not taken for it.
pub async fn carry(
    context: &Arc<Context>,
    migrations: &Migrations,
    (caller, id): (&Caller, LoadId),
    order: LoadOrder,
) -> Result<LoadedView, Refusal> {
    let arrived = Instant::now();
    check(&order)?;
    let begin = arrived + Duration::from_millis(order.after_ms);
    let (near, far) = (&context.config.host, &order.far);
    // Held until all of it has ended.
    let part = join(context, caller, Some(id));
    let _part = part.map_err(|why| Refusal::new(ErrorCode::TooManyRequests, why))?;
    let client = context.peers.client(far)?;
    let asking = Arc::clone(&context.paths.asking);
    // It would be loss to whoever asks.
    let _turn = timeout_at(begin, asking.lock_owned()).await.map_err(|_| {
        let message = format!("{near} asks its paths just now");
        Refusal::new(ErrorCode::TooManyRequests, message)
    })?;
    let own = own_interfaces(near).await?;
    let ends = Near {
        selected: select(Side::Source, &own, &context.config.networks),
        ports: ports(&own).await,
    };
    let moves = Moves {
        migrations,
        any: AtomicBool::new(false),
    };
    let before = migrations.under_way().len();
    let ordered = answerer(&client, request(id, &order), begin).await;
    let ordered = ordered.ok_or_else(|| late(far, order.after_ms))?;
    let answerer = ordered.map_err(|error| not_loaded(far, &error))?;
    let busy = busy_with([(near, before), (far, answerer.moving)]);
    let guests = present::on_links(context);
    let loading = ticket(far, &answerer).map_err(|refusal| refusal.message);
    let loading = loading.and_then(|ticket| {
        Loading::agreed(order.load, far, &answerer, &ticket, guests, busy.as_deref())
    });
    let pairs = loading.and_then(|loading| {
        let pairs = pairs(&order, &ends, &answerer)?;
        Ok((loading, pairs))
    });
    let paths = match pairs {
        Ok((loading, pairs)) => carried(&order, &loading, &pairs, (begin, &moves)).await,
        Err(why) => unknown(&order, &why),
    };
    let ended = ended(&client, far, answerer.id).await;
    let of_far = ended.as_ref().map_or(0, |ended| ended.moving);
    let paths = unless_lost(&order, paths, ended.err());
    let spoiled = busy_with([
        (near, before.max(moves.count())),
        (far, answerer.moving.max(of_far)),
    ]);
    Ok(LoadedView {
        paths,
        spoiled,
        took_ms: milliseconds(arrived.elapsed()),
    })
}

fn late(far: &HostName, after_ms: u64) -> Refusal {
    let message = format!("{far} did not answer within {after_ms} ms, when others began to load");
    Refusal::new(ErrorCode::PeerUnreachable, message)
}

/// The far host's answerer, if it is told of by then; one that is told of later is ended, as nobody loads it.
async fn answerer(
    client: &Client,
    request: AnswererRequest,
    begin: Instant,
) -> Option<Result<AnswererView, ClientError>> {
    let (asking, ending) = (client.clone(), client.clone());
    let mut ordered = Box::pin(async move { asking.order_answerer(&request).await });
    match timeout_at(begin, &mut ordered).await {
        Ok(ordered) => Some(ordered),
        Err(_) => {
            tokio::spawn(async move {
                if let Ok(answerer) = ordered.await {
                    // Where that is lost it ends by itself.
                    let _ = ending.end_answerer(answerer.id).await;
                }
            });
            None
        }
    }
}

/// What the far host says at its end.
///
/// # Errors
/// Why it says nothing. It is not waited for so long that whoever ordered the load takes this host for silent.
async fn ended(client: &Client, far: &HostName, id: AnswererId) -> Result<AnsweredView, String> {
    match timeout(PEER_PROBE, client.end_answerer(id)).await {
        Ok(ended) => ended.map_err(|error| not_loaded(far, &error).message),
        Err(_) => Err(format!("no answer within {} s", PEER_PROBE.as_secs())),
    }
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

/// Whether a guest moves from or to this host, now or at any time since.
struct Moves<'a> {
    migrations: &'a Migrations,
    any: AtomicBool,
}

impl Moves<'_> {
    fn now(&self) -> bool {
        let moves = !self.migrations.under_way().is_empty();
        self.any.fetch_or(moves, Ordering::AcqRel);
        moves
    }

    /// How many do; one at the least where one did.
    fn count(&self) -> usize {
        let any = self.any.load(Ordering::Acquire);
        self.migrations.under_way().len().max(usize::from(any))
    }
}

/// What each of them carries, all at the same time.
async fn carried(
    order: &LoadOrder,
    loading: &Loading,
    pairs: &[Found<'_>],
    (begin, moves): (Instant, &Moves<'_>),
) -> Vec<LoadedPath> {
    let loads = order.paths.iter().zip(pairs).map(async |(path, pair)| {
        let carried = match pair {
            Ok((pair, far)) => {
                let others = Others {
                    senders: path.senders,
                    far_line: far.speed,
                    begin,
                };
                loading.beside(pair, &others, || moves.now()).await
            }
            Err(why) => Fact::unknown(why),
        };
        told(path, carried)
    });
    join_all(loads).await
}

/// What was sent to a host that is not there at the end may have arrived nowhere, for some of the time.
fn unless_lost(order: &LoadOrder, paths: Vec<LoadedPath>, lost: Option<String>) -> Vec<LoadedPath> {
    let Some(why) = lost else { return paths };
    let far = &order.far;
    unknown(order, &format!("{far} did not say how it ended: {why}"))
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
    use drover_tune::facts::HeldUpBy;

    use super::*;

    #[test]
    fn what_was_carried_to_a_host_that_is_gone_at_the_end_is_not_known() {
        let order = LoadOrder {
            far: "b".parse().unwrap(),
            paths: vec![LoadPath {
                nic: "a0".into(),
                from: "10.0.0.1".parse().unwrap(),
                to: "10.0.0.2".parse().unwrap(),
                senders: 2,
            }],
            load: LoadRequest {
                time_ms: 1_000,
                share: None,
            },
            after_ms: 1_000,
        };
        let carried = || {
            let carried = Carried {
                rate: 1,
                line: None,
                allowed: None,
                packets: 1,
                again: 0,
                held_up_by: HeldUpBy::Path,
                slot: None,
            };
            vec![told(&order.paths[0], Fact::Known(carried))]
        };
        assert_eq!(unless_lost(&order, carried(), None), carried());
        let none = unless_lost(&order, carried(), Some("no answer within 3 s".into()));
        let why = "b did not say how it ended: no answer within 3 s";
        assert_eq!(none[0].carried, Fact::unknown(why));
    }
}
