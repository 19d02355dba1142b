use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};

use super::connection::Shared;
use super::{Closed, Event};

/// What a reader of events is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// An event, in the order QEMU sent it.
    Event(Event),
    /// So many events were dropped because this reader was slow: ask for the state anew.
    Missed(u64),
    /// The connection ended; every later call says so again.
    Closed(Closed),
}

/// A reader of a monitor's events, from when it was made.
#[derive(Debug)]
pub struct Events {
    shared: Arc<Shared>,
    receiver: Option<broadcast::Receiver<Event>>,
}

impl Events {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let receiver = shared.subscribe();
        Self { shared, receiver }
    }

    /// The next event. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> Notice {
        if let Some(receiver) = &mut self.receiver {
            match receiver.recv().await {
                Ok(event) => return Notice::Event(event),
                Err(RecvError::Lagged(missed)) => return Notice::Missed(missed),
                Err(RecvError::Closed) => self.receiver = None,
            }
        }
        Notice::Closed(self.shared.closed().unwrap_or(Closed::ByUs))
    }
}
