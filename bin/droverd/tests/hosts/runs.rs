//! Runs that the first of two hosts coordinates.

use drover_api::{RunRequest, RunView};
use drover_plan::Request;
use drover_types::{HostName, RunId};

use super::{A, B, Hosts, PATIENCE, until};

/// Two hosts of which one may be lost: of two, none is left when one is drained.
pub async fn two_that_may_lose_one(test: &str, rates: &str) -> Option<Hosts> {
    Some(with_policy(Hosts::new(test, rates).await?, "").await)
}

/// These two hosts, of which one may be lost, with more lines in their policy.
pub async fn with_policy(mut hosts: Hosts, more: &str) -> Hosts {
    let changes = format!("[policy]\nkeep = {{ losses = 0, of = \"host\" }}\n{more}");
    for number in [A, B] {
        hosts.configure(number, |config| {
            config.extend(toml::from_str::<toml::Table>(&changes).unwrap());
        });
        hosts.start_agent(number).await;
    }
    hosts
}

pub fn host(hosts: &Hosts, number: usize) -> HostName {
    hosts.host(number).name.parse().unwrap()
}

pub fn drain(hosts: &Hosts, number: usize) -> RunRequest {
    RunRequest::of(Request::Drain {
        hosts: [host(hosts, number)].into(),
        avoid: [].into(),
        with_disks: false,
    })
}

/// Without guests that come home.
pub fn resume(hosts: &Hosts, number: usize) -> RunRequest {
    RunRequest::of(Request::Resume {
        host: host(hosts, number),
        homes: Vec::new(),
        avoid: [].into(),
        with_disks: false,
    })
}

/// A run, once `accept` is content with it.
pub async fn when(hosts: &Hosts, id: RunId, accept: impl Fn(&RunView) -> bool) -> RunView {
    until(PATIENCE * 2, async || {
        let view = hosts.client(A).run(id).await;
        let view = view.map_err(|error| error.to_string())?;
        if accept(&view) {
            Ok(view)
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await
}

/// A run that was begun, when it has ended.
pub async fn ended(hosts: &Hosts, id: RunId) -> RunView {
    when(hosts, id, |view| view.phase.has_ended()).await
}

/// Begins a run, and waits for its end.
pub async fn carried_out(hosts: &Hosts, request: RunRequest) -> RunView {
    let id = hosts.client(A).start_run(&request).await.unwrap().id;
    ended(hosts, id).await
}
