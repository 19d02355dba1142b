//! Loads of a path within this host, and who is let in.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use drover_lanes::Listener;
use drover_reach::limits::{LOAD_LATE, LOAD_REST, LOAD_WARM_UP};
use drover_reach::load::{Load, Measured, NotMeasured, NotTaken, Sink, measure};
use drover_reach::{Order, Ticket};
use drover_types::{BitRate, MigrationId};
use drover_wire::PREAMBLE_BYTES;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOON: Duration = Duration::from_secs(5);

/// A port at which one order's connections are taken, until it is dropped.
struct Far {
    listener: Arc<Listener>,
    taken: Arc<AtomicUsize>,
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
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let taking = thread::spawn(move || {
            let mut turned_away = Vec::new();
            while let Ok(connection) = accepting.accept() {
                let mut preamble = [0; PREAMBLE_BYTES];
                connection.set_deadline(Instant::now() + SOON).unwrap();
                connection.receive(&mut preamble).unwrap();
                let until = Instant::now() + SOON;
                let taken = sink.take(connection.fd().as_fd(), preamble, until);
                count.fetch_add(usize::from(taken.is_ok()), Ordering::AcqRel);
                turned_away.extend(taken.err());
            }
            turned_away
        });
        Self {
            listener,
            taken,
            taking: Some(taking),
        }
    }

    fn loaded(&self, ticket: &Ticket, most: Option<BitRate>) -> Result<Measured, NotMeasured> {
        self.loaded_unless(ticket, most, &AtomicBool::new(false))
    }

    fn loaded_unless(
        &self,
        ticket: &Ticket,
        most: Option<BitRate>,
        halt: &AtomicBool,
    ) -> Result<Measured, NotMeasured> {
        measure(&self.load(ticket, most), halt)
    }

    fn load(&self, ticket: &Ticket, most: Option<BitRate>) -> Load {
        Load {
            interface: "lo".into(),
            local: HERE,
            remote: (HERE, self.listener.port()).into(),
            order: MigrationId(uuid::Uuid::now_v7()),
            ticket: ticket.clone(),
            most,
            time: Duration::from_millis(300),
            begin: None,
        }
    }

    /// Until so many connections were taken after those of before.
    fn wait_for(&self, more: usize) {
        let end = Instant::now() + SOON;
        let all = 4 + more;
        while self.taken.load(Ordering::Acquire) < all {
            assert!(Instant::now() < end, "{:?}", self.taken);
            thread::yield_now();
        }
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
fn a_load_with_others_waits_for_them_and_is_none_once_they_have_begun() {
    let ticket = Ticket::random().unwrap();
    let far = Far::new(&ticket, vec![HERE]);
    let most = Some(BitRate(80_000_000));
    let at = |begin: Instant| {
        let load = Load {
            begin: Some(begin),
            ..far.load(&ticket, most)
        };
        measure(&load, &AtomicBool::new(false))
    };
    let begin = Instant::now() + Duration::from_millis(200);
    let together = at(begin).unwrap();
    assert!(together.rate > BitRate(1_000_000), "{together:?}");
    let least = LOAD_WARM_UP + Duration::from_millis(300) + LOAD_REST;
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    let late = at(Instant::now().checked_sub(2 * LOAD_LATE).unwrap());
    assert!(matches!(late, Err(NotMeasured::Late(_))), "{late:?}");
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
fn a_load_that_is_halted_or_cut_measures_nothing() {
    let ticket = Ticket::random().unwrap();
    let far = Far::new(&ticket, vec![HERE]);
    let halted = far.loaded_unless(&ticket, None, &AtomicBool::new(true));
    assert!(matches!(halted, Err(NotMeasured::Halted)), "{halted:?}");
    // The sink goes in the middle of it, and its connections with it.
    let (port, near) = (far.listener.port(), ticket.clone());
    let loading = thread::spawn(move || {
        let load = Load {
            interface: "lo".into(),
            local: HERE,
            remote: (HERE, port).into(),
            order: MigrationId(uuid::Uuid::now_v7()),
            ticket: near,
            most: None,
            time: Duration::from_secs(10),
            begin: None,
        };
        measure(&load, &AtomicBool::new(false))
    });
    far.wait_for(4);
    far.end();
    let cut = loading.join().unwrap();
    assert!(
        matches!(cut, Err(NotMeasured::Cut | NotMeasured::Io(_))),
        "{cut:?}"
    );
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
