//! Asking the paths from this host to another.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use drover_api::{
    AnsweredAt, AnsweredView, AnswererRequest, AnswererView, ClientError, ErrorCode, PathLeftOut,
    PathsView, Refusal,
};
use drover_migrate::paths::{Candidate, Selected, Selection, Side, select};
use drover_reach::limits::ASK_TIME;
use drover_reach::{Beyond, Budget, Largest, Question, Report, Ticket};
use drover_tune::facts::{Fact, Path, PathEnd};
use drover_types::{BitRate, HostName, Interface, with_sources};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::time::{Instant, timeout};

use super::Turn;
use super::found;
use super::pairs::{self, Pair, candidates, pairs, waves};
use crate::agent::Context;
use crate::migration::Migrations;
use crate::{facts, limits, peers};

/// Waits for the turn to ask.
///
/// # Errors
/// Others have had it for too long.
pub async fn turn(context: &Context) -> Result<Turn, Refusal> {
    let asking = Arc::clone(&context.paths.asking);
    let turn = timeout(limits::ASK_TURN, asking.lock_owned()).await;
    turn.map(|held| Turn { _held: held })
        .map_err(|_| busy(&context.config.host))
}

/// Asks all of them: those that a migration to that host would use.
///
/// # Errors
/// That host is this one, or no member, or does not answer, or is of a version that answers no such questions; this one cannot
/// read its own interfaces.
pub async fn ask(
    context: &Arc<Context>,
    migrations: &Migrations,
    far: &HostName,
    _turn: Turn,
) -> Result<PathsView, Refusal> {
    let near = &context.config.host;
    if far == near {
        let message = format!("{far} is this host: there is no path to it");
        return Err(Refusal::new(ErrorCode::SameHost, message));
    }
    let client = context.peers.client(far)?;
    let own = facts::interfaces().await.map_err(|error| {
        let why = with_sources(&error);
        let message = format!("cannot read the interfaces of {near}: {why}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let own = pairs::matter(&own, has_hardware);
    let ours = select(Side::Source, &own, &context.config.networks);
    if ours.endpoints.is_empty() {
        let none = pairs(&ours, &Selected::default(), &[]);
        let left_out = none.left_out.into_iter();
        let mut view = PathsView {
            paths: Vec::new(),
            left_out: left_out.map(|left| pairs::told(near, far, left)).collect(),
        };
        name_if_silent(&mut view, near, far, None);
        return Ok(view);
    }
    let moving = migrations.under_way().len();
    let ordered = client.order_answerer(&request(&ours)).await;
    let answerer = ordered.map_err(|error| not_answered(far, &error))?;
    // What the other host offers is what its own configuration allows.
    let theirs = select(
        Side::Destination,
        &answerer.interfaces,
        &Selection::default(),
    );
    let ticket = ticket(far, &answerer)?;
    let asking = Asking {
        near,
        far,
        own: &own,
        answerer: &answerer,
        ticket,
        end: Instant::now() + limits::ASKING,
    };
    let (mut answered, across) = candidates(&own, &ours, &theirs);
    answered.extend(asking.knocked(across).await);
    let found = pairs(&ours, &theirs, &answered);
    let asked = asking.all(found.chosen).await;
    let ended = client.end_answerer(answerer.id).await;
    let of_far = ended.as_ref().map_or(0, |ended| ended.moving);
    let moving = [
        (near, moving.max(migrations.under_way().len())),
        (far, answerer.moving.max(of_far)),
    ];
    let busy = busy_with(moving);
    let left = Left::of(far, ended);
    let mut view = PathsView::default();
    for asked in asked {
        match asking.told(asked, &left, busy.as_deref()) {
            Ok(path) => view.paths.push(path),
            Err(left) => view.left_out.push(left),
        }
    }
    let left_out = found.left_out.into_iter();
    let left_out = left_out.map(|left| pairs::told(near, far, left));
    view.left_out.extend(left_out);
    let mut at = answerer.at.iter();
    let elsewhere = at.find_map(|at| elsewhere(far, answerer.port, *at));
    name_if_silent(&mut view, near, far, elsewhere);
    Ok(view)
}

/// All was answered, and nothing vanished.
fn is_whole(report: &Report) -> bool {
    let lost = |largest: &Largest| largest.beyond == Beyond::Lost;
    let sizes = [report.there.as_ref(), report.back.as_ref()];
    report.unfinished.is_none()
        && report.trips.answered == report.trips.sent
        && !sizes.into_iter().flatten().any(lost)
}

/// Which of them move guests, and how many.
fn busy_with(moving: [(&HostName, usize); 2]) -> Option<String> {
    let (host, count) = moving.into_iter().find(|(_, count)| *count > 0)?;
    let migrations = if count == 1 {
        "migration was"
    } else {
        "migrations were"
    };
    Some(format!(
        "{count} {migrations} under way at {host}, and what they fill is lost to others: ask when there is none"
    ))
}

/// Whether there is a device below it, by the kernel's word.
fn has_hardware(nic: &str) -> bool {
    let all = std::path::Path::new("/sys/class/net");
    all.join(nic).join("device").exists()
}

/// Names the two hosts where no path between them was answered: that is found even if no path is claimed.
fn name_if_silent(view: &mut PathsView, near: &HostName, far: &HostName, why: Option<String>) {
    let is_answered = |path: &Path| path.arrivals.known().is_some_and(|by| !by.is_empty());
    if view.paths.iter().any(is_answered) {
        return;
    }
    let none = format!("no interface of {near} reaches one of {far}: a migration finds no path");
    view.left_out.push(PathLeftOut {
        near: near.clone(),
        far: Some(far.clone()),
        nic: None,
        why: why.map_or(none.clone(), |why| format!("{none}; {why}")),
    });
}

/// What silence at a port may come from that is not the one which is open between hosts.
fn elsewhere(far: &HostName, open: u16, at: SocketAddr) -> Option<String> {
    let (address, port) = (at.ip(), at.port());
    (open != 0 && port != open).then(|| {
        format!(
            "{far} answered at port {port} of {address}, as {open} was taken, and a firewall may keep that out: ask again in a minute"
        )
    })
}

fn request(ours: &Selected) -> AnswererRequest {
    let askers = ours.endpoints.iter();
    AnswererRequest {
        askers: askers.map(|end| end.address.address()).collect(),
        time_s: limits::ANSWERING.as_secs(),
    }
}

fn ticket(far: &HostName, answerer: &AnswererView) -> Result<Ticket, Refusal> {
    let key = HEXLOWER.decode(answerer.ticket.0.as_bytes()).ok();
    let key = key.and_then(|key| key.try_into().ok());
    key.map(Ticket).ok_or_else(|| {
        let message = format!("the ticket of {far} is not one of 32 bytes");
        Refusal::new(ErrorCode::VersionMismatch, message)
    })
}

fn busy(near: &HostName) -> Refusal {
    let seconds = limits::ASK_TURN.as_secs();
    let message = format!("{near} has been asking other paths for {seconds} s");
    Refusal::new(ErrorCode::TooManyRequests, message).next("ask again in a minute")
}

/// What to tell when another agent does not answer questions, or one of an older version does not even ask.
pub fn not_answered(host: &HostName, error: &ClientError) -> Refusal {
    // Those of before have no such route, and say to other hosts that it is not for them.
    let unknown = [ErrorCode::NoSuchRoute, ErrorCode::LocalOnly];
    if unknown.into_iter().any(|code| error.is_refused_with(code)) {
        let message = format!("the agent of {host} is of a version that knows nothing of paths");
        return Refusal::new(ErrorCode::VersionMismatch, message)
            .next("bring it to the version of the others");
    }
    peers::unreachable(host, error)
}

/// A pair that was asked, or why it was not.
struct Asked {
    pair: Pair,
    route: Fact<String>,
    report: Result<Report, String>,
}

/// Everything that asking pairs takes.
struct Asking<'a> {
    near: &'a HostName,
    far: &'a HostName,
    own: &'a [Interface],
    answerer: &'a AnswererView,
    ticket: Ticket,
    end: Instant,
}

impl Asking<'_> {
    async fn all(&self, chosen: Vec<Pair>) -> Vec<Asked> {
        let mut asked = Vec::new();
        for wave in waves(chosen) {
            let wave = wave.into_iter().map(async |pair| {
                let (from, to) = (pair.near.address, pair.far.address);
                let route = match drover_host::route(from, to).await {
                    Ok(route) => Fact::Known(route),
                    Err(error) => Fact::unknown(with_sources(&error)),
                };
                let report = self.ask(&pair).await;
                Asked {
                    pair,
                    route,
                    report,
                }
            });
            asked.extend(join_all(wave).await);
        }
        asked
    }

    /// Those of them that answer: across networks nobody claims anything, and a migration asks them all, too.
    async fn knocked(&self, across: Vec<Candidate>) -> Vec<Candidate> {
        let knocked = stream::iter(across).map(async |one| {
            let question = self.question(&one.source, &one.destination, None).ok()?;
            let answered = drover_reach::knock(&question).await;
            answered.is_ok_and(|answered| answered).then_some(one)
        });
        let knocked = knocked.buffered(limits::KNOCKING_AT_ONCE);
        knocked.filter_map(async |one| one).collect().await
    }

    async fn ask(&self, pair: &Pair) -> Result<Report, String> {
        let question = self.question(&pair.near, &pair.far, pair.rate)?;
        let report = drover_reach::ask(&question).await;
        report.map_err(|error| with_sources(&error))
    }

    /// Where that address is answered at.
    fn remote(&self, address: IpAddr) -> Option<SocketAddr> {
        let mut at = self.answerer.at.iter().copied();
        at.find(|at| at.ip() == address)
    }

    fn question(
        &self,
        near: &drover_types::PathEnd,
        far: &drover_types::PathEnd,
        rate: Option<BitRate>,
    ) -> Result<Question, String> {
        let remote = self.remote(far.address);
        let remote =
            remote.ok_or_else(|| format!("{} does not answer at {}", self.far, far.address))?;
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = limits::ASKING.as_secs();
            return Err(format!(
                "asking its paths to {} took {seconds} s already",
                self.far
            ));
        }
        Ok(Question {
            interface: near.interface.clone(),
            local: near.address,
            remote,
            ticket: self.ticket.clone(),
            mtu: mtu(self.own, &near.interface),
            far_mtu: mtu(&self.answerer.interfaces, &far.interface),
            rate,
            budget: Budget {
                time: ASK_TIME.min(left),
                ..Budget::default()
            },
        })
    }

    /// The path as the rules know it, or why nothing was found out about it.
    fn told(&self, asked: Asked, left: &Left, busy: Option<&str>) -> Result<Path, PathLeftOut> {
        let Asked {
            pair,
            route,
            report,
        } = asked;
        let left_out = |why: String| PathLeftOut {
            near: self.near.clone(),
            far: Some(self.far.clone()),
            nic: Some(pair.near.interface.clone()),
            why,
        };
        let report = report.map_err(left_out)?;
        let ends = (
            end(self.near, self.own, &pair.near),
            end(self.far, &self.answerer.interfaces, &pair.far),
        );
        let port = self.answerer.port;
        let remote = self.remote(pair.far.address);
        let remote = remote.filter(|_| report.arrivals.is_empty());
        let elsewhere = remote.and_then(|at| elsewhere(self.far, port, at));
        let doubt = left.at(self.far, pair.far.address).or(elsewhere);
        // Where nothing was silent nothing has to be explained: others were asked at that address, too.
        let uncertain = doubt.filter(|_| !is_whole(&report));
        let doubts = found::Doubts {
            silence: uncertain.as_deref(),
            loss: busy,
        };
        Ok(found::path(ends, route, &report, doubts))
    }
}

fn end(host: &HostName, interfaces: &[Interface], end: &drover_types::PathEnd) -> PathEnd {
    PathEnd {
        host: host.to_string(),
        nic: end.interface.clone(),
        address: end.address,
        mtu: mtu(interfaces, &end.interface),
    }
}

fn mtu(interfaces: &[Interface], name: &str) -> u32 {
    let mut interfaces = interfaces.iter();
    let found = interfaces.find(|interface| interface.name == name);
    found.map_or(0, |found| found.mtu)
}

/// What was left at each address, or why that is not known.
struct Left(Result<BTreeMap<IpAddr, AnsweredAt>, String>);

impl Left {
    fn of(far: &HostName, ended: Result<AnsweredView, ClientError>) -> Self {
        let left = |view: AnsweredView| {
            let at = view.at.into_iter();
            at.map(|at| (at.address, at)).collect()
        };
        let ended = ended.map(left);
        Self(ended.map_err(|error| peers::unreachable(far, &error).message))
    }

    /// Why silence of that address may be no loss.
    fn at(&self, far: &HostName, address: IpAddr) -> Option<String> {
        let left = match &self.0 {
            Ok(left) => left.get(&address),
            Err(why) => {
                return Some(format!("{far} did not say what it left unanswered: {why}"));
            }
        };
        match left {
            Some(AnsweredAt { left, .. }) if *left > 0 => Some(format!(
                "{far} left {left} questions at {address} unanswered, as they came too fast"
            )),
            Some(AnsweredAt {
                unsent, unsent_why, ..
            }) if *unsent > 0 => Some(format!(
                "the kernel of {far} did not send {unsent} answers from {address}: {}",
                unsent_why.as_deref().unwrap_or("it did not say why")
            )),
            Some(_) => None,
            None => Some(format!(
                "{far} did not say what it left unanswered at {address}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far() -> HostName {
        "b".parse().unwrap()
    }

    fn answered(left: u64) -> AnsweredView {
        with_unsent(left, 0)
    }

    fn with_unsent(left: u64, unsent: u64) -> AnsweredView {
        AnsweredView {
            at: vec![AnsweredAt {
                address: "10.0.0.2".parse().unwrap(),
                answers: 100,
                left,
                unsent,
                unsent_why: Some("Operation not permitted".into()),
            }],
            moving: 0,
        }
    }

    #[test]
    fn silence_is_loss_only_where_the_answerer_says_that_it_left_nothing() {
        let at = |left: &Left, address: &str| left.at(&far(), address.parse().unwrap());
        let all = Left::of(&far(), Ok(answered(0)));
        assert_eq!(at(&all, "10.0.0.2"), None);
        assert!(at(&all, "10.0.0.3").unwrap().contains("10.0.0.3"));
        let some = Left::of(&far(), Ok(answered(3)));
        assert!(at(&some, "10.0.0.2").unwrap().contains("left 3 questions"));
        let unsent = Left::of(&far(), Ok(with_unsent(0, 2)));
        let why = at(&unsent, "10.0.0.2").unwrap();
        assert!(why.contains("did not send 2 answers") && why.contains("not permitted"));
        let gone = Refusal::new(ErrorCode::NoSuchAnswerer, "it has ended");
        let none = Left::of(&far(), Err(gone.into()));
        assert!(at(&none, "10.0.0.2").unwrap().ends_with("it has ended"));
    }

    #[test]
    fn whoever_moves_guests_is_named() {
        let (near, far) = ("a".parse().unwrap(), far());
        assert_eq!(busy_with([(&near, 0), (&far, 0)]), None);
        let why = busy_with([(&near, 0), (&far, 2)]).unwrap();
        assert!(why.starts_with("2 migrations were under way at b"), "{why}");
    }

    #[test]
    fn silence_at_a_port_that_a_firewall_may_keep_out_is_said_to_be_at_one() {
        let at = |port| SocketAddr::from(([10, 0, 0, 2], port));
        assert_eq!(elsewhere(&far(), 7471, at(7471)), None);
        assert_eq!(elsewhere(&far(), 0, at(40_000)), None);
        let why = elsewhere(&far(), 7471, at(40_000)).unwrap();
        assert!(why.contains("port 40000 of 10.0.0.2, as 7471 was taken"));
    }

    #[test]
    fn an_agent_of_an_older_version_is_said_to_be_one() {
        for code in [ErrorCode::NoSuchRoute, ErrorCode::LocalOnly] {
            let refused = Refusal::new(code, "what is that");
            let told = not_answered(&far(), &refused.into());
            assert_eq!(told.code, ErrorCode::VersionMismatch);
            assert!(told.message.contains("agent of b"), "{told}");
        }
        let busy = Refusal::new(ErrorCode::TooManyRequests, "later");
        assert_eq!(not_answered(&far(), &busy.into()).message, "later");
    }
}
