//! `drover recent …`, and `--cluster NAME`: the clusters that this user has used.
//!
//! ```text
//!   a command that reached an agent ─ note ─▶ Book ◀─ read, change ─▶ recent.json
//!   --cluster NAME ─ find ─▶ look: is it that cluster? ─▶ the command, or a refusal
//! ```
//! Owns which clusters are known by which names. Never acts on a cluster by its name without having seen
//! its fingerprint, and never removes one that nobody has confirmed.

mod book;
mod file;
mod look;
mod prune;
mod show;

use std::path::Path;

use clap::Subcommand;
use drover_types::HostName;
use jiff::Timestamp;

use self::book::{Known, NotNamed, Reached, Way};
use self::file::{Place, Unusable};
use self::look::State;
use crate::cli::Agent;
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::limits::NOTE;
use crate::remote;

#[derive(Debug, Subcommand)]
pub enum RecentCommand {
    /// Give a cluster another name
    #[command(before_help = NAME_EXAMPLES)]
    Name {
        /// What it is called
        old: HostName,
        /// What it is to be called
        new: HostName,
    },
    /// Forget clusters that do not answer, and those in whose place another one answers
    #[command(before_help = PRUNE_EXAMPLES, after_help = PRUNE_AFTER)]
    Prune {
        /// These and no others, however they were found
        #[arg(value_name = "NAME")]
        names: Vec<HostName>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub const EXAMPLES: &str = "\
Examples:
  drover recent                     the clusters that you used, and whether they are there still
  drover --cluster a status         ask one of them, whatever host it was reached by
  drover recent name a lab          call it something else
  drover recent prune               forget those that are gone

";
const NAME_EXAMPLES: &str = "\
Examples:
  drover recent name a lab
  drover --cluster lab status

";
const PRUNE_EXAMPLES: &str = "\
Examples:
  drover recent prune               shows what would be forgotten, and asks
  drover recent prune --yes         for scripts
  drover recent prune lab           this one, though it may be there still

";
const PRUNE_AFTER: &str = "\
Only what this user remembers is forgotten: nothing is done to any cluster.";

pub const AFTER: &str = "\
Whenever a command reaches an agent that belongs to a cluster, the cluster is noted for the user who
gave it. It is known by its authority's fingerprint: one that was made anew at the same address is
another one.";

/// `drover recent …`
pub async fn run(command: Option<RecentCommand>) -> Result<Outcome, Failure> {
    let place = Place::of_user().map_err(unusable)?;
    match command {
        None => list(&place).await,
        Some(RecentCommand::Name { old, new }) => rename(&place, &old, new),
        Some(RecentCommand::Prune { names, yes }) => prune::prune(&place, &names, yes).await,
    }
}

async fn list(place: &Place) -> Result<Outcome, Failure> {
    let found = look_at_all(place).await?;
    show::list(&found, place)
}

/// All clusters with how they were found just now, which is noted.
async fn look_at_all(place: &Place) -> Result<Vec<(Known, State)>, Failure> {
    let clusters = read(place)?;
    let states = look::at_all(&clusters).await;
    let now = Timestamp::now();
    if clusters.is_empty() {
        return Ok(Vec::new());
    }
    let noted = place.change(|book| {
        let mut is_new = false;
        for (known, state) in clusters.iter().zip(&states) {
            let is_there = matches!(state, State::Reachable | State::Refused { .. });
            is_new |= book.looked(known.fingerprint, is_there, now);
        }
        (is_new, book.clusters.clone())
    });
    let newer = noted.map_err(unusable)?;
    let since = |known: &Known| {
        let mut newer = newer.iter();
        let it = newer.find(|newer| newer.fingerprint == known.fingerprint)?;
        it.unreachable_since
    };
    let found = clusters.into_iter().zip(states).map(|(known, state)| {
        let unreachable_since = since(&known);
        let known = Known {
            unreachable_since,
            ..known
        };
        (known, state)
    });
    Ok(found.collect())
}

/// What is kept; a damaged file is put out of the way, and that is an error once.
fn read(place: &Place) -> Result<Vec<Known>, Failure> {
    match place.read() {
        Ok(book) => Ok(book.clusters),
        Err(damaged @ Unusable::Damaged { .. }) => {
            let aside = place.set_aside().map_err(unusable)?;
            let aside = aside.display();
            Err(
                Failure::new(exit::ERROR, "recent-damaged", damaged.to_string()).next(format!(
                    "it is {aside} now, and a new one begins with the next cluster that is used; what \
                     can be read in it can be put back"
                )),
            )
        }
        Err(error) => Err(unusable(error)),
    }
}

fn rename(place: &Place, old: &HostName, new: HostName) -> Result<Outcome, Failure> {
    read(place)?;
    let named = place.change(|book| {
        let named = book.rename(old, new.clone());
        (named.is_ok(), named)
    });
    match named.map_err(unusable)? {
        Ok(()) => Ok(Outcome::text(format!(
            "{old} is called {new} from now on\n"
        ))),
        Err(NotNamed::NoSuch) => Err(no_such(old)),
        Err(NotNamed::Taken) => {
            let message = format!("another cluster is called {new}");
            Err(Failure::new(exit::REFUSED, "name-taken", message)
                .next("choose another name, or give that cluster another one first"))
        }
    }
}

/// The agent that a command is to ask: of the cluster that was named, after a look that it is that one.
pub async fn resolve(agent: Agent) -> Result<Agent, Failure> {
    let Some(name) = &agent.cluster else {
        return Ok(agent);
    };
    let place = Place::of_user().map_err(unusable)?;
    let clusters = read(&place)?;
    let mut clusters = clusters.into_iter();
    let known = clusters.find(|known| known.name == *name);
    let known = known.ok_or_else(|| no_such(name))?;
    let state = look::at(&known).await;
    if let Some(failure) = not_it(&known, state) {
        return Err(failure);
    }
    Ok(match known.way {
        Way::Socket { path } => Agent {
            socket: path,
            agent: None,
            ..agent
        },
        Way::Remote { url, identity } => Agent {
            agent: Some(url),
            identity: Some(identity),
            ..agent
        },
    })
}

/// Why nothing is asked of what was found in the place of a cluster.
fn not_it(known: &Known, state: State) -> Option<Failure> {
    let (name, at) = (&known.name, known.way.shown());
    Some(match state {
        State::Reachable => return None,
        State::Unreachable { problem } => {
            let message = format!("cluster {name} was not reached at {at}: {problem}");
            Failure::new(exit::NO_AGENT, "no-agent", message).next(
                "reach it by another of its hosts once, with --agent and --identity or on that host, \
                 and its name leads there; `drover recent prune` forgets it if it is gone",
            )
        }
        State::Refused { problem } => {
            let message = format!("cluster {name} at {at}: {problem}");
            Failure::new(exit::NO_AGENT, "no-answer", message)
                .next("`drover recent` shows which clusters can be used")
        }
        State::Replaced { by } => {
            let found = by.map_or_else(
                || "an agent without a cluster".to_owned(),
                |by| format!("the cluster with the fingerprint {by}"),
            );
            let message = format!(
                "cluster {name} has the fingerprint {}, and at {at} answers {found}: nothing was asked of it",
                known.fingerprint
            );
            Failure::new(exit::REFUSED, "cluster-replaced", message).next(
                "if the cluster was made anew, `drover recent prune` forgets the old one; use the new one \
                 once without --cluster, and `drover recent` names it",
            )
        }
    })
}

/// Notes that a command has reached this agent, if that belongs to a cluster. That this cannot be done
/// keeps nobody from his work: what a person should know is returned.
pub async fn note(agent: &Agent) -> Option<String> {
    // Without a place nothing is kept, as `drover recent` says.
    let place = Place::of_user().ok()?;
    let reached = tokio::time::timeout(NOTE, reached(&place, agent)).await;
    let reached = reached.ok()??;
    let noted = place.change(|book| (book.note(reached, Timestamp::now()), ()));
    let error = noted.err()?;
    Some(format!(
        "note: `drover recent` will not show this cluster: {error}"
    ))
}

/// Forgets the clusters of agents whose sockets were in a directory that was removed. That this cannot be done keeps nobody from
/// his work: what a person should know is returned.
pub fn forget_within(directory: &Path) -> Option<String> {
    let place = Place::of_user().ok()?;
    // Nothing is locked or made where there is nothing to forget.
    let mut book = place.read().ok()?;
    book.forget_within(directory).then_some(())?;
    let forgotten = place.change(|book| (book.forget_within(directory), ()));
    let error = forgotten.err()?;
    Some(format!(
        "note: `drover recent` still shows what was there: {error}"
    ))
}

async fn reached(place: &Place, agent: &Agent) -> Option<Reached> {
    let way = Way::of(agent);
    if let Way::Remote { identity, .. } = &way
        && let Ok(fingerprint) = remote::authority(identity)
        && let Ok(book) = place.read()
        && let Some(known) = book
            .clusters
            .into_iter()
            .find(|k| k.fingerprint == fingerprint)
        && known.way == way
    {
        // It has proved to be of that cluster; who is who in it was asked before.
        return Some(Reached {
            fingerprint,
            authority: known.authority,
            host: known.host,
            way,
        });
    }
    let view = client(agent).ok()?.cluster().await.ok()?;
    Some(Reached {
        fingerprint: view.fingerprint,
        authority: view.authority,
        host: view.host,
        way,
    })
}

fn no_such(name: &HostName) -> Failure {
    let message = format!("no cluster that you used is called {name}");
    Failure::new(exit::REFUSED, "no-such-cluster", message).next(
        "`drover recent` lists them; use one once, by its socket or --agent, to have it there",
    )
}

fn unusable(error: Unusable) -> Failure {
    let failure = Failure::error(error.to_string());
    match error {
        Unusable::Damaged { .. } => failure.next("`drover recent` puts it out of the way"),
        Unusable::Newer { .. } => failure.next("use the newer drover, or move the file away"),
        Unusable::NoPlace(_) => failure.next("set HOME, or XDG_STATE_HOME to a directory of yours"),
        Unusable::Io { .. } => failure.next("see that the directory is yours and can be written"),
    }
}
