//! Listens at this host's adapters for what switches say by LLDP, and never sends.
//!
//! ```text
//!  links come and go ─▶ a listener for each adapter ─▶ who was heard, each until it is over
//!  who wants facts  ─▶ tell
//! ```
//! Owns a socket for each adapter. Without the privilege (`CAP_NET_RAW`) it hears nothing, and says so where a neighbour is asked for.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_host::{Heard, LinkChange, LinkEvent, LldpSocket};
use drover_tune::facts::{Fact, Host, Listening, Neighbour, Nic};
use drover_types::with_sources;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;

use crate::agent::Context;
use crate::{facts, limits};

/// What is heard at this host's adapters.
#[derive(Debug, Default)]
pub struct Lldp {
    ports: Mutex<BTreeMap<String, Port>>,
}

/// An adapter.
#[derive(Debug)]
struct Port {
    index: u32,
    /// Or why nobody listens.
    listener: Result<Listener, String>,
}

#[derive(Debug)]
struct Listener {
    since: Listening,
    heard: Arc<Mutex<Heard>>,
    /// Ends when it cannot go on.
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens for as long as the agent runs.
pub async fn run(context: Arc<Context>) {
    let mut events = context.links.subscribe();
    loop {
        context.lldp.look().await;
        let others = context.lldp.until_others(&mut events);
        let _ = tokio::time::timeout(limits::LLDP_LOOK, others).await;
        // Interfaces come together, those of guests among them.
        tokio::time::sleep(limits::LLDP_SETTLE).await;
    }
}

impl Lldp {
    /// Has each adapter that is there be listened at, and no other.
    async fn look(&self) {
        let there = match drover_host::lldp_ports(Path::new(facts::ROOT)).await {
            Ok(there) => there,
            Err(error) => {
                tracing::warn!(error = with_sources(&error), "not known where to listen");
                return;
            }
        };
        let mut ports = lock(&self.ports);
        let mut before = std::mem::take(&mut *ports);
        for (name, index) in there {
            let port = match before.remove(&name) {
                Some(port) if port.index == index && port.listens() => port,
                before => Port::open(&name, index, before.as_ref()),
            };
            ports.insert(name, port);
        }
    }

    /// Until there may be other adapters. What was heard by a cable that was out meanwhile is forgotten.
    async fn until_others(&self, events: &mut broadcast::Receiver<LinkEvent>) {
        loop {
            match events.recv().await {
                Ok(LinkEvent::Changed { interface, change }) => match change {
                    LinkChange::Up | LinkChange::Down => self.forget(|name| name == interface),
                    LinkChange::Address | LinkChange::AddressGone => {}
                    LinkChange::Appeared | LinkChange::Gone | LinkChange::Renamed { .. } => return,
                },
                Ok(LinkEvent::Missed) | Err(RecvError::Lagged(_)) => {
                    self.forget(|_| true);
                    return;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn forget(&self, of: impl Fn(&str) -> bool) {
        for (name, port) in lock(&self.ports).iter_mut() {
            if let (true, Ok(listener)) = (of(name), &mut port.listener) {
                listener.since = from_now();
                *lock(&listener.heard) = Heard::default();
            }
        }
    }

    /// Tells those facts of a host that are heard.
    pub fn tell(&self, host: &mut Host) {
        let ports = lock(&self.ports);
        let now = Instant::now();
        for Nic {
            name,
            neighbours,
            listening,
            ..
        } in &mut host.nics
        {
            match ports.get(name).map(|port| &port.listener) {
                Some(Ok(listener)) => {
                    let heard = lock(&listener.heard).neighbours(now).cloned().collect();
                    told(neighbours, heard, &listener.since);
                    *listening = Some(listener.since.clone());
                }
                Some(Err(why)) => untold(neighbours, why),
                None => {}
            }
        }
    }
}

impl Port {
    /// Why it cannot be listened at is logged once, as long as that is the same.
    fn open(nic: &str, index: u32, before: Option<&Self>) -> Self {
        let listener = Listener::open(index).map_err(|error| why(&error));
        let error = listener.as_ref().err();
        let before = before.and_then(|port| port.listener.as_ref().err());
        if let Some(error) = error.filter(|_| error != before) {
            tracing::warn!(nic, error, "cannot listen for LLDP");
        }
        Self { index, listener }
    }

    fn listens(&self) -> bool {
        let listener = self.listener.as_ref();
        listener.is_ok_and(|listener| !listener.task.is_finished())
    }
}

impl Listener {
    fn open(index: u32) -> io::Result<Self> {
        let socket = LldpSocket::open(index)?;
        let heard = Arc::new(Mutex::default());
        Ok(Self {
            since: from_now(),
            task: tokio::spawn(listen(socket, Arc::clone(&heard))),
            heard,
        })
    }
}

async fn listen(mut socket: LldpSocket, heard: Arc<Mutex<Heard>>) {
    loop {
        match socket.next().await {
            Ok(frame) => lock(&heard).take(frame, Instant::now()),
            // It goes on when it is up again.
            Err(error) if error.kind() == ErrorKind::NetworkDown => {}
            Err(error) => {
                tracing::warn!(%error, "no longer listening for LLDP at an interface");
                return;
            }
        }
        // Who sends more than this loses it in the kernel, and takes no processor here.
        tokio::time::sleep(limits::LLDP_PACE).await;
    }
}

/// What the agent hears counts before what systemd-networkd keeps, if it hears anybody.
fn told(neighbours: &mut Fact<Vec<Neighbour>>, heard: Vec<Neighbour>, listening: &Listening) {
    let keeps_none = neighbours.known().is_none_or(Vec::is_empty);
    if !heard.is_empty() {
        *neighbours = Fact::Known(heard);
    } else if keeps_none {
        let since = &listening.since;
        *neighbours = Fact::unknown(format!("nobody was heard by LLDP since {since}"));
    }
}

fn untold(neighbours: &mut Fact<Vec<Neighbour>>, why: &str) {
    if let Fact::Unknown(kept) = neighbours {
        *neighbours = Fact::Unknown(format!("{kept}; its agent cannot listen: {why}"));
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!("{error}: it takes CAP_NET_RAW"),
        _ => error.to_string(),
    }
}

fn from_now() -> Listening {
    let now = Timestamp::now();
    Listening {
        since: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        uptime_s: u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use drover_tune::facts::HeardBy;

    use super::*;

    fn by(who: HeardBy) -> Vec<Neighbour> {
        vec![Neighbour {
            switch: "02:00:00:00:00:aa".into(),
            name: None,
            port: "1".into(),
            frame: None,
            negotiates: None,
            dcbx: [].into(),
            heard_by: Some(who),
        }]
    }

    #[test]
    fn whom_the_agent_hears_counts_before_those_whom_systemd_networkd_keeps() {
        let since = from_now();
        let told_of = |mut kept: Fact<Vec<Neighbour>>, heard| {
            told(&mut kept, heard, &since);
            kept
        };
        let (agent, networkd) = (by(HeardBy::Agent), by(HeardBy::Networkd));
        let kept = Fact::Known(networkd.clone());
        assert_eq!(
            told_of(kept.clone(), agent.clone()),
            Fact::Known(agent.clone())
        );
        assert_eq!(
            told_of(Fact::unknown("no file"), agent.clone()),
            Fact::Known(agent)
        );
        assert_eq!(told_of(kept.clone(), Vec::new()), kept);
        let nobody = Fact::unknown(format!("nobody was heard by LLDP since {}", since.since));
        assert_eq!(told_of(Fact::unknown("no file"), Vec::new()), nobody);
        assert_eq!(told_of(Fact::Known(Vec::new()), Vec::new()), nobody);
    }

    #[test]
    fn why_nobody_can_listen_is_said_where_nobody_else_was_heard() {
        let refused = why(&io::Error::from_raw_os_error(1));
        assert!(refused.ends_with("it takes CAP_NET_RAW"), "{refused}");
        let mut nothing = Fact::unknown("no file");
        untold(&mut nothing, &refused);
        let why = nothing.get().unwrap_err();
        assert!(
            why.starts_with("no file; its agent cannot listen: "),
            "{why}"
        );
        let mut kept = Fact::Known(by(HeardBy::Networkd));
        untold(&mut kept, &refused);
        assert_eq!(kept, Fact::Known(by(HeardBy::Networkd)));
    }

    #[test]
    fn since_when_it_listens_is_a_time_of_a_second() {
        let since = from_now();
        assert_eq!(since.since.len(), "2026-11-27T09:00:00Z".len());
        assert!(since.since.parse::<Timestamp>().is_ok(), "{since:?}");
        assert!(since.uptime_s > 0, "{since:?}");
    }
}
