//! For which load this host is taken: it is part of one at a time, whoever asks for it, and by way of which agent.
//!
//! # Invariant
//! No path is loaded from or to this host but as part of that one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{ErrorCode, LineView, LoadTakeRequest, LoadTakenView, Refusal};
use drover_types::{HostName, LoadId};
use tokio::time::Instant;

use super::ask::interfaces;
use super::pairs::ports;
use crate::agent::Context;
use crate::api::Caller;
use crate::{limits, migration};

/// Whether it is taken, and for what.
#[derive(Debug, Default)]
pub struct Taken(Mutex<Option<Load>>);

#[derive(Debug)]
struct Load {
    id: LoadId,
    /// The host whose agent has it done.
    by: HostName,
    until: Instant,
}

impl Taken {
    /// What it is taken for now.
    fn now(&self) -> MutexGuard<'_, Option<Load>> {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        load.take_if(|load| load.until <= now);
        load
    }

    /// Takes it for that load, or for longer.
    fn take(
        &self,
        here: &HostName,
        by: HostName,
        LoadTakeRequest { id, time_s }: LoadTakeRequest,
    ) -> Result<(), Refusal> {
        let mut load = self.now();
        if let Some(other) = load.as_ref().filter(|load| load.id != id) {
            let next = "ask again when it is over";
            return Err(Refusal::new(ErrorCode::TooManyRequests, busy(here, other)).next(next));
        }
        let time = Duration::from_secs(time_s).min(limits::LOAD_TAKEN);
        let until = Instant::now() + time;
        *load = Some(Load { id, by, until });
        Ok(())
    }

    /// Whether it is taken for that load.
    ///
    /// # Errors
    /// It is not, to be read after "because".
    pub fn is_for(&self, here: &HostName, id: Option<LoadId>) -> Result<(), String> {
        match self.now().as_ref() {
            Some(load) if Some(load.id) == id => Ok(()),
            Some(other) => Err(busy(here, other)),
            None => Err(format!("{here} is not taken for a load, or no longer")),
        }
    }

    fn give_back(&self, by: &HostName, id: LoadId) {
        self.now().take_if(|load| load.id == id && load.by == *by);
    }
}

fn busy(here: &HostName, load: &Load) -> String {
    let seconds = load.until.saturating_duration_since(Instant::now());
    let (by, seconds) = (&load.by, seconds.as_secs() + 1);
    format!("{here} is busy with a load of {by}, for {seconds} s more at most")
}

/// Takes this host for a load of the caller.
///
/// # Errors
/// It is part of another one, or cannot read its own interfaces.
pub async fn take(
    context: &Context,
    caller: Caller,
    request: LoadTakeRequest,
) -> Result<LoadTakenView, Refusal> {
    let view = lines(context).await?;
    let (taken, here) = (&context.paths.taken, &context.config.host);
    taken.take(here, host_of(context, &caller), request)?;
    tracing::info!(%caller, id = %request.id, "this host is taken for a load");
    Ok(view)
}

/// It is part of that load of the caller no longer.
pub fn give_back(context: &Context, caller: &Caller, id: LoadId) {
    let by = host_of(context, caller);
    context.paths.taken.give_back(&by, id);
}

/// Whose agent has it done.
fn host_of(context: &Context, caller: &Caller) -> HostName {
    match caller {
        Caller::Peer(host) => host.clone(),
        Caller::Local | Caller::Operator(_) => context.config.host.clone(),
    }
}

async fn lines(context: &Context) -> Result<LoadTakenView, Refusal> {
    let own = interfaces(&context.config.host).await?;
    let (own, _) = migration::offered(&context.config.networks, own);
    let mut ports = ports(&own).await;
    let lines = own.into_iter().map(|nic| {
        let line = LineView {
            ports: ports.remove(&nic.name).unwrap_or_default(),
            rate: nic.speed,
        };
        (nic.name, line)
    });
    Ok(LoadTakenView {
        lines: lines.collect(),
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    fn take(taken: &Taken, by: &str, id: LoadId, time_s: u64) -> Result<(), Refusal> {
        taken.take(&host("x"), host(by), LoadTakeRequest { id, time_s })
    }

    #[test]
    fn a_host_is_part_of_one_load_at_a_time_and_says_of_whose() {
        let taken = Taken::default();
        let (one, other) = (LoadId(Uuid::now_v7()), LoadId(Uuid::now_v7()));
        let none = taken.is_for(&host("x"), Some(one)).unwrap_err();
        assert_eq!(none, "x is not taken for a load, or no longer");
        take(&taken, "a", one, 60).unwrap();
        let refused = take(&taken, "b", other, 60).unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
        let told = "x is busy with a load of a, for ";
        assert!(refused.message.starts_with(told), "{refused}");
        for id in [None, Some(other)] {
            let why = taken.is_for(&host("x"), id).unwrap_err();
            assert!(why.starts_with(told), "{why}");
        }
        taken.is_for(&host("x"), Some(one)).unwrap();
        take(&taken, "a", one, 60).unwrap();
    }

    #[test]
    fn whoever_took_it_gives_it_back_and_nobody_else_and_time_does() {
        let taken = Taken::default();
        let (one, other) = (LoadId(Uuid::now_v7()), LoadId(Uuid::now_v7()));
        take(&taken, "a", one, 60).unwrap();
        taken.give_back(&host("b"), one);
        taken.give_back(&host("a"), other);
        taken.is_for(&host("x"), Some(one)).unwrap();
        taken.give_back(&host("a"), one);
        take(&taken, "b", other, 0).unwrap();
        taken.is_for(&host("x"), Some(other)).unwrap_err();
        take(&taken, "a", one, u64::MAX).unwrap();
    }
}
