//! What is seen of each guest on every host, whoever moves it: where it runs, since when, and what
//! it says.
//!
//! Each QEMU of a guest is met through its monitor when it appears, on whichever host, and tells
//! itself when it began to run and stopped. All have this machine's clock, so that two times at
//! which both ran would be seen to the microsecond, if each was met before it ran, as one that waits
//! for a guest to arrive is; the guest's own heartbeats would tell as well.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use drover_types::VmName;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::guest::console::Console;
use crate::guest::definition::{monitor_socket, serial_socket};
use crate::lab::Lab;
use crate::limits;
use crate::meter::now_us;
use crate::monitor::Monitor;
use crate::network::HOSTS;

/// One QEMU of a guest.
#[derive(Debug, Clone)]
struct Sighting {
    host: usize,
    monitor: Arc<Monitor>,
    met_us: u64,
    /// Its guest ran when it was met, unless its first event says otherwise.
    ran: bool,
    ended_us: Option<u64>,
}

/// A time in which a QEMU ran its guest, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The host's number.
    pub(super) host: usize,
    /// Since when.
    pub(super) from: u64,
    /// Until when; `None` while it runs.
    pub(super) until: Option<u64>,
}

/// One guest, on all hosts.
#[derive(Debug)]
pub(super) struct Watched {
    /// Its name.
    pub(super) name: VmName,
    /// What it says.
    pub(super) console: Console,
    sightings: watch::Sender<Vec<Sighting>>,
}

/// A guest that was seen to run in two places at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Twice {
    first: Span,
    second: Span,
}

impl fmt::Display for Twice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, two] = [self.first.host, self.second.host].map(|host| HOSTS[host]);
        let since = self.second.from;
        write!(f, "it ran on {one} and on {two} at {since} us since 1970")
    }
}

/// Everything that is seen. Dropping it ends the looking.
#[derive(Debug)]
pub(super) struct Watch {
    guests: Vec<Arc<Watched>>,
    _lookers: JoinSet<()>,
}

impl Watch {
    /// Looks for these guests on all hosts of a lab.
    pub(super) fn begin(lab: &Lab, names: impl IntoIterator<Item = VmName>) -> Self {
        let mut lookers = JoinSet::new();
        let meet = |name: VmName| {
            let watched = Arc::new(Watched {
                name,
                console: Console::default(),
                sightings: watch::Sender::default(),
            });
            for host in lab.hosts() {
                let number = host.number;
                let monitor = host.socket(&monitor_socket(&watched.name));
                let serial = host.socket(&serial_socket(&watched.name));
                lookers.spawn(look(watched.clone(), number, [monitor, serial]));
            }
            watched
        };
        Self {
            guests: names.into_iter().map(meet).collect(),
            _lookers: lookers,
        }
    }

    /// The guests, in the order of their names as they were given.
    pub(super) fn guests(&self) -> &[Arc<Watched>] {
        &self.guests
    }

    /// Whether each guest has run in one place at a time, and never went back.
    ///
    /// # Errors
    /// The first one that has not.
    pub(super) fn check(&self) -> Result<()> {
        for guest in &self.guests {
            if guest
                .sightings
                .borrow()
                .iter()
                .any(|s| s.monitor.has_missed())
            {
                bail!(
                    "guest {}: some of what a QEMU of it told was lost",
                    guest.name
                );
            }
            if let Some(twice) = twice(&guest.spans()) {
                bail!("guest {} RAN TWICE: {twice}", guest.name);
            }
            let fault = guest.console.heartbeats(|beats| beats.fault().cloned());
            if let Some(fault) = fault {
                return Err(fault).with_context(|| format!("guest {}", guest.name));
            }
        }
        Ok(())
    }
}

/// Meets every QEMU of a guest on a host, one after another.
async fn look(guest: Arc<Watched>, host: usize, [socket, serial]: [PathBuf; 2]) {
    loop {
        let Ok(monitor) = Monitor::reach(&socket, limits::QEMU_START).await else {
            tokio::time::sleep(limits::FLEET_LOOK).await;
            continue;
        };
        let met_us = now_us();
        let monitor = Arc::new(monitor);
        let Ok(status) = monitor.run("query-status", Value::Null).await else {
            continue; // it has ended, or is met anew
        };
        let ran = status["running"] == true;
        // Its serial port was there before its monitor; without it nothing is heard, which is told then.
        let heard = guest.console.attach(&serial, limits::QEMU_START).await;
        if let Err(error) = heard {
            tracing::warn!(guest = %guest.name, %error, "not heard");
        }
        guest.sightings.send_modify(|all| {
            all.push(Sighting {
                host,
                monitor: monitor.clone(),
                met_us,
                ran,
                ended_us: None,
            });
        });
        monitor.events().ended().await;
        let ended = now_us();
        guest.sightings.send_modify(|all| {
            let own = all.iter_mut().find(|s| Arc::ptr_eq(&s.monitor, &monitor));
            if let Some(own) = own {
                own.ended_us = Some(ended);
            }
        });
    }
}

impl Sighting {
    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let states = self.monitor.events().run_states();
        let ran = states.first().map_or(self.ran, |(runs, _)| !runs);
        let host = self.host;
        let begin = |from| Span {
            host,
            from,
            until: None,
        };
        if ran {
            spans.push(begin(self.met_us));
        }
        for (runs, at) in states {
            match spans.last_mut().filter(|span| span.until.is_none()) {
                Some(open) if !runs => open.until = Some(at),
                None if runs => spans.push(begin(at)),
                _ => {}
            }
        }
        if let (Some(open), Some(ended)) = (spans.last_mut(), self.ended_us) {
            open.until.get_or_insert(ended);
        }
        spans
    }
}

impl Watched {
    /// When and where it ran, by the beginning of each time.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = self
            .sightings
            .borrow()
            .iter()
            .flat_map(Sighting::spans)
            .collect();
        spans.sort_by_key(|span| span.from);
        spans
    }

    /// The host on which it runs now.
    pub(super) fn runs_on(&self) -> Option<usize> {
        let spans = self.spans();
        let running = spans.iter().rfind(|span| span.until.is_none());
        running.map(|span| span.host)
    }

    /// The monitor of its QEMU on a host, which is there or will be.
    ///
    /// # Errors
    /// There is none in time.
    pub(super) async fn on(&self, host: usize, within: Duration) -> Result<Arc<Monitor>> {
        let mut sightings = self.sightings.subscribe();
        let here = |all: &Vec<Sighting>| {
            let found = all.iter().rfind(|s| s.host == host && s.ended_us.is_none());
            found.map(|sighting| sighting.monitor.clone())
        };
        let waited = tokio::time::timeout(within, sightings.wait_for(|all| here(all).is_some()));
        let seen = waited.await.ok().and_then(Result::ok);
        seen.and_then(|all| here(&all)).with_context(|| {
            let (name, host, seconds) = (&self.name, HOSTS[host], within.as_secs());
            format!("no QEMU of guest {name} on host {host} within {seconds} s")
        })
    }
}

/// Two times in different places that overlap, if there are any; they are in order.
fn twice(spans: &[Span]) -> Option<Twice> {
    let overlaps =
        |first: &Span, second: &Span| first.until.is_none_or(|until| until > second.from);
    let mut longest: Option<Span> = None;
    for &second in spans {
        if let Some(first) = longest.filter(|first| overlaps(first, &second)) {
            return Some(Twice { first, second });
        }
        longest = Some(second);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(host: usize, from: u64, until: impl Into<Option<u64>>) -> Span {
        let until = until.into();
        Span { host, from, until }
    }

    #[test]
    fn a_guest_that_runs_in_one_place_after_another_is_right() {
        assert_eq!(twice(&[]), None);
        assert_eq!(
            twice(&[span(0, 0, 10), span(1, 10, 20), span(0, 25, None)]),
            None
        );
    }

    #[test]
    fn a_guest_that_runs_twice_for_a_microsecond_is_found() {
        let (first, second) = (span(0, 0, 11), span(1, 10, None));
        assert_eq!(twice(&[first, second]), Some(Twice { first, second }));
        let (first, second) = (span(0, 0, None), span(1, 10, 20));
        let found = twice(&[first, second]).unwrap();
        assert_eq!(
            found.to_string(),
            "it ran on a and on b at 10 us since 1970"
        );
    }
}
