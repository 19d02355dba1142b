//! The clusters that a user knows, as a value.
//!
//! Owns their names and which of them are kept. Never reads a clock or a file, and never asks an agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_trust::Fingerprint;
use drover_types::HostName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cli::Agent;
use crate::limits::{CLUSTERS, SAME_USE};

/// The format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// The longest part of a name that a number is put behind: 63 characters are a name, `-64` is a number.
const STEM: usize = 59;

/// How an agent of a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Way {
    /// Over its socket, on this machine.
    Socket {
        /// Where that is.
        path: PathBuf,
    },
    /// Over the network.
    Remote {
        /// As `--agent` takes it.
        url: String,
        /// The file with the operator's identity; what is in it stays there.
        identity: PathBuf,
    },
}

impl Way {
    /// The way that the options of a command say.
    pub fn of(agent: &Agent) -> Self {
        let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        match (&agent.agent, &agent.identity) {
            (Some(url), Some(identity)) => Self::Remote {
                url: url.clone(),
                identity: whole(identity),
            },
            _ => Self::Socket {
                path: whole(&agent.socket),
            },
        }
    }

    /// Whether it is a socket in this directory.
    fn is_within(&self, directory: &Path) -> bool {
        match self {
            Self::Socket { path } => path.starts_with(directory),
            Self::Remote { .. } => false,
        }
    }

    /// For a person.
    pub fn shown(&self) -> String {
        match self {
            Self::Socket { path } => path.display().to_string(),
            Self::Remote { url, .. } => url.clone(),
        }
    }
}

/// A cluster that was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// What this user calls it, by the rule of hosts' names.
    pub name: HostName,
    /// Which cluster it is: of its authority's certificate.
    pub fingerprint: Fingerprint,
    /// The host with the authority's key.
    pub authority: HostName,
    /// The host that was reached.
    pub host: HostName,
    /// How it was reached.
    pub way: Way,
    /// When it was used last.
    pub last_used: Timestamp,
    /// Since when no look has found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
}

/// A cluster that was reached just now.
#[derive(Debug)]
pub struct Reached {
    pub fingerprint: Fingerprint,
    pub authority: HostName,
    pub host: HostName,
    pub way: Way,
}

/// Why a name cannot be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNamed {
    /// No cluster has the old name.
    NoSuch,
    /// Another one has the new name.
    Taken,
}

/// All clusters that a user knows, the one used last first.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    format: u32,
    pub clusters: Vec<Known>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            format: FORMAT,
            clusters: Vec::new(),
        }
    }
}

impl Book {
    /// What is wrong with one that was read, if something is.
    pub fn problem(&self) -> Option<String> {
        if self.clusters.len() > CLUSTERS {
            let count = self.clusters.len();
            return Some(format!(
                "it has {count} clusters, {CLUSTERS} at most are kept"
            ));
        }
        let mut rest = self.clusters.iter();
        while let Some(known) = rest.next() {
            let is_again =
                |other: &Known| other.name == known.name || other.fingerprint == known.fingerprint;
            if rest.as_slice().iter().any(is_again) {
                return Some(format!("cluster {} is in it twice", known.name));
            }
        }
        None
    }

    /// The cluster of that name.
    pub fn find(&self, name: &HostName) -> Option<&Known> {
        self.clusters.iter().find(|known| known.name == *name)
    }

    /// Notes that a cluster was used; whether anything is new that is worth being written.
    pub fn note(&mut self, reached: Reached, now: Timestamp) -> bool {
        let at = self
            .clusters
            .iter()
            .position(|known| known.fingerprint == reached.fingerprint);
        let name = match at {
            Some(at) => {
                let known = self.clusters.remove(at);
                let is_same = known.way == reached.way
                    && known.host == reached.host
                    && known.authority == reached.authority
                    && known.unreachable_since.is_none();
                if at == 0 && is_same && is_within(SAME_USE, known.last_used, now) {
                    self.clusters.insert(0, known);
                    return false;
                }
                known.name
            }
            None => self.free_name(&reached.authority),
        };
        let known = Known {
            name,
            fingerprint: reached.fingerprint,
            authority: reached.authority,
            host: reached.host,
            way: reached.way,
            last_used: now,
            unreachable_since: None,
        };
        self.clusters.insert(0, known);
        self.clusters.truncate(CLUSTERS);
        true
    }

    /// The authority's name, with a number where another cluster has it: never the name of another one.
    fn free_name(&self, authority: &HostName) -> HostName {
        let stem: String = authority.as_str().chars().take(STEM).collect();
        let numbered = (2..).map_while(|number: u32| format!("{stem}-{number}").parse().ok());
        let mut names = std::iter::once(authority.clone()).chain(numbered);
        let free = names.find(|name| self.find(name).is_none());
        free.unwrap_or_else(|| authority.clone())
    }

    /// Gives a cluster another name.
    pub fn rename(&mut self, old: &HostName, new: HostName) -> Result<(), NotNamed> {
        if old != &new && self.find(&new).is_some() {
            return Err(NotNamed::Taken);
        }
        let mut clusters = self.clusters.iter_mut();
        let known = clusters.find(|known| known.name == *old);
        known.ok_or(NotNamed::NoSuch)?.name = new;
        Ok(())
    }

    /// Takes clusters out, those that were used since they were looked at excepted; their names.
    pub fn remove(&mut self, looked_at: &[Known]) -> Vec<HostName> {
        let mut gone = Vec::new();
        self.clusters.retain(|known| {
            let is_it = |seen: &Known| {
                seen.fingerprint == known.fingerprint && seen.last_used == known.last_used
            };
            let goes = looked_at.iter().any(is_it);
            if goes {
                gone.push(known.name.clone());
            }
            !goes
        });
        gone
    }

    /// Takes out those that are reached by a socket in this directory; whether there were any.
    pub fn forget_within(&mut self, directory: &Path) -> bool {
        let before = self.clusters.len();
        let stays = |known: &Known| !known.way.is_within(directory);
        self.clusters.retain(stays);
        self.clusters.len() < before
    }

    /// Notes what a look at a cluster found; whether that is new.
    pub fn looked(&mut self, fingerprint: Fingerprint, is_there: bool, now: Timestamp) -> bool {
        let mut clusters = self.clusters.iter_mut();
        let Some(known) = clusters.find(|known| known.fingerprint == fingerprint) else {
            return false;
        };
        match (is_there, known.unreachable_since) {
            (true, Some(_)) => known.unreachable_since = None,
            (false, None) => known.unreachable_since = Some(now),
            _ => return false,
        }
        true
    }
}

fn is_within(time: Duration, then: Timestamp, now: Timestamp) -> bool {
    let passed = now.duration_since(then);
    !passed.is_negative() && passed.unsigned_abs() < time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(cluster: u8, authority: &str) -> Reached {
        Reached {
            fingerprint: Fingerprint::of(&[cluster]),
            authority: authority.parse().unwrap(),
            host: authority.parse().unwrap(),
            way: Way::Socket {
                path: "/run/s".into(),
            },
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn names(book: &Book) -> Vec<&str> {
        let names = book.clusters.iter().map(|known| known.name.as_str());
        names.collect()
    }

    #[test]
    fn a_cluster_is_kept_once_and_the_one_used_last_is_first() {
        let mut book = Book::default();
        assert!(book.note(reached(1, "a"), at(0)));
        assert!(book.note(reached(2, "b"), at(1)));
        assert_eq!(names(&book), ["b", "a"]);
        assert!(book.note(reached(1, "a"), at(2)));
        assert_eq!(names(&book), ["a", "b"]);
        assert!(!book.note(reached(1, "a"), at(3)), "not worth writing");
        assert!(book.note(reached(1, "c"), at(3)), "its authority has moved");
        assert!(book.note(reached(1, "c"), at(100)), "a minute later");
        assert_eq!(names(&book), ["a", "b"], "a name is not changed by itself");
        assert_eq!(book.problem(), None);
    }

    #[test]
    fn a_new_cluster_never_gets_the_name_of_another_one() {
        let mut book = Book::default();
        let long = "x".repeat(63);
        for (cluster, authority) in [(1, "a"), (2, "a"), (3, "a"), (4, &long), (5, &long)] {
            book.note(reached(cluster, authority), at(0));
        }
        let second = format!("{}-2", "x".repeat(STEM));
        assert_eq!(names(&book), [&second, &long, "a-3", "a-2", "a"]);
    }

    #[test]
    fn the_clusters_used_longest_ago_are_forgotten_beyond_the_bound() {
        let mut book = Book::default();
        for cluster in 0..=u8::try_from(CLUSTERS).unwrap() {
            book.note(reached(cluster, &format!("h{cluster}")), at(0));
        }
        assert_eq!(book.clusters.len(), CLUSTERS);
        assert!(book.find(&"h0".parse().unwrap()).is_none());
        assert!(book.find(&"h1".parse().unwrap()).is_some());
    }

    #[test]
    fn clusters_in_a_directory_that_is_gone_are_forgotten_and_no_others() {
        let mut book = Book::default();
        for (cluster, path) in [(1, "/run/labs/one/a/s"), (2, "/run/labs/one2/s")] {
            let way = Way::Socket { path: path.into() };
            let reached = Reached {
                way,
                ..reached(cluster, "a")
            };
            book.note(reached, at(0));
        }
        assert!(book.forget_within(Path::new("/run/labs/one")));
        assert_eq!(names(&book), ["a-2"]);
        assert!(!book.forget_within(Path::new("/run/labs/one")));
    }

    #[test]
    fn a_name_is_changed_unless_another_cluster_has_it() {
        let mut book = Book::default();
        book.note(reached(1, "a"), at(0));
        book.note(reached(2, "b"), at(0));
        let name = |text: &str| -> HostName { text.parse().unwrap() };
        assert_eq!(book.rename(&name("a"), name("b")), Err(NotNamed::Taken));
        assert_eq!(book.rename(&name("c"), name("d")), Err(NotNamed::NoSuch));
        assert_eq!(book.rename(&name("a"), name("a")), Ok(()));
        assert_eq!(book.rename(&name("a"), name("lab")), Ok(()));
        assert_eq!(names(&book), ["b", "lab"]);
    }

    #[test]
    fn a_cluster_that_was_used_since_it_was_looked_at_is_not_removed() {
        let mut book = Book::default();
        book.note(reached(1, "a"), at(0));
        book.note(reached(2, "b"), at(0));
        let looked_at = book.clusters.clone();
        book.note(reached(1, "a"), at(100));
        let gone = book.remove(&looked_at);
        assert_eq!(gone, ["b".parse().unwrap()]);
        assert_eq!(names(&book), ["a"]);
    }

    #[test]
    fn a_cluster_is_unreachable_since_the_first_look_that_did_not_find_it() {
        let mut book = Book::default();
        let one = Fingerprint::of(&[1]);
        book.note(reached(1, "a"), at(0));
        assert!(!book.looked(one, true, at(1)));
        assert!(book.looked(one, false, at(2)));
        assert!(!book.looked(one, false, at(3)));
        assert_eq!(book.clusters[0].unreachable_since, Some(at(2)));
        assert!(book.looked(one, true, at(4)));
        assert_eq!(book.clusters[0].unreachable_since, None);
        assert!(!book.looked(Fingerprint::of(&[9]), false, at(5)));
    }

    #[test]
    fn what_cannot_have_been_written_by_this_program_is_told() {
        let mut book = Book::default();
        book.note(reached(1, "a"), at(0));
        let again = book.clusters[0].clone();
        book.clusters.push(again);
        assert_eq!(book.problem().as_deref(), Some("cluster a is in it twice"));
    }
}
