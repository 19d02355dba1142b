//! What members said last, kept in the cluster's store: for a coordinator that is started when one of them is silent
//! already.
//!
//! ```text
//!   members ─▶ planning, which remembers it ─▶ host/NAME, vm/NAME ─▶ whoever coordinates next
//! ```
//! Every host that may coordinate writes what it has just heard, without a fence: nothing is decided by it, and what
//! is written is true of its moment whoever leads.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use drover_api::{ErrorCode, Refusal};
use drover_plan::inventory::HostState;
use drover_store::limits::{TRANSACTION_BYTES, TRANSACTION_WRITES};
use drover_store::{Expect, Key, Kind, Name, StoreError, Transaction, Value};
use drover_types::{Bytes, VmName};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Coordinator;
use super::keep::Keep;
use crate::limits;
use crate::planning::{self, HostThen, Said};

/// What a host needs for itself is kept in multiples of this.
const GRAIN: Bytes = Bytes(1 << 28);

impl Coordinator {
    /// Asks all members now and then, and keeps what they say.
    pub async fn remember(&self) {
        let mut told = None;
        while !self.ends.load(Ordering::SeqCst) {
            if self.place.check_is_here().is_ok() {
                let remembered = self.remember_now().await;
                self.tell_of_memory(remembered.err(), &mut told);
            }
            tokio::time::sleep(limits::REMEMBER).await;
        }
    }

    async fn remember_now(&self) -> Result<(), Refusal> {
        let keep = self.place.keep().await?;
        let unavailable = |error| self.place.unavailable(&error);
        let kept = keep.said().await.map_err(unavailable)?;
        self.context.last_said.lock().hear(kept.clone());
        planning::look(&self.context).await?;
        let said = self.context.last_said.lock().clone();
        keep.keep_said(&kept, &said).await.map_err(unavailable)
    }

    /// Once for each reason.
    fn tell_of_memory(&self, refusal: Option<Refusal>, told: &mut Option<ErrorCode>) {
        let code = refusal.as_ref().map(|refusal| refusal.code);
        if let Some(refusal) = refusal.filter(|_| *told != code) {
            tracing::warn!(%refusal, next = refusal.next, "what members say is not kept");
        }
        *told = code;
    }
}

impl Keep {
    async fn said(&self) -> Result<Said, StoreError> {
        Ok(Said {
            hosts: self.readable(Kind::Host).await?,
            vms: self.readable(Kind::Vm).await?,
        })
    }

    /// Documents that another version wrote, and that cannot be read, are as good as none: they are written anew.
    async fn readable<N, T>(&self, kind: Kind) -> Result<BTreeMap<N, T>, StoreError>
    where
        N: std::str::FromStr + Ord,
        T: DeserializeOwned,
    {
        let documents = self.all(kind).await?.into_iter();
        let read = documents.filter_map(|document| {
            let Key::Document { name, .. } = &document.key else {
                return None;
            };
            Some((name.as_str().parse().ok()?, document.read().ok()?))
        });
        Ok(read.collect())
    }

    async fn keep_said(&self, kept: &Said, said: &Said) -> Result<(), StoreError> {
        let mut writes = changes(kept, said).into_iter().peekable();
        while writes.peek().is_some() {
            let mut transaction = Transaction::new();
            let (mut count, mut bytes) = (0, 0);
            while let Some((key, value)) = writes.next_if(|(_, value)| {
                count += 1;
                bytes += value.as_ref().map_or(0, |value| value.as_str().len());
                count == 1 || count <= TRANSACTION_WRITES && bytes <= TRANSACTION_BYTES / 2
            }) {
                transaction = match value {
                    Some(value) => transaction.put(key, value, Expect::Anything),
                    None => transaction.delete(key, Expect::Anything),
                };
            }
            self.store().commit(&transaction).await?;
        }
        Ok(())
    }
}

/// A document, and what it says from now on; nothing of one that is to go.
type Change = (Key, Option<Value>);

fn changes(kept: &Said, said: &Said) -> Vec<Change> {
    let said = &lasting(said);
    let newest = said.hosts.values().map(|then| then.at).max();
    let is_due = |then: &HostThen, before: &HostThen| {
        then.host != before.host || is_later(before.at, then.at, newest)
    };
    let mut changes = Vec::new();
    for (name, then) in &said.hosts {
        if kept
            .hosts
            .get(name)
            .is_none_or(|before| is_due(then, before))
        {
            let key = Key::new(Kind::Host, Name::from(name));
            changes.extend(put(key, then));
        }
    }
    for (name, vm) in &said.vms {
        if kept.vms.get(name) != Some(vm) {
            changes.extend(put(of_vm(name), vm));
        }
    }
    let gone = kept
        .hosts
        .keys()
        .filter(|name| !said.hosts.contains_key(*name));
    changes.extend(gone.map(|name| (Key::new(Kind::Host, Name::from(name)), None)));
    let gone = kept.vms.keys().filter(|name| !said.vms.contains_key(*name));
    changes.extend(gone.map(|name| (of_vm(name), None)));
    changes
}

/// A document that is too long is not kept; the others are.
fn put(key: Key, document: &impl Serialize) -> Option<Change> {
    match Value::of(document) {
        Ok(value) => Some((key, Some(value))),
        Err(error) => {
            tracing::warn!(%key, %error, "what a member says is not kept");
            None
        }
    }
}

/// Without what changes all the time: each change would be a write.
fn lasting(said: &Said) -> Said {
    let mut said = said.clone();
    for then in said.hosts.values_mut() {
        then.host.state = HostState::Ready;
        then.host.facts_age_seconds = 0;
        then.host.memory_for_host = in_grains(then.host.memory_for_host);
    }
    for vm in said.vms.values_mut() {
        vm.moving_to = None;
        vm.memory_used = vm.memory;
        vm.dirty_rate = None;
        vm.working_set = None;
        vm.blockers = Vec::new();
    }
    said
}

fn in_grains(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.div_ceil(GRAIN.0).saturating_mul(GRAIN.0))
}

fn of_vm(name: &VmName) -> Key {
    Key::new(Kind::Vm, Name::from(name))
}

/// Whether a time is worth a write: the one at which a host was heard of last is, and otherwise one now and then.
fn is_later(before: Timestamp, at: Timestamp, newest: Option<Timestamp>) -> bool {
    let is_silent = newest.is_some_and(|newest| at < newest);
    let since = at.duration_since(before).unsigned_abs();
    at > before && (is_silent || since >= limits::REMEMBER_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use drover_plan::inventory::{Host, Inventory, Vm};
    use serde_json::json;

    use super::*;

    /// Two hosts, of which the first has a guest.
    fn inventory() -> Inventory {
        let host = |name: &str| -> Host {
            let host = json!({
                "name": name, "state": "ready", "facts_age_seconds": 0, "memory": 1_u64 << 36,
                "memory_for_host": 1 << 28, "cpus": 8, "cpu": {"model": "x", "features": []},
                "bandwidth": 10_000_000_000_u64, "qemu": "10.0.2"
            });
            serde_json::from_value(host).unwrap()
        };
        let vm = json!({
            "name": "web", "host": "a", "state": "running", "memory": 1_u64 << 30, "memory_used": 1 << 20,
            "vcpus": 1, "cpu": {"kind": "passthrough"}, "downtime_limit_ms": 300
        });
        Inventory {
            hosts: vec![host("a"), host("b")],
            vms: vec![serde_json::from_value::<Vm>(vm).unwrap()],
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn said(inventory: &Inventory, second: i64) -> Said {
        let mut said = Said::default();
        said.learn(inventory, &BTreeSet::new(), at(second));
        said
    }

    /// What is written after what was `before`.
    fn changed(before: &Said, said: &Said) -> Vec<(String, bool)> {
        let changes = changes(&lasting(before), said);
        let told = |(key, value): Change| (key.to_string(), value.is_some());
        changes.into_iter().map(told).collect()
    }

    fn put(keys: &[&str]) -> Vec<(String, bool)> {
        keys.iter().map(|key| ((*key).to_owned(), true)).collect()
    }

    #[test]
    fn what_has_not_changed_is_written_now_and_then_and_not_each_time() {
        let first = said(&inventory(), 0);
        let all = put(&["host/a", "host/b", "vm/web"]);
        assert_eq!(changed(&Said::default(), &first), all);
        let mut busy = inventory();
        busy.vms[0].memory_used.0 += 1;
        busy.hosts[0].memory_for_host.0 -= 1;
        assert_eq!(changed(&first, &said(&busy, 3599)), []);
        let hosts = put(&["host/a", "host/b"]);
        assert_eq!(changed(&first, &said(&busy, 3600)), hosts);
    }

    #[test]
    fn when_a_host_fell_silent_is_written_once() {
        let first = said(&inventory(), 0);
        let mut then = said(&inventory(), 60);
        let mut rest = inventory();
        rest.hosts.retain(|host| host.name.as_str() == "b");
        rest.vms.clear();
        let silent = ["a".parse().unwrap()].into();
        then.learn(&rest, &silent, at(120));
        assert_eq!(changed(&first, &then), put(&["host/a"]));
        let kept = then.clone();
        then.learn(&rest, &silent, at(180));
        assert_eq!(changed(&kept, &then), []);
    }

    #[test]
    fn what_is_too_long_to_be_kept_keeps_nothing_else_from_it() {
        let mut endless = inventory();
        let features = (0..20_000).map(|n| format!("feature-{n}").parse().unwrap());
        endless.hosts[0].cpu.features = features.collect();
        let kept = put(&["host/b", "vm/web"]);
        assert_eq!(changed(&Said::default(), &said(&endless, 0)), kept);
    }

    #[test]
    fn what_is_no_longer_there_is_deleted() {
        let mut rest = inventory();
        rest.hosts.remove(1);
        rest.vms.clear();
        let gone = |key: &str| (key.to_owned(), false);
        assert_eq!(
            changed(&said(&inventory(), 0), &said(&rest, 60)),
            [gone("host/b"), gone("vm/web")]
        );
    }
}
