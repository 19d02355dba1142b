//! Asking the paths from this host to another.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use drover_api::{
    AnswererRequest, AnswererView, ClientError, ErrorCode, LoadRequest, PathLeftOut, PathsView,
    Refusal,
};
use drover_migrate::paths::{Selected, Side, select};
use drover_reach::Ticket;
use drover_tune::facts::Path;
use drover_types::{HostName, Interface, LoadId, with_sources};
use tokio::time::{Instant, timeout};

use super::Turn;
use super::asking::{Asking, Loads};
use super::doubts::{Left, busy_with, elsewhere};
use super::limits;
use super::loading::{self, Loading};
use super::pairs::{self, pairs, ports};
use super::taken::join;
use crate::agent::Context;
use crate::api::Caller;
use crate::migration::Migrations;
use crate::{facts, peers, present};

/// What is to be asked, and by whose wish.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The host that answers.
    pub far: &'a HostName,
    /// How paths are loaded, if they are to be.
    pub load: Option<LoadRequest>,
    /// The load that this host is taken for meanwhile: its own is nobody else's.
    pub part_of: Option<LoadId>,
    /// Whoever wants to know.
    pub by: &'a Caller,
}

/// Waits for the turn to ask.
///
/// # Errors
/// Others have had it for too long.
pub async fn turn(context: &Context) -> Result<Turn, Refusal> {
    let since = Instant::now();
    let asking = Arc::clone(&context.paths.asking);
    let turn = timeout(limits::ASK_TURN, asking.lock_owned()).await;
    turn.map(|held| Turn { _held: held, since })
        .map_err(|_| busy(&context.config.host))
}

/// Asks all of them: those that a migration to that host would use; loads them then, if that is wanted, as part of a load that both hosts
/// have to be taken for.
///
/// # Errors
/// That host is this one, or no member, or does not answer, or is of a version that answers no such questions; this one cannot
/// read its own interfaces; it may not load paths so.
pub async fn ask(
    context: &Arc<Context>,
    migrations: &Migrations,
    wanted: Wanted<'_>,
    turn: Turn,
) -> Result<PathsView, Refusal> {
    let near = &context.config.host;
    let Wanted {
        far,
        load,
        part_of,
        by,
    } = wanted;
    load.map_or(Ok(()), loading::check)?;
    if far == near {
        let message = format!("{far} is this host: there is no path to it");
        return Err(Refusal::new(ErrorCode::SameHost, message));
    }
    let client = context.peers.client(far)?;
    let watch = context.paths.taken.watch(near, part_of);
    let own = own_interfaces(near).await?;
    let own_ports = ports(&own).await;
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
    let ordered = client
        .order_answerer(&request(&ours, load.is_some(), part_of))
        .await;
    let answerer = ordered.map_err(|error| not_answered(far, &error))?;
    let ticket = ticket(far, &answerer)?;
    let busy = busy_with([(near, moving), (far, answerer.moving)]);
    let guests = present::on_links(context);
    // Held until all of it has ended.
    let part = load.map(|_| join(context, by, part_of));
    let load = load.zip(part.as_ref()).map(|(load, part)| {
        part.as_ref().map_err(Clone::clone)?;
        Loading::agreed(load, far, &answerer, &ticket, guests, busy.as_deref())
    });
    let asking = Asking {
        near,
        far,
        own: &own,
        ports: &own_ports,
        answerer: &answerer,
        ticket,
        within: limits::ASKING,
        end: Instant::now() + limits::ASKING,
    };
    let moves = || !migrations.under_way().is_empty();
    let loads = load.map(|how| Loads {
        how,
        moves: &moves,
        end: turn.since + limits::ASKING,
    });
    let found = asking.pairs(&ours).await;
    let asked = asking.all(found.chosen, loads.as_ref()).await;
    let ended = client.end_answerer(answerer.id).await;
    let of_far = ended.as_ref().map_or(0, |ended| ended.moving);
    let moving = [
        (near, moving.max(migrations.under_way().len())),
        (far, answerer.moving.max(of_far)),
    ];
    let loaded = ended.as_ref().ok().and_then(|ended| ended.loaded.clone());
    let busy = busy_with(moving).or_else(|| watch.loaded()).or(loaded);
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

/// Those of this host that are somebody's.
///
/// # Errors
/// The kernel does not tell them.
pub async fn own_interfaces(near: &HostName) -> Result<Vec<Interface>, Refusal> {
    let all = facts::interfaces().await.map_err(|error| {
        let why = with_sources(&error);
        let message = format!("cannot read the interfaces of {near}: {why}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    Ok(pairs::matter(&all, facts::has_hardware))
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

/// What an answerer is ordered by.
pub fn request(ours: &Selected, load: bool, part_of: Option<LoadId>) -> AnswererRequest {
    let askers = ours.endpoints.iter();
    AnswererRequest {
        askers: askers.map(|end| end.address.address()).collect(),
        time_s: limits::ANSWERING.as_secs(),
        load,
        part_of,
        only_load: false,
    }
}

/// What questions to an answerer are made with.
///
/// # Errors
/// The other agent speaks another language.
pub fn ticket(far: &HostName, answerer: &AnswererView) -> Result<Ticket, Refusal> {
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
    refused_by(host, error, "knows nothing of paths")
}

/// The same where it was to load paths, or to be loaded.
pub fn not_loaded(host: &HostName, error: &ClientError) -> Refusal {
    refused_by(host, error, "loads no path")
}

/// The same where it was to open connections.
pub fn not_opened(host: &HostName, error: &ClientError) -> Refusal {
    refused_by(host, error, "opens no connections to others")
}

fn refused_by(host: &HostName, error: &ClientError, version: &str) -> Refusal {
    // Those of before have no such route, and say to other hosts that it is not for them.
    let unknown = [ErrorCode::NoSuchRoute, ErrorCode::LocalOnly];
    if unknown.into_iter().any(|code| error.is_refused_with(code)) {
        let message = format!("the agent of {host} is of a version that {version}");
        return Refusal::new(ErrorCode::VersionMismatch, message)
            .next("bring it to the version of the others");
    }
    peers::unreachable(host, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_of_an_older_version_is_said_to_be_one() {
        for code in [ErrorCode::NoSuchRoute, ErrorCode::LocalOnly] {
            let refused = Refusal::new(code, "what is that");
            let told = not_answered(&"b".parse().unwrap(), &refused.into());
            assert_eq!(told.code, ErrorCode::VersionMismatch);
            let knows = "the agent of b is of a version that knows nothing of paths";
            assert_eq!(told.message, knows);
        }
        let older = Refusal::new(ErrorCode::NoSuchRoute, "what is that");
        let told = not_loaded(&"b".parse().unwrap(), &older.into());
        assert!(
            told.message.ends_with("a version that loads no path"),
            "{told}"
        );
        let busy = Refusal::new(ErrorCode::TooManyRequests, "later");
        assert_eq!(
            not_answered(&"b".parse().unwrap(), &busy.into()).message,
            "later"
        );
    }
}
