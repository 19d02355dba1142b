//! Listens at this host's adapters for what switches say by LLDP, and never sends.
//!
//! ```text
//!  links come and go ─▶ a listener for each adapter ─▶ who was heard, each until it is over
//!  who wants facts  ─▶ tell
//! ```
//! Owns a socket for each adapter. Without the privilege (`CAP_NET_RAW`) it hears nothing, and says so where a neighbour is asked for.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_host::{Heard, LinkChange, LinkEvent, LldpSocket, NoLldp};
use drover_tune::facts::{Fact, Host, Listening, Neighbour, Nic};
use drover_types::with_sources;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::agent::Context;
use crate::{facts, limits};

/// What is heard at this host's adapters.
#[derive(Debug, Default)]
pub struct Lldp {
    ports: Mutex<Ports>,
}

/// Who listens at each adapter, or why nobody does.
type Ports = BTreeMap<String, Result<Listener, String>>;

#[derive(Debug)]
struct Listener {
    /// The index of its interface.
    index: u32,
    since: Listening,
    /// How often the carrier had changed when that was last looked at.
    carrier_changes: Option<u64>,
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
        let _ = timeout(limits::LLDP_LOOK, others).await;
        // Interfaces come together, those of guests among them. What happens to others goes on meanwhile.
        let settling = async {
            loop {
                context.lldp.until_others(&mut events).await;
            }
        };
        let _ = timeout(limits::LLDP_SETTLE, settling).await;
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
        for (name, there) in there {
            let port = match (there, before.remove(&name)) {
                (Ok(index), Some(Ok(listener))) if listener.is_at(index) => Ok(listener),
                (there, before) => opened(&name, there, before.and_then(Result::err)),
            };
            ports.insert(name, port);
        }
    }

    /// Until there may be other adapters.
    async fn until_others(&self, events: &mut broadcast::Receiver<LinkEvent>) {
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => LinkEvent::Missed,
                // It is looked from time to time.
                Err(RecvError::Closed) => pending().await,
            };
            if self.take(&event, facts::carrier_changes, facts::has_hardware) {
                return;
            }
        }
    }

    /// Takes in what happened; whether there may be other adapters, which an interface of a guest is not. What was heard by a cable that was out
    /// meanwhile is forgotten.
    fn take(
        &self,
        event: &LinkEvent,
        carrier_changes: impl Fn(&str) -> Option<u64>,
        has_hardware: impl Fn(&str) -> bool,
    ) -> bool {
        let mut ports = lock(&self.ports);
        let LinkEvent::Changed { interface, change } = event else {
            ports.retain(|name, port| match port {
                Ok(listener) => listener.was_there(carrier_changes(name)),
                Err(_) => true,
            });
            return true;
        };
        // A socket hears nothing more once its interface was away, though that is back under its name and its index.
        if let LinkChange::Appeared | LinkChange::Gone | LinkChange::Renamed { .. } = change {
            let mut was_port = ports.remove(interface).is_some();
            if let LinkChange::Renamed { from } = change {
                was_port |= ports.remove(from).is_some();
            }
            return was_port || has_hardware(interface);
        }
        let listener = listeners(&mut ports).find(|(name, _)| *name == interface);
        match (change, listener) {
            (LinkChange::Up, Some((name, listener))) => listener.restart(carrier_changes(name)),
            (LinkChange::Down, Some((name, listener))) => listener.forget(carrier_changes(name)),
            _ => {}
        }
        false
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
            match ports.get(name) {
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

/// A listener at an adapter that is there. Why there is none is logged once, as long as that is the same.
fn opened(
    nic: &str,
    there: Result<u32, NoLldp>,
    before: Option<String>,
) -> Result<Listener, String> {
    let listener = match there {
        Ok(index) => Listener::open(nic, index).map_err(|error| why(&error)),
        Err(why) => Err(why.to_string()),
    };
    if let Err(why) = &listener
        && before.as_ref() != Some(why)
    {
        match there {
            // An adapter has many, and none hears anything.
            Err(NoLldp::VirtualFunction) => tracing::debug!(nic, why, "not listening for LLDP"),
            _ => tracing::warn!(nic, why, "not listening for LLDP"),
        }
    }
    listener
}

impl Listener {
    fn open(nic: &str, index: u32) -> io::Result<Self> {
        let carrier_changes = facts::carrier_changes(nic);
        let socket = LldpSocket::open(index)?;
        let heard = Arc::new(Mutex::default());
        Ok(Self {
            index,
            since: from_now(),
            carrier_changes,
            task: tokio::spawn(listen(socket, Arc::clone(&heard))),
            heard,
        })
    }

    fn is_at(&self, index: u32) -> bool {
        self.index == index && !self.task.is_finished()
    }

    /// Listens from now on by this cable. What was heard since it is in stays.
    fn restart(&mut self, carrier_changes: Option<u64>) {
        self.since = from_now();
        self.carrier_changes = carrier_changes;
    }

    /// Whoever was heard is at the other end no longer.
    fn forget(&mut self, carrier_changes: Option<u64>) {
        self.restart(carrier_changes);
        *lock(&self.heard) = Heard::default();
    }

    /// Whether its cable was in all the time, as it was when that was last looked at.
    fn was_there(&self, carrier_changes: Option<u64>) -> bool {
        carrier_changes.is_some() && carrier_changes == self.carrier_changes
    }
}

/// Those who listen, by the names of their interfaces.
fn listeners(ports: &mut Ports) -> impl Iterator<Item = (&String, &mut Listener)> {
    let all = ports.iter_mut();
    all.filter_map(|(name, port)| Some((name, port.as_mut().ok()?)))
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
        sleep(limits::LLDP_PACE).await;
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
        *neighbours = Fact::Unknown(format!("{kept}; its agent does not listen: {why}"));
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
    fn an_adapter_that_is_left_out_says_why() {
        for why in [NoLldp::Beyond, NoLldp::VirtualFunction] {
            let told = opened("n0", Err(why), None).unwrap_err();
            assert_eq!(told, why.to_string());
        }
    }

    #[test]
    fn why_nobody_can_listen_is_said_where_nobody_else_was_heard() {
        let refused = why(&io::Error::from_raw_os_error(1));
        assert!(refused.ends_with("it takes CAP_NET_RAW"), "{refused}");
        let mut nothing = Fact::unknown("no file");
        untold(&mut nothing, &refused);
        let why = nothing.get().unwrap_err();
        assert!(
            why.starts_with("no file; its agent does not listen: "),
            "{why}"
        );
        let mut kept = Fact::Known(by(HeardBy::Networkd));
        untold(&mut kept, &refused);
        assert_eq!(kept, Fact::Known(by(HeardBy::Networkd)));
    }

    const SWITCH: [u8; 33] = *b"\x01\x80\xc2\0\0\x0e\x02\0\0\0\0\x01\x88\xcc\x02\x07\x04\x02\0\0\0\0\xaa\x04\x02\x051\x06\x02\0x\0\0";

    fn listener(carrier_changes: Option<u64>) -> Listener {
        let mut heard = Heard::default();
        heard.take(&SWITCH, Instant::now());
        let since = Listening {
            since: "2026-11-27T09:00:00Z".into(),
            uptime_s: 7,
        };
        Listener {
            index: 2,
            since,
            carrier_changes,
            heard: Arc::new(Mutex::new(heard)),
            task: tokio::spawn(pending()),
        }
    }

    fn two() -> Lldp {
        let ports = ["n0", "n1"].map(|name| (name.to_owned(), Ok(listener(Some(1)))));
        Lldp {
            ports: Mutex::new(ports.into()),
        }
    }

    /// For each interface whether a neighbour is known, and whether it is listened at anew.
    fn known(lldp: &Lldp) -> Vec<(String, bool, bool)> {
        let mut ports = lock(&lldp.ports);
        let known = listeners(&mut ports).map(|(name, listener)| {
            let hears = lock(&listener.heard).neighbours(Instant::now()).count() == 1;
            (name.clone(), hears, listener.since.uptime_s != 7)
        });
        known.collect()
    }

    fn both(n0: (bool, bool), n1: (bool, bool)) -> Vec<(String, bool, bool)> {
        vec![("n0".to_owned(), n0.0, n0.1), ("n1".to_owned(), n1.0, n1.1)]
    }

    fn hardware(nic: &str) -> bool {
        nic.starts_with('n')
    }

    fn changed(interface: &str, change: LinkChange) -> LinkEvent {
        let interface = interface.to_owned();
        LinkEvent::Changed { interface, change }
    }

    #[tokio::test]
    async fn neighbours_are_forgotten_by_a_cable_that_was_out_alone() {
        let kept = (true, false);
        let lldp = two();
        assert_eq!(known(&lldp), both(kept, kept));
        assert!(!lldp.take(&changed("n0", LinkChange::Down), |_| Some(2), hardware));
        assert_eq!(known(&lldp), both((false, true), kept));
        // The first word of a switch may be here before it is told that the cable is in.
        assert!(!lldp.take(&changed("n1", LinkChange::Up), |_| Some(2), hardware));
        assert_eq!(known(&lldp), both((false, true), (true, true)));
        assert!(!lldp.take(&changed("tap0", LinkChange::Down), |_| None, hardware));
        assert!(!lldp.take(&changed("n1", LinkChange::Address), |_| Some(2), hardware));
        assert!(lldp.take(&LinkEvent::Missed, |_| Some(2), hardware));
        assert_eq!(known(&lldp), both((false, true), (true, true)));
    }

    #[tokio::test]
    async fn what_happened_untold_costs_neighbours_only_where_the_carrier_changed_or_that_is_not_known()
     {
        for n1 in [Some(3), None] {
            let lldp = two();
            lock(&lldp.ports).insert("n2".to_owned(), Err("it may not".to_owned()));
            let now = |name: &str| if name == "n0" { Some(1) } else { n1 };
            assert!(lldp.take(&LinkEvent::Missed, now, hardware));
            assert_eq!(known(&lldp), [("n0".to_owned(), true, false)]);
            assert!(lock(&lldp.ports).contains_key("n2"));
        }
    }

    #[tokio::test]
    async fn an_interface_that_was_away_is_listened_at_by_another_socket() {
        let from = "n1".to_owned();
        for (name, change) in [
            ("n1", LinkChange::Gone),
            ("n1", LinkChange::Appeared),
            ("n9", LinkChange::Renamed { from }),
        ] {
            let lldp = two();
            assert!(lldp.take(&changed(name, change), |_| Some(1), hardware));
            assert_eq!(known(&lldp), [("n0".to_owned(), true, false)]);
        }
    }

    #[tokio::test]
    async fn interfaces_of_guests_have_nobody_look_for_adapters() {
        let lldp = two();
        let from = "tap1".to_owned();
        for change in [
            LinkChange::Appeared,
            LinkChange::Renamed { from },
            LinkChange::Gone,
        ] {
            assert!(!lldp.take(&changed("tap0", change), |_| None, hardware));
        }
        let from = "eth0".to_owned();
        for change in [LinkChange::Appeared, LinkChange::Renamed { from }] {
            assert!(lldp.take(&changed("n7", change), |_| None, hardware));
        }
        // Its folder is gone with it.
        assert!(lldp.take(&changed("n0", LinkChange::Gone), |_| None, |_| false));
    }

    #[tokio::test]
    async fn who_was_told_more_than_it_takes_in_looks_anew() {
        let (sender, mut events) = broadcast::channel(1);
        let lldp = Lldp::default();
        for _ in 0..3 {
            sender.send(changed("tap0", LinkChange::Address)).unwrap();
        }
        lldp.until_others(&mut events).await;
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn since_when_it_listens_is_a_time_of_a_second() {
        let since = from_now();
        assert_eq!(since.since.len(), "2026-11-27T09:00:00Z".len());
        assert!(since.since.parse::<Timestamp>().is_ok(), "{since:?}");
        assert!(since.uptime_s > 0, "{since:?}");
    }
}
