//! Ctrl-C and SIGTERM, which ask a command to end and do not end it in the middle of something.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Both signals, counted.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// How many have come.
    pub seen: u32,
}

impl Interrupts {
    /// Takes the signals from now on.
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::error(format!("cannot watch for Ctrl-C: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            seen: 0,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.seen += 1;
    }

    /// Waits for one, with a bound.
    pub async fn wait(&mut self, at_most: Duration) {
        // No interrupt is fine.
        let _ = tokio::time::timeout(at_most, self.next()).await;
    }

    /// Runs something to its end; an interrupt meanwhile is answered later.
    pub async fn remember<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = work.as_mut() => return done,
                () = self.next() => {}
            }
        }
    }

    /// Runs something unless an interrupt ends it, or came before it; nothing then.
    pub async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.next() => None,
            done = work => Some(done),
        }
    }
}
