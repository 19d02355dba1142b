use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, oneshot};
use tokio::time::timeout;

use crate::error::{CallError, Closed, Failure};
use crate::events::Event;
use crate::limits;

/// What a connection's threads and its users share.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Gone once the connection is.
    events: Option<broadcast::Sender<Event>>,
    closed: Option<Closed>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let (events, _) = broadcast::channel(limits::EVENTS_KEPT);
        Self(Mutex::new(State {
            events: Some(events),
            closed: None,
        }))
    }

    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Some(events) = &self.lock().events {
            // Nobody may be listening.
            let _ = events.send(event);
        }
    }

    /// Events from now on; `None` when the connection is gone.
    pub(crate) fn subscribe(&self) -> Option<broadcast::Receiver<Event>> {
        let state = self.lock();
        state.events.as_ref().map(broadcast::Sender::subscribe)
    }

    /// How the connection ended, once it has.
    pub(crate) fn closed(&self) -> Option<Closed> {
        self.lock().closed.clone()
    }

    /// Ends it for everybody; the first reason stays, and is given.
    pub(crate) fn close(&self, reason: Closed) -> Closed {
        let mut state = self.lock();
        state.events = None;
        state.closed.get_or_insert(reason).clone()
    }

    /// Waits for a call's answer within [`limits::CALL`], over a connection that is there.
    pub(crate) async fn answer<T>(
        &self,
        what: &'static str,
        answer: oneshot::Receiver<Result<T, Failure>>,
    ) -> Result<T, CallError> {
        let within = limits::CALL;
        let answer = timeout(within, answer).await;
        let answer = answer.map_err(|_| CallError::TimedOut { what, within })?;
        self.understood(what, answer.ok())
    }

    /// What a call's answer means for whoever asked; none where the thread that was to make it has ended.
    pub(crate) fn understood<T>(
        &self,
        what: &'static str,
        answer: Option<Result<T, Failure>>,
    ) -> Result<T, CallError> {
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(Failure::Refused(source))) => Err(CallError::Refused { what, source }),
            // The thread of events may not have noticed yet why.
            Some(Err(Failure::Lost(refusal))) => {
                let source = self.close(Closed::Failed(refusal.to_string()));
                Err(CallError::Lost { what, source })
            }
            None => Err(self.lost(what)),
        }
    }

    pub(crate) fn lost(&self, what: &'static str) -> CallError {
        let source = self.closed().unwrap_or(Closed::ByUs);
        CallError::Lost { what, source }
    }
}
