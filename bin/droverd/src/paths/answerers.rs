//! Answerers of this host, by the order of others.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
use drover_api::{
    AnsweredAt, AnsweredView, AnswererRequest, AnswererView, CountedView, ErrorCode, Refusal,
    TicketText,
};
use drover_migrate::paths::Selection;
use drover_reach::load::{NotTaken, Sink};
use drover_reach::{Answered, Answerer, Order, Ticket};
use drover_relay::{Cause, Expected, LaneListener, TurnedAway};
use drover_tune::facts::Traffic;
use drover_types::{AnswererId, HostName, Interface, MigrationId, with_sources};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use super::Taken;
use super::counted::Counters;
use super::limits;
use super::taken::{Part, Watch};
use crate::api::Caller;
use crate::{facts, migration};

/// Those that answer now.
#[derive(Debug, Clone, Default)]
pub struct Answerers(Arc<Mutex<HashMap<AnswererId, Live>>>);

/// What of this host's configuration is to be known.
#[derive(Debug)]
pub struct Here<'a> {
    /// Its name.
    pub host: &'a HostName,
    /// What migrations may use.
    pub networks: &'a Selection,
    /// That of memory, which is open between hosts: answered at, too, where it is free.
    pub port: u16,
    /// Migrations that are under way from and to it.
    pub moving: usize,
    /// Guests that may use its links.
    pub guests: usize,
    /// The port for lanes, where loads are taken, too.
    pub lanes: Option<&'a LaneListener>,
    /// For which load it is taken.
    pub taken: &'a Taken,
}

#[derive(Debug)]
struct Live {
    by: Caller,
    end: watch::Sender<bool>,
    answered: JoinHandle<Vec<AnsweredAt>>,
    /// No question is answered, so that it takes no room from those who ask.
    only_load: bool,
    /// Who loads this host meanwhile.
    watch: Watch,
    /// Loads are let in for as long as this is there.
    _loads: Option<Expected>,
    /// Of the load, where there is one. It goes last: this host is free once nothing is let in any more.
    _part: Option<Part>,
}

impl Answerers {
    fn live(&self) -> MutexGuard<'_, HashMap<AnswererId, Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers at every address that migrations may use, and that can be answered at, unless paths are only to be loaded.
    ///
    /// # Errors
    /// Too many are answered already, or nobody was named whom to answer; paths are only to be loaded, and this host is not taken for that load.
    pub async fn order(
        &self,
        here: &Here<'_>,
        by: Caller,
        request: AnswererRequest,
    ) -> Result<AnswererView, Refusal> {
        check(&request)?;
        let watch = here.taken.watch(here.host, request.part_of);
        let joined = request
            .load
            .then(|| here.taken.join(here.host, request.part_of, None));
        let (part, no_load) = match joined {
            Some(Ok(part)) => (Some(part), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        if let Some(why) = no_load.as_ref().filter(|_| request.only_load) {
            return Err(Refusal::new(ErrorCode::TooManyRequests, why));
        }
        let failed = |why: String| {
            let message = format!("cannot answer questions about paths: {why}");
            Refusal::new(ErrorCode::Internal, message)
        };
        let interfaces = facts::interfaces().await;
        let interfaces = interfaces.map_err(|error| failed(with_sources(&error)))?;
        let (interfaces, _) = migration::offered(here.networks, interfaces);
        let ports = super::pairs::ports(&interfaces).await;
        let ticket = Ticket::random().map_err(|error| failed(error.to_string()))?;
        let only_load = request.only_load;
        // Before anybody can ask.
        let counters = Counters::now().await;
        let order = Order {
            ticket: ticket.clone(),
            askers: request.askers,
            time: Duration::from_secs(request.time_s).min(limits::ANSWERING),
        };
        // Before any socket is opened: whoever is refused costs none.
        let mut live = self.live();
        check_room(&live, here.host, (&by, only_load))?;
        let answerers = match only_load {
            true => Vec::new(),
            false => bind(&interfaces, here.port, &order),
        };
        let at = answerers.iter().map(Answerer::local).collect();
        let id = AnswererId(Uuid::now_v7());
        let lanes = here.lanes.filter(|_| part.is_some());
        let loads = lanes.and_then(|lanes| take_loads(lanes, id, &interfaces, &order));
        let load_port = lanes.filter(|_| loads.is_some()).map(LaneListener::port);
        match only_load {
            true => tracing::info!(%by, %id, "lets loads in"),
            false => {
                tracing::info!(%by, %id, addresses = answerers.len(), "answers questions about paths");
            }
        }
        let (end, ended) = watch::channel(false);
        let counting = Counting::of(counters, &interfaces);
        let until = (order.time, ended);
        let answered = tokio::spawn(self.clone().answer(id, answerers, counting, until));
        let live_one = Live {
            by,
            end,
            answered,
            only_load,
            watch,
            _loads: loads,
            _part: part,
        };
        live.insert(id, live_one);
        Ok(AnswererView {
            id,
            ticket: TicketText(HEXLOWER.encode(&ticket.0)),
            port: here.port,
            moving: here.moving,
            guests: here.guests,
            load_port,
            no_load,
            at,
            interfaces,
            ports,
        })
    }

    /// Until it is ended, or its time is over.
    async fn answer(
        self,
        id: AnswererId,
        answerers: Vec<Answerer>,
        counting: Counting,
        (time, mut ended): (Duration, watch::Receiver<bool>),
    ) -> Vec<AnsweredAt> {
        if answerers.is_empty() {
            // Loads are let in until then.
            let _ = timeout(time, ended.wait_for(|ended| *ended)).await;
        }
        let answered = join_all(answerers.into_iter().map(async |answerer| {
            let address = answerer.local().ip();
            let mut ended = ended.clone();
            // Its other end goes with the agent alone.
            let answered = answerer.run(async move { drop(ended.wait_for(|ended| *ended).await) });
            (address, answered.await)
        }));
        let answered = counting.told(answered.await).await;
        if self.live().remove(&id).is_some() {
            tracing::info!(%id, "answers no more, and lets no loads in: its time is over");
        }
        answered
    }

    /// Ends it; what it did, and that so many migrations are under way by now.
    ///
    /// # Errors
    /// It has ended by itself, or is somebody else's.
    pub async fn end(
        &self,
        by: &Caller,
        id: AnswererId,
        moving: usize,
    ) -> Result<AnsweredView, Refusal> {
        let none = || {
            let message = format!("nothing answers by the id {id} any more, or not for {by}");
            Refusal::new(ErrorCode::NoSuchAnswerer, message)
        };
        let ended = {
            let mut live = self.live();
            if live.get(&id).is_none_or(|live| live.by != *by) {
                return Err(none());
            }
            live.remove(&id).ok_or_else(none)?
        };
        ended.end.send_replace(true);
        let at = ended.answered.await.map_err(|error| {
            let message = format!("the answerer {id} failed: {error}");
            Refusal::new(ErrorCode::Internal, message)
        })?;
        let loaded = ended.watch.loaded();
        Ok(AnsweredView { at, moving, loaded })
    }
}

/// What the interfaces with the addresses that are answered at count meanwhile.
struct Counting {
    before: Counters,
    nics: HashMap<IpAddr, String>,
}

impl Counting {
    fn of(before: Counters, interfaces: &[Interface]) -> Self {
        let addresses = interfaces.iter().flat_map(|nic| {
            let addresses = nic.addresses.iter();
            addresses.map(move |address| (address.address(), nic.name.clone()))
        });
        Self {
            before,
            nics: addresses.collect(),
        }
    }

    /// What was answered at each address, with that.
    async fn told(self, answered: Vec<(IpAddr, Answered)>) -> Vec<AnsweredAt> {
        let mut crossed: BTreeMap<String, Traffic> = BTreeMap::new();
        for (address, answered) in &answered {
            if let Some(nic) = self.nics.get(address) {
                let of_nic = crossed.entry(nic.clone()).or_default();
                of_nic.received += answered.heard;
                of_nic.sent += answered.bytes;
            }
        }
        let counted = self.before.since(&crossed).await;
        let of = |address: &IpAddr| {
            let counted = counted.get(self.nics.get(address)?)?.known()?;
            Some(CountedView {
                received: counted.received,
                sent: counted.sent,
            })
        };
        let told = answered.into_iter().map(|(address, answered)| AnsweredAt {
            address,
            answers: answered.answers,
            left: answered.left,
            unsent: answered.unsent,
            unsent_why: answered.unsent_why,
            counted: of(&address),
        });
        told.collect()
    }
}

fn check(request: &AnswererRequest) -> Result<(), Refusal> {
    let (count, most) = (request.askers.len(), limits::ASKERS);
    if (1..=most).contains(&count) {
        return Ok(());
    }
    let message = format!("questions come from 1 to {most} addresses, not from {count}");
    Err(Refusal::new(ErrorCode::BadRequest, message))
}

fn check_room(
    live: &HashMap<AnswererId, Live>,
    host: &HostName,
    (by, only_load): (&Caller, bool),
) -> Result<(), Refusal> {
    let alike = || live.values().filter(|live| live.only_load == only_load);
    let all = alike().count();
    let own = alike().filter(|live| live.by == *by).count();
    let most = match only_load {
        true => limits::LOADERS,
        false => limits::ANSWERERS,
    };
    let message = if own >= limits::ANSWERERS_OF_ONE {
        format!("{host} answers {by} already, by {own} orders")
    } else if all >= most {
        format!("{host} answers others already, by {all} orders")
    } else {
        return Ok(());
    };
    let seconds = limits::ANSWERING.as_secs();
    let next = format!("ask again; an order ends by itself within {seconds} s");
    Err(Refusal::new(ErrorCode::TooManyRequests, message).next(next))
}

/// One that cannot be answered at, as one that is just being taken away, is left: whoever asks sees that.
fn bind(interfaces: &[Interface], port: u16, order: &Order) -> Vec<Answerer> {
    let addresses = interfaces.iter().flat_map(|nic| &nic.addresses);
    let answerers = addresses.filter_map(|address| {
        let at = |port| SocketAddr::new(address.address(), port);
        // Another order may have it: whoever asks sees by the port that a firewall may keep it out.
        let bound = Answerer::bind(at(port), order.clone());
        bound
            .or_else(|_| Answerer::bind(at(0), order.clone()))
            .inspect_err(|error| tracing::warn!(error = with_sources(error)))
            .ok()
    });
    answerers.take(limits::ANSWER_ADDRESSES).collect()
}

/// Lets connections that load paths in at all of these addresses, until it is dropped; nothing where that is possible at none.
fn take_loads(
    lanes: &LaneListener,
    id: AnswererId,
    interfaces: &[Interface],
    order: &Order,
) -> Option<Expected> {
    let sink = Sink::new(order.clone());
    let expected = lanes.expect_elsewhere(MigrationId(id.0), move |connection, preamble, until| {
        let taken = sink.take(connection, preamble, until);
        taken.map_err(|error| turned_away(&error))
    });
    let addresses = interfaces.iter().flat_map(|nic| &nic.addresses);
    let addresses: Vec<_> = addresses.map(|address| address.address()).collect();
    let closed = expected.offer(&addresses);
    for error in &closed {
        tracing::warn!(error = with_sources(error), "takes no load there");
    }
    (closed.len() < addresses.len()).then_some(expected)
}

fn turned_away(error: &NotTaken) -> TurnedAway {
    let cause = match error {
        NotTaken::Io(error) => return TurnedAway::by_io("opening a load", error),
        NotTaken::Forged => Cause::Proof,
        NotTaken::Stranger(_) => Cause::Unexpected,
        NotTaken::Full => Cause::Crowd,
    };
    TurnedAway::new(cause, error.to_string())
}

#[cfg(test)]
mod tests {
    use drover_api::LoadTakeRequest;
    use drover_types::LoadId;

    use super::*;

    fn peer(name: &str) -> Caller {
        Caller::Peer(name.parse().unwrap())
    }

    /// By the order of that host, for a minute.
    async fn order(answerers: &Answerers, by: &str) -> Result<AnswererView, Refusal> {
        order_as(answerers, by, request()).await
    }

    async fn order_as(
        answerers: &Answerers,
        by: &str,
        request: AnswererRequest,
    ) -> Result<AnswererView, Refusal> {
        order_on(answerers, by, request, &Taken::default()).await
    }

    async fn order_on(
        answerers: &Answerers,
        by: &str,
        request: AnswererRequest,
        taken: &Taken,
    ) -> Result<AnswererView, Refusal> {
        let (host, networks) = ("a".parse().unwrap(), Selection::default());
        let here = Here {
            host: &host,
            networks: &networks,
            port: 0,
            moving: 0,
            guests: 0,
            lanes: None,
            taken,
        };
        answerers.order(&here, peer(by), request).await
    }

    fn request() -> AnswererRequest {
        AnswererRequest {
            askers: vec!["127.0.0.1".parse().unwrap()],
            time_s: 60,
            load: false,
            part_of: None,
            only_load: false,
        }
    }

    #[tokio::test]
    async fn no_more_is_answered_at_once_than_there_is_room_for_and_what_has_ended_makes_room() {
        let answerers = Answerers::default();
        let order = async |by: &str| order(&answerers, by).await;
        let first = order("b").await.unwrap();
        order("b").await.unwrap();
        let refused = order("b").await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
        assert!(refused.message.contains("host b"), "{refused}");
        order("c").await.unwrap();
        order("d").await.unwrap();
        assert!(order("e").await.is_err());
        answerers.end(&peer("b"), first.id, 0).await.unwrap();
        order("e").await.unwrap();
    }

    #[tokio::test]
    async fn loads_are_taken_for_nobody_whom_the_host_is_not_taken_for_and_questions_are_answered()
    {
        let answerers = Answerers::default();
        let load = AnswererRequest {
            load: true,
            ..request()
        };
        let view = order_as(&answerers, "b", load.clone()).await.unwrap();
        let why = view.no_load.unwrap();
        assert!(why.contains("a is not taken for a load"), "{why}");
        assert_eq!(view.load_port, None);
        assert!(!view.at.is_empty());
        let only = AnswererRequest {
            only_load: true,
            ..load
        };
        let refused = order_as(&answerers, "b", only).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
    }

    fn take(taken: &Taken, by: &str) -> Result<LoadId, Refusal> {
        let id = LoadId(Uuid::now_v7());
        let request = LoadTakeRequest { id, time_s: 60 };
        taken.take(&"a".parse().unwrap(), by.parse().unwrap(), request)?;
        Ok(id)
    }

    #[tokio::test]
    async fn whoever_asks_hears_at_the_end_whether_the_host_was_part_of_somebody_elses_load() {
        let (answerers, taken) = (Answerers::default(), Taken::default());
        let order = async |request| order_on(&answerers, "b", request, &taken).await.unwrap();
        let end = async |id| answerers.end(&peer("b"), id, 0).await.unwrap().loaded;
        let quiet = order(request()).await;
        assert_eq!(end(quiet.id).await, None);
        let asked = order(request()).await;
        let id = take(&taken, "c").unwrap();
        drop(taken.join(&"a".parse().unwrap(), Some(id), None).unwrap());
        taken.give_back(&"c".parse().unwrap(), id);
        let why = end(asked.id).await.unwrap();
        assert!(why.starts_with("a had part in a load of c"), "{why}");
        let id = take(&taken, "b").unwrap();
        let own = order(AnswererRequest {
            load: true,
            part_of: Some(id),
            ..request()
        });
        assert_eq!(end(own.await.id).await, None);
    }

    #[tokio::test]
    async fn a_host_that_lets_loads_in_is_taken_by_nobody_else_before_that_has_ended() {
        let (answerers, taken) = (Answerers::default(), Taken::default());
        let id = take(&taken, "b").unwrap();
        let load = AnswererRequest {
            load: true,
            part_of: Some(id),
            only_load: true,
            ..request()
        };
        let view = order_on(&answerers, "b", load, &taken).await.unwrap();
        taken.give_back(&"b".parse().unwrap(), id);
        let refused = take(&taken, "c").unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
        answerers.end(&peer("b"), view.id, 0).await.unwrap();
        take(&taken, "c").unwrap();
    }

    #[tokio::test]
    async fn it_is_ended_once_and_only_by_whoever_ordered_it() {
        let answerers = Answerers::default();
        let ordered = order(&answerers, "b").await.unwrap();
        for other in [peer("c"), Caller::Local] {
            let refused = answerers.end(&other, ordered.id, 0).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::NoSuchAnswerer);
        }
        assert!(!ordered.at.is_empty());
        let answered = answerers.end(&peer("b"), ordered.id, 0).await.unwrap();
        assert_eq!(answered.at.len(), ordered.at.len());
        assert!(answered.at.iter().all(|at| at.answers == 0));
        assert!(answerers.end(&peer("b"), ordered.id, 0).await.is_err());
    }

    #[tokio::test]
    async fn one_that_nobody_ends_ends_by_itself() {
        let answerers = Answerers::default();
        let at_once = AnswererRequest {
            time_s: 0,
            ..request()
        };
        let ordered = order_as(&answerers, "b", at_once).await.unwrap();
        while answerers.live().contains_key(&ordered.id) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whom_to_answer_is_named_within_bounds() {
        let answerers = Answerers::default();
        for askers in [0, limits::ASKERS + 1] {
            let request = AnswererRequest {
                askers: vec!["127.0.0.1".parse().unwrap(); askers],
                ..request()
            };
            let refused = order_as(&answerers, "b", request).await;
            assert_eq!(refused.unwrap_err().code, ErrorCode::BadRequest);
        }
    }
}
