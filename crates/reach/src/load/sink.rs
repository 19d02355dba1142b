//! Takes the bytes of loads, and drops them.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use drover_lanes::{Closer, Connection};
use drover_wire::{Answer, Nonce, PREAMBLE_BYTES, RefusalCode, Version, VersionRange};

use super::{PROOF_BYTES, prove};
use crate::Order;
use crate::limits::{ASKERS, LOADS_AT_ONCE, SINK_BYTES};

/// Takes the connections of one order, until its time is over. Dropped, it ends them.
#[derive(Debug)]
pub struct Sink {
    order: Order,
    until: Instant,
    taken: Arc<AtomicUsize>,
    closers: Mutex<Vec<Closer>>,
}

/// A connection that was turned away.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It did not say what it had to.
    #[error("opening a load")]
    Io(#[from] io::Error),
    /// It does not have the ticket.
    #[error("it was not made with the ticket of this order")]
    Forged,
    /// Its address is not in the order.
    #[error("{0} was not named in the order")]
    Stranger(IpAddr),
    /// There are too many already, or the time is over.
    #[error("{LOADS_AT_ONCE} connections load this order already, or its time is over")]
    Full,
}

/// Gives its place back.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Sink {
    /// For connections that are made as the order says.
    #[must_use]
    pub fn new(mut order: Order) -> Self {
        order.askers.truncate(ASKERS);
        Self {
            until: Instant::now() + order.time.min(crate::limits::ANSWER_TIME_MOST),
            taken: Arc::default(),
            closers: Mutex::default(),
            order,
        }
    }

    /// Has it prove the ticket by `until`, and drops what comes from then on, on a thread of its own that ends with the connection or
    /// the order.
    ///
    /// # Errors
    /// [`NotTaken`]; the peer is told no more than that it is not expected.
    pub fn take(
        &self,
        connection: BorrowedFd<'_>,
        preamble: [u8; PREAMBLE_BYTES],
        until: Instant,
    ) -> Result<(), NotTaken> {
        let connection = Connection::adopt(connection.try_clone_to_owned()?.into())?;
        connection.set_deadline(until.min(self.until))?;
        let place = self.check(&connection, &preamble).inspect_err(|_| {
            let refused = Answer::Refused(RefusalCode::Unexpected, VersionRange::SUPPORTED);
            // It may be gone; it is turned away all the same.
            let _ = connection.send(&refused.encode());
        })?;
        let go_on = Answer::GoOn(newest(), Nonce([0; 32]));
        connection.send(&go_on.encode())?;
        connection.set_deadline(self.until)?;
        let mut closers = self.closers.lock().unwrap_or_else(PoisonError::into_inner);
        closers.retain(Closer::is_open);
        closers.push(connection.closer());
        drop(closers);
        let drain = move || {
            let _place = place;
            let mut buffer = vec![0; SINK_BYTES];
            // Its end, an error or the deadline: nothing is owed to it.
            while connection.discard(&mut buffer).is_ok_and(|count| count > 0) {}
        };
        thread::Builder::new().name("sink".into()).spawn(drain)?;
        Ok(())
    }

    fn check(
        &self,
        connection: &Connection,
        preamble: &[u8; PREAMBLE_BYTES],
    ) -> Result<Place, NotTaken> {
        let peer = connection.peer().ip();
        if !self.order.askers.contains(&peer) {
            return Err(NotTaken::Stranger(peer));
        }
        let mut proof = [0; PROOF_BYTES];
        connection.receive(&mut proof)?;
        // Compared in constant time.
        if prove(&self.order.ticket, preamble) != blake3::Hash::from_bytes(proof) {
            return Err(NotTaken::Forged);
        }
        let place = Place(self.taken.clone());
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        if before >= LOADS_AT_ONCE || Instant::now() >= self.until {
            return Err(NotTaken::Full);
        }
        Ok(place)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let closers = self
            .closers
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for closer in closers {
            closer.close();
        }
    }
}

fn newest() -> Version {
    VersionRange::SUPPORTED.max
}
