//! Loads of a path within this host, and who is let in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use drover_lanes::Listener;
use drover_reach::load::{Load, Measured, NotMeasured, NotTaken, Sink, measure};
use drover_reach::{Order, Ticket};
use drover_types::{BitRate, MigrationId};
use drover_wire::PREAMBLE_BYTES;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(5);

/// A port at which one order's connections are taken, until it is dropped.
struct Far {
    listener: Arc<Listener>,
    taking: Option<JoinHandle<Vec<NotTaken>>>,
}

impl Far {
    fn new(ticket: &Ticket, askers: Vec<IpAddr>) -> Self {
        let listener = Arc::new(Listener::hold(0).unwrap());
        listener.listen(HERE).unwrap();
        let sink = Sink::new(Order {
            ticket: ticket.clone(),
            askers,
            time: Duration::from_secs(60),
        });
        let accepting = listener.clone();
        let taking = thread::spawn(move || {
            let mut turned_away = Vec::new();
            while let Ok(connection) = accepting.accept() {
                let mut preamble = [0; PREAMBLE_BYTES];
                connection.set_deadline(Instant::now() + SOON).unwrap();
                connection.receive(&mut preamble).unwrap();
                let until = Instant::now() + SOON;
                let taken = sink.take(connection.fd().as_fd(), preamble, until);
                turned_away.extend(taken.err());
            }
            turned_away
        });
        Self {
            listener,
            taking: Some(taking),
        }
    }

    fn loaded(&self, ticket: &Ticket, most: Option<BitRate>) -> Result<Measured, NotMeasured> {
        measure(&Load {
            interface: "lo".into(),
            local: HERE,
            remote: (HERE, self.listener.port()).into(),
            order: MigrationId(uuid::Uuid::now_v7()),
            ticket: ticket.clone(),
            most,
            time: Duration::from_millis(300),
        })
    }

    /// What was turned away.
    fn end(mut self) -> Vec<NotTaken> {
        self.listener.shut_down();
        self.taking.take().unwrap().join().unwrap()
    }
}

#[test]
fn a_load_measures_what_arrives_and_keeps_to_the_rate_that_it_may_have() {
    let ticket = Ticket::random().unwrap();
    let far = Far::new(&ticket, vec![HERE]);
    let free = far.loaded(&ticket, None).unwrap();
    assert!(
        free.rate > BitRate(100_000_000) && free.segments > 0,
        "{free:?}"
    );
    let limited = far.loaded(&ticket, Some(BitRate(80_000_000))).unwrap();
    // The kernel spaces packets of 64 KiB, and what was sent before counts when it is acknowledged.
    assert!(limited.rate < BitRate(120_000_000), "{limited:?}");
    assert!(far.end().is_empty());
}

#[test]
fn who_lacks_the_ticket_or_was_not_named_is_turned_away() {
    let ticket = Ticket::random().unwrap();
    let far = Far::new(&ticket, vec![HERE]);
    let forged = far.loaded(&Ticket::random().unwrap(), None).unwrap_err();
    assert!(matches!(forged, NotMeasured::TurnedAway(_)), "{forged:?}");
    assert!(matches!(far.end()[..], [NotTaken::Forged]));

    let far = Far::new(&ticket, vec![IpAddr::from([127, 0, 0, 9])]);
    // It is refused before its proof was read, which may be told by a reset.
    far.loaded(&ticket, None).unwrap_err();
    assert!(matches!(far.end()[..], [NotTaken::Stranger(HERE)]));
}

#[test]
fn a_port_where_nobody_listens_is_told_to_be_one() {
    let ticket = Ticket::random().unwrap();
    let far = Far::new(&ticket, vec![HERE]);
    far.listener.keep(|_| false);
    let refused = far.loaded(&ticket, None).unwrap_err();
    assert!(
        matches!(refused, NotMeasured::Unreachable(_)),
        "{refused:?}"
    );
    far.end();
}
