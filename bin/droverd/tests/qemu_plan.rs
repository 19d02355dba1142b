//! Plans of two real hosts, made by an agent. Nothing is moved by them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{ClientError, CordonRequest, ErrorCode, InventoryView, PlanRequest, PlanView};
use drover_plan::Request;
use drover_plan::inventory::{HostState, VmState};
use drover_plan::plan::{Choice, Then};
use drover_plan::policy::{CannotMove, VmPolicy};
use drover_plan::request::Avoid;
use drover_types::Bytes;
use hosts::{A, B, FAST, Hosts, PATIENCE, until};

/// Two hosts that may be without each other: of two, none is left to be lost when one is drained.
async fn two_hosts(test: &str) -> Option<Hosts> {
    let hosts = Hosts::new(test, FAST).await?;
    for host in [A, B] {
        hosts.configure(host, |config| {
            let changes = "labels = { rack = \"r1\" }\npolicy.keep = { losses = 0, of = \"host\" }";
            config.extend(toml::from_str::<toml::Table>(changes).unwrap());
        });
    }
    Some(hosts)
}

async fn drain(hosts: &Hosts, asked: usize, drained: usize) -> Result<PlanView, ClientError> {
    let names = [hosts.host(drained).name.parse().unwrap()];
    let request = Request::Drain {
        hosts: names.into(),
        avoid: Avoid::new(),
        with_disks: false,
    };
    hosts.client(asked).plan(&PlanRequest { request }).await
}

/// What the operator is told when there is no plan.
fn refused(planned: Result<PlanView, ClientError>) -> String {
    refused_with(ErrorCode::NoPlan, planned)
}

fn refused_with(code: ErrorCode, planned: Result<PlanView, ClientError>) -> String {
    let error = planned.unwrap_err();
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(refusal.code, code, "{refusal}");
    refusal.message.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_moves_the_guest_where_there_is_room_and_its_policy_and_cordons_are_kept() {
    let Some(mut hosts) = two_hosts("plan").await else {
        return;
    };
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let sampled = sampled(&hosts).await;
    is_as_the_guest_is(&sampled);

    let planned = drain(&hosts, B, A).await.unwrap();
    assert_eq!(planned.notes, Vec::<String>::new());
    let [step] = &planned.plan.steps[..] else {
        panic!("{planned:#?}");
    };
    let way = (step.vm.as_str(), step.from.as_str(), step.to.as_str());
    let (a, b) = (hosts.host(A).name, hosts.host(B).name);
    assert_eq!(way, ("guest", a.as_str(), b.as_str()));
    assert_eq!(step.why.choice, Choice::OnlyPlace);
    assert!(step.forecast.bytes.most > 0, "{step:#?}");
    hosts.guest_runs_only_on(A).await;

    hosts
        .client(B)
        .cordon(&CordonRequest::default())
        .await
        .unwrap();
    let words = refused(drain(&hosts, A, A).await);
    assert!(words.contains(&format!("({b}: is cordoned)")), "{words}");
    hosts.client(B).uncordon().await.unwrap();

    let pinned = |cannot_move| {
        let mut policy = VmPolicy::default();
        policy.pinned.hosts.insert(a.parse().unwrap());
        policy.cannot_move = cannot_move;
        policy
    };
    want(&hosts, pinned(CannotMove::Block));
    let words = refused(drain(&hosts, A, A).await);
    assert!(words.contains("1 guest cannot move"), "{words}");
    let reason = format!("{b}: guest is pinned to others");
    assert!(words.contains(&reason), "{words}");
    want(&hosts, pinned(CannotMove::Skip));
    let planned = drain(&hosts, A, A).await.unwrap();
    let unmoved = &planned.plan.unmoved;
    assert!(
        planned.plan.steps.is_empty() && unmoved.len() == 1,
        "{planned:#?}"
    );
    assert_eq!(unmoved[0].then, Then::RunsOn);
    hosts.guest_runs_only_on(A).await;
}

/// What host A tells of itself, once its guest's dirty rate was sampled.
async fn sampled(hosts: &Hosts) -> InventoryView {
    let client = hosts.client(A);
    until(PATIENCE, async || {
        let view = client
            .inventory()
            .await
            .map_err(|error| error.to_string())?;
        match view.vms.first().and_then(|vm| vm.dirty_rate) {
            Some(_) => Ok(view),
            None => Err(format!("{view:#?}")),
        }
    })
    .await
}

fn is_as_the_guest_is(view: &InventoryView) {
    let host = &view.host;
    assert_eq!(host.state, HostState::Ready);
    assert_eq!(host.labels.len(), 1);
    assert!(
        host.bandwidth.0 > 0 && host.qemu.to_string() != "0.0.0",
        "{host:#?}"
    );
    assert!(host.memory_for_host < host.memory, "{host:#?}");
    let [vm] = &view.vms[..] else {
        panic!("{view:#?}");
    };
    assert_eq!(
        (vm.state, vm.vcpus, vm.moving_to.as_ref()),
        (VmState::Running, 1, None)
    );
    assert!(
        vm.memory >= Bytes(256 << 20) && vm.memory_used.0 > 0,
        "{vm:#?}"
    );
    assert!(
        vm.memory_used <= vm.memory && vm.blockers.is_empty(),
        "{vm:#?}"
    );
}

/// Changes what is wanted of the guest, while it runs.
fn want(hosts: &Hosts, policy: VmPolicy) {
    let mut definition = hosts.guest.as_ref().unwrap().definition.clone();
    definition.policy = policy;
    hosts.define(A, &definition);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_answer_is_named_and_left_out() {
    let Some(mut hosts) = two_hosts("planless").await else {
        return;
    };
    hosts.start_agent(A).await;
    let b = hosts.host(B).name;
    let planned = drain(&hosts, A, A).await.unwrap();
    assert!(planned.plan.steps.is_empty(), "{planned:#?}");
    let [note] = &planned.notes[..] else {
        panic!("{planned:#?}");
    };
    assert!(
        note.starts_with(&format!("{b} is left out, with its guests: ")),
        "{note}"
    );
    let words = refused_with(ErrorCode::PeerUnreachable, drain(&hosts, A, B).await);
    assert!(
        words.starts_with(&format!("No plan: {b} cannot be planned with: ")),
        "{words}"
    );
    let nobody = PlanRequest {
        request: Request::Drain {
            hosts: ["nobody".parse().unwrap()].into(),
            avoid: Avoid::new(),
            with_disks: false,
        },
    };
    let words = refused(hosts.client(A).plan(&nobody).await);
    assert!(
        words.contains("no host nobody in the cluster") && words.contains(note),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_fell_silent_counts_as_it_was_also_for_a_coordinator_that_is_started_afterwards()
 {
    let Some(mut hosts) = two_hosts("plansilent").await else {
        return;
    };
    let mut definition = hosts.definition().await;
    definition.name = "db".parse().unwrap();
    hosts.define(B, &definition);
    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    let b = hosts.host(B).name;
    let found = async |hosts: &Hosts, state: HostState| {
        until(PATIENCE, async || {
            let view = hosts.client(A).cluster_inventory().await;
            let view = view.map_err(|error| error.to_string())?;
            let inventory = &view.inventory;
            let host = inventory.hosts.iter().find(|host| host.name.as_str() == b);
            let has_guest = inventory.vms.iter().any(|vm| vm.host.as_str() == b);
            match host {
                Some(host) if host.state == state && has_guest => Ok(view),
                _ => Err(format!("{view:#?}")),
            }
        })
        .await
    };
    found(&hosts, HostState::Ready).await;
    hosts.kill_agent(B).await;
    // By what this agent has heard itself, and then by what is in the store.
    found(&hosts, HostState::Unreachable).await;
    assert_eq!(hosts.terminate_agent(A).await, Some(0));
    hosts.start_agent(A).await;
    let view = found(&hosts, HostState::Unreachable).await;
    assert_eq!(view.left_out.len(), 1);
    let [guest] = &view.inventory.vms[..] else {
        panic!("{view:#?}");
    };
    let why = guest.blockers[0].as_str();
    assert_eq!(why, format!("{b} does not tell what is so now"));
    let planned = drain(&hosts, A, A).await.unwrap();
    let [note] = &planned.notes[..] else {
        panic!("{planned:#?}");
    };
    assert!(
        note.starts_with(&format!("{b} counts with what it said ")),
        "{note}"
    );
}
