//! Asking the paths from this host to another.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use drover_api::{
    AnsweredView, AnswererRequest, AnswererView, ClientError, ErrorCode, PathLeftOut, PathsView,
    Refusal,
};
use drover_migrate::paths::{Selected, Selection, Side, select};
use drover_reach::limits::ASK_TIME;
use drover_reach::{Budget, Question, Report, Ticket};
use drover_tune::facts::{Fact, Path, PathEnd};
use drover_types::{HostName, Interface, with_sources};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::found;
use super::pairs::{self, Pair, pairs, waves};
use crate::agent::Context;
use crate::{facts, limits, peers};

/// Asks all of them: those that a migration to that host would use.
///
/// # Errors
/// That host is this one, or no member, or does not answer, or is of a version that answers no such questions; this one is
/// asking already, or cannot read its own interfaces.
pub async fn ask(context: &Arc<Context>, far: &HostName) -> Result<PathsView, Refusal> {
    let near = &context.config.host;
    if far == near {
        let message = format!("{far} is this host: there is no path to it");
        return Err(Refusal::new(ErrorCode::SameHost, message));
    }
    let client = context.peers.client(far)?;
    let turn = timeout(limits::ASK_TURN, context.paths.asking.lock()).await;
    let _turn = turn.map_err(|_| busy(near))?;
    let own = facts::interfaces().await.map_err(|error| {
        let why = with_sources(&error);
        let message = format!("cannot read the interfaces of {near}: {why}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let ours = select(Side::Source, &own, &context.config.networks);
    if ours.endpoints.is_empty() {
        let none = pairs(&own, &ours, &Selected::default());
        let left_out = none.left_out.into_iter();
        return Ok(PathsView {
            paths: Vec::new(),
            left_out: left_out.map(|left| pairs::told(near, far, left)).collect(),
        });
    }
    let ordered = client.order_answerer(&request(&ours)).await;
    let answerer = ordered.map_err(|error| not_answered(far, &error))?;
    // What the other host offers is what its own configuration allows.
    let theirs = select(
        Side::Destination,
        &answerer.interfaces,
        &Selection::default(),
    );
    let found = pairs(&own, &ours, &theirs);
    let ticket = ticket(far, &answerer)?;
    let asking = Asking {
        near,
        far,
        own: &own,
        answerer: &answerer,
        ticket,
        end: Instant::now() + limits::ASKING,
    };
    let asked = asking.all(found.chosen).await;
    let left = Left::of(far, client.end_answerer(answerer.id).await);
    let mut view = PathsView::default();
    for asked in asked {
        match asking.told(asked, &left) {
            Ok(path) => view.paths.push(path),
            Err(left) => view.left_out.push(left),
        }
    }
    let left_out = found.left_out.into_iter();
    let left_out = left_out.map(|left| pairs::told(near, far, left));
    view.left_out.extend(left_out);
    Ok(view)
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

    async fn ask(&self, pair: &Pair) -> Result<Report, String> {
        let (far, address) = (self.far, pair.far.address);
        let mut at = self.answerer.at.iter();
        let remote: &SocketAddr = at
            .find(|at| at.ip() == address)
            .ok_or_else(|| format!("{far} does not answer at {address}"))?;
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = limits::ASKING.as_secs();
            return Err(format!(
                "asking its paths to {far} took {seconds} s already"
            ));
        }
        let question = Question {
            interface: pair.near.interface.clone(),
            local: pair.near.address,
            remote: *remote,
            ticket: self.ticket.clone(),
            mtu: mtu(self.own, &pair.near.interface),
            far_mtu: mtu(&self.answerer.interfaces, &pair.far.interface),
            rate: pair.rate,
            budget: Budget {
                time: ASK_TIME.min(left),
                ..Budget::default()
            },
        };
        let report = drover_reach::ask(&question).await;
        report.map_err(|error| with_sources(&error))
    }

    /// The path as the rules know it, or why nothing was found out about it.
    fn told(&self, asked: Asked, left: &Left) -> Result<Path, PathLeftOut> {
        let Asked {
            pair,
            route,
            report,
        } = asked;
        let left_out = |why: String| PathLeftOut {
            near: self.near.clone(),
            far: self.far.clone(),
            nic: Some(pair.near.interface.clone()),
            why,
        };
        let report = report.map_err(left_out)?;
        if !pair.one_network && report.trips.answered == 0 {
            let (address, far) = (pair.far.address, self.far);
            return Err(left_out(format!(
                "nothing comes back from {address} of {far}, which is in another network: a migration does without"
            )));
        }
        let ends = (
            end(self.near, self.own, &pair.near),
            end(self.far, &self.answerer.interfaces, &pair.far),
        );
        let uncertain = left.at(self.far, pair.far.address);
        Ok(found::path(ends, route, &report, uncertain.as_deref()))
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

/// How many questions were left at each address, or why that is not known.
struct Left(Result<BTreeMap<IpAddr, u64>, String>);

impl Left {
    fn of(far: &HostName, ended: Result<AnsweredView, ClientError>) -> Self {
        let left = |view: AnsweredView| {
            let at = view.at.into_iter();
            at.map(|at| (at.address, at.left)).collect()
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
            Some(0) => None,
            Some(left) => Some(format!(
                "{far} left {left} questions at {address} unanswered, as they came too fast"
            )),
            None => Some(format!(
                "{far} did not say what it left unanswered at {address}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_api::AnsweredAt;

    use super::*;

    fn far() -> HostName {
        "b".parse().unwrap()
    }

    fn answered(left: u64) -> AnsweredView {
        AnsweredView {
            at: vec![AnsweredAt {
                address: "10.0.0.2".parse().unwrap(),
                answers: 100,
                left,
            }],
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
        let gone = Refusal::new(ErrorCode::NoSuchAnswerer, "it has ended");
        let none = Left::of(&far(), Err(gone.into()));
        assert!(at(&none, "10.0.0.2").unwrap().ends_with("it has ended"));
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
