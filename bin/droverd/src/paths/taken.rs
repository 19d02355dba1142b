//! For which load this host is taken: it is part of one at a time, whoever asks for it, and by way of which agent.
//!
//! # Invariant
//! No path is loaded from or to this host but as part of that one; and it is taken for no other one before the last of its parts has ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{ErrorCode, LineView, LoadTakeRequest, LoadTakenView, Refusal};
use drover_types::{HostName, LoadId};
use tokio::time::Instant;

use super::ask::own_interfaces;
use super::limits;
use super::pairs::ports;
use crate::agent::Context;
use crate::api::Caller;
use crate::migration;

/// Whether it is taken, and for what.
#[derive(Debug, Clone, Default)]
pub struct Taken(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    load: Option<Load>,
    /// The last time that something was loaded.
    loaded: Option<Loaded>,
}

#[derive(Debug)]
struct Load {
    id: LoadId,
    /// The host whose agent has it done.
    by: HostName,
    until: Instant,
    is_given_back: bool,
    /// How many of its parts go on.
    parts: usize,
}

#[derive(Debug)]
struct Loaded {
    id: LoadId,
    by: HostName,
    /// When that ended.
    at: Instant,
}

impl Load {
    fn is_over(&self, now: Instant) -> bool {
        self.is_given_back || self.until <= now
    }
}

impl State {
    /// Forgets what is over, and has no part that goes on.
    fn settle(&mut self, now: Instant) {
        self.load
            .take_if(|load| load.parts == 0 && load.is_over(now));
    }
}

/// Something that loads a path from or to this host.
#[derive(Debug)]
pub struct Part(Taken);

impl Drop for Part {
    fn drop(&mut self) {
        let at = Instant::now();
        let mut state = self.0.state();
        let State { load, loaded } = &mut *state;
        if let Some(load) = load {
            load.parts = load.parts.saturating_sub(1);
            let (id, by) = (load.id, load.by.clone());
            *loaded = Some(Loaded { id, by, at });
        }
        state.settle(at);
    }
}

/// Looks from its beginning on whether this host loads another, or is loaded, as part of somebody's load.
#[derive(Debug)]
pub struct Watch {
    taken: Taken,
    here: HostName,
    own: Option<LoadId>,
    since: Instant,
}

impl Watch {
    /// Why what was lost meanwhile may not be the fault of a path.
    pub fn loaded(&self) -> Option<String> {
        let state = self.taken.state();
        let is = state.load.as_ref().filter(|load| load.parts > 0);
        let is = is.map(|load| (load.id, &load.by));
        let was = state.loaded.as_ref();
        let was = was.filter(|loaded| loaded.at >= self.since);
        let was = was.map(|loaded| (loaded.id, &loaded.by));
        let mut others = [is, was].into_iter().flatten();
        let (_, by) = others.find(|(id, _)| Some(*id) != self.own)?;
        let here = &self.here;
        Some(format!(
            "{here} had part in a load of {by}, and what that fills is lost to others: ask when it is over"
        ))
    }
}

impl Taken {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is taken for now.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.settle(Instant::now());
        state
    }

    /// Takes it for that load.
    pub(super) fn take(
        &self,
        here: &HostName,
        by: HostName,
        LoadTakeRequest { id, time_s }: LoadTakeRequest,
    ) -> Result<(), Refusal> {
        let mut state = self.now();
        let now = Instant::now();
        if let Some(load) = &state.load {
            // Whoever lost the answer to the first request gives another, and gains no time by it.
            if load.id == id && load.by == by && !load.is_over(now) {
                return Ok(());
            }
            let next = "ask again when it is over";
            let message = busy(here, load, now);
            return Err(Refusal::new(ErrorCode::TooManyRequests, message).next(next));
        }
        let time = Duration::from_secs(time_s).min(limits::LOAD_TAKEN);
        state.load = Some(Load {
            id,
            by,
            until: now + time,
            is_given_back: false,
            parts: 0,
        });
        Ok(())
    }

    /// Has a part of that load begin. It is part of no other one before what is returned is dropped. Whoever is loaded knows no more than its id;
    /// who has it `by` whom, where that is known, has to be the one who took the host for it.
    ///
    /// # Errors
    /// It is not taken for that one, to be read after "because".
    pub fn join(
        &self,
        here: &HostName,
        id: Option<LoadId>,
        by: Option<&HostName>,
    ) -> Result<Part, String> {
        let mut state = self.now();
        let now = Instant::now();
        let none = || format!("{here} is not taken for a load, or no longer");
        let load = state.load.as_mut().ok_or_else(none)?;
        if Some(load.id) != id || by.is_some_and(|by| load.by != *by) {
            return Err(busy(here, load, now));
        }
        if load.is_over(now) {
            return Err(none());
        }
        load.parts += 1;
        Ok(Part(self.clone()))
    }

    /// Looks out for loads that have nothing to do with that one.
    pub fn watch(&self, here: &HostName, own: Option<LoadId>) -> Watch {
        Watch {
            taken: self.clone(),
            here: here.clone(),
            own,
            since: Instant::now(),
        }
    }

    pub(super) fn give_back(&self, by: &HostName, id: LoadId) {
        let now = Instant::now();
        let mut state = self.state();
        let load = state.load.as_mut();
        if let Some(load) = load.filter(|load| load.id == id && load.by == *by) {
            load.is_given_back = true;
        }
        state.settle(now);
    }
}

fn busy(here: &HostName, load: &Load, now: Instant) -> String {
    let by = &load.by;
    if load.is_over(now) {
        return format!("{here} is busy with the end of a load of {by}, for some seconds");
    }
    let seconds = load.until.saturating_duration_since(now).as_secs() + 1;
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

/// Has a part of that load of the caller begin.
///
/// # Errors
/// This host is not taken for it, or not by the caller, to be read after "because".
pub fn join(context: &Context, caller: &Caller, id: Option<LoadId>) -> Result<Part, String> {
    let by = host_of(context, caller);
    let (taken, here) = (&context.paths.taken, &context.config.host);
    taken.join(here, id, Some(&by))
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
    let own = own_interfaces(&context.config.host).await?;
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

    fn join(taken: &Taken, id: Option<LoadId>) -> Result<Part, String> {
        taken.join(&host("x"), id, None)
    }

    fn ids() -> (LoadId, LoadId) {
        (LoadId(Uuid::now_v7()), LoadId(Uuid::now_v7()))
    }

    #[test]
    fn a_host_is_part_of_one_load_at_a_time_and_says_of_whose() {
        let taken = Taken::default();
        let (one, other) = ids();
        let none = join(&taken, Some(one)).unwrap_err();
        assert_eq!(none, "x is not taken for a load, or no longer");
        take(&taken, "a", one, 60).unwrap();
        let refused = take(&taken, "b", other, 60).unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyRequests);
        let told = "x is busy with a load of a, for ";
        assert!(refused.message.starts_with(told), "{refused}");
        for id in [None, Some(other)] {
            let why = join(&taken, id).unwrap_err();
            assert!(why.starts_with(told), "{why}");
        }
        join(&taken, Some(one)).unwrap();
        take(&taken, "a", one, 60).unwrap();
        // Nobody takes over what is another's by its id, nor has it done.
        take(&taken, "b", one, 60).unwrap_err();
        let by = |by: &str| taken.join(&host("x"), Some(one), Some(&host(by)));
        by("a").unwrap();
        assert!(by("b").unwrap_err().starts_with(told));
    }

    #[test]
    fn whoever_took_it_gives_it_back_and_nobody_else_and_time_does() {
        let taken = Taken::default();
        let (one, other) = ids();
        take(&taken, "a", one, 60).unwrap();
        taken.give_back(&host("b"), one);
        taken.give_back(&host("a"), other);
        join(&taken, Some(one)).unwrap();
        taken.give_back(&host("a"), one);
        take(&taken, "b", other, 0).unwrap();
        join(&taken, Some(other)).unwrap_err();
        take(&taken, "a", one, u64::MAX).unwrap();
        let most = Instant::now() + limits::LOAD_TAKEN;
        assert!(taken.now().load.as_ref().unwrap().until <= most);
    }

    #[test]
    fn a_load_that_was_given_back_keeps_others_out_until_the_last_of_its_parts_has_ended() {
        let taken = Taken::default();
        let (one, other) = ids();
        take(&taken, "a", one, 60).unwrap();
        let part = || join(&taken, Some(one));
        let (first, second) = (part().unwrap(), part().unwrap());
        taken.give_back(&host("a"), one);
        drop(first);
        // Neither does it begin anything any more.
        assert!(part().is_err());
        let told = "x is busy with the end of a load of a, for some seconds";
        for id in [one, other] {
            assert_eq!(take(&taken, "b", id, 60).unwrap_err().message, told);
        }
        drop(second);
        take(&taken, "b", other, 60).unwrap();
    }

    #[test]
    fn whoever_looks_out_hears_of_what_was_loaded_for_others_meanwhile_and_of_nothing_else() {
        let taken = Taken::default();
        let (one, other) = ids();
        let of_a =
            "x had part in a load of a, and what that fills is lost to others: ask when it is over";
        let early = taken.watch(&host("x"), None);
        let own = taken.watch(&host("x"), Some(one));
        take(&taken, "a", one, 60).unwrap();
        // Nothing is loaded yet, and nobody knows whether anything will be.
        assert_eq!(early.loaded(), None);
        let part = join(&taken, Some(one)).unwrap();
        assert_eq!(early.loaded().as_deref(), Some(of_a));
        assert_eq!(own.loaded(), None);
        drop(part);
        taken.give_back(&host("a"), one);
        assert_eq!(early.loaded().as_deref(), Some(of_a));
        take(&taken, "b", other, 60).unwrap();
        drop(join(&taken, Some(other)).unwrap());
        let why = own.loaded().unwrap();
        assert!(why.contains("load of b"), "{why}");
        // One that was over before.
        let late = Watch {
            since: Instant::now() + Duration::from_secs(1),
            ..taken.watch(&host("x"), None)
        };
        assert_eq!(late.loaded(), None);
    }
}
