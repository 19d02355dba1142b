//! Runs that move domains of real libvirts beside guests of the agents' own, between two hosts.
//!
//! `DROVER_DOMAINS=20 DROVER_ROUNDS=5` has twenty domains go and come back five times; some without.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use common::{PATIENCE, domain, guest, until};
use drover_api::{MoveState, PlanRequest, RunRequest, RunResult, RunView, VmState};
use drover_libvirt::DomainState;
use drover_plan::{Request, text};
use drover_types::RunId;
use pair::{Pair, Side};
use tokio::time::{Instant, sleep};

on_each_libvirt! {
    a_mixed_host_is_emptied_and_all_of_it_comes_home
    a_domain_that_no_host_can_take_stays_with_why_and_the_rest_moves
    a_run_that_moves_a_domain_goes_on_when_its_coordinator_was_killed
    domains_go_and_come_back_again_and_again_and_both_views_of_them_are_the_same
}

/// Between two looks at a run.
const POLL: Duration = Duration::from_millis(50);

/// How many domains go and come back, and how often.
const DOMAINS: usize = 3;
const ROUNDS: usize = 2;

/// The agent's own guest.
const OWN: &str = "own";

fn drain() -> Request {
    Request::Drain {
        hosts: ["a".parse().unwrap()].into(),
        avoid: [].into(),
        with_disks: false,
    }
}

fn resume() -> RunRequest {
    let request = Request::Resume {
        host: "a".parse().unwrap(),
        homes: Vec::new(),
        avoid: [].into(),
        with_disks: false,
    };
    RunRequest {
        fail_back: true,
        ..RunRequest::of(request)
    }
}

async fn begun(pair: &Pair, request: RunRequest) -> RunId {
    let begun = pair.a.agent().client.start_run(&request).await;
    match begun {
        Ok(view) => view.id,
        Err(error) => panic!("{error:?}\n{}", pair.logs()),
    }
}

async fn when(pair: &Pair, id: RunId, accept: impl Fn(&RunView) -> bool) -> RunView {
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let view = pair.a.agent().client.run(id).await;
        if let Ok(view) = &view
            && accept(view)
        {
            return view.clone();
        }
        assert!(Instant::now() < deadline, "{view:#?}\n{}", pair.logs());
        sleep(POLL).await;
    }
}

async fn ended(pair: &Pair, id: RunId) -> RunView {
    when(pair, id, |view| view.phase.has_ended()).await
}

fn states(view: &RunView) -> Vec<MoveState> {
    view.moves.iter().map(|step| step.state).collect()
}

/// A guest of the agent's own that runs.
async fn with_own(side: &Side) {
    side.place.define(OWN);
    side.agent().start_vm(OWN).await;
}

async fn knows_domains(side: &Side, wanted: &[(&str, VmState)]) {
    until("the agent knows the domains", async || {
        let vms = side.agent().client.vms().await.unwrap();
        let is_there = |(name, state): &(&str, VmState)| {
            let mut vms = vms.iter();
            vms.any(|vm| vm.name == *name && vm.state == *state)
        };
        wanted.iter().all(is_there)
    })
    .await;
}

async fn stand(side: &Side, wanted: [(&str, Option<DomainState>); 2]) {
    for (name, state) in wanted {
        let found = domain(&side.libvirt, name).await;
        assert_eq!(found.map(|domain| domain.state), state, "{name}");
    }
}

async fn a_mixed_host_is_emptied_and_all_of_it_comes_home(libvirt: PathBuf) {
    let pair = Pair::idle(&libvirt).await;
    with_own(&pair.a).await;
    pair.a.host.define(&guest::idle("Käfer 1"));
    pair.a.host.virsh(&["start", "Käfer 1"]);
    pair.a.host.virsh(&["suspend", "Käfer 1"]);
    let domains = [("web", VmState::Running), ("Käfer 1", VmState::Paused)];
    knows_domains(&pair.a, &domains).await;
    let running = || ("web", Some(DomainState::Running));
    let paused = || ("Käfer 1", Some(DomainState::Paused));
    let gone = [("web", None), ("Käfer 1", None)];

    let id = begun(&pair, RunRequest::of(drain())).await;
    let drained = ended(&pair, id).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(states(&drained), [MoveState::Moved; 3]);
    let ids = [
        pair.b.web().await.unwrap().uuid,
        domain(&pair.b.libvirt, "Käfer 1").await.unwrap().uuid,
    ];
    for id in ids {
        let mut moves = drained.moves.iter();
        let found = moves.any(|step| step.vm.as_str() == id.to_string());
        assert!(found, "a domain is ordered by its id: {drained:#?}");
    }
    stand(&pair.a, gone).await;
    stand(&pair.b, [running(), paused()]).await;
    let own = pair.b.agent();
    own.vm_when(OWN, |vm| vm.state == VmState::Running).await;

    let id = begun(&pair, resume()).await;
    let resumed = ended(&pair, id).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(states(&resumed), [MoveState::Moved; 3]);
    stand(&pair.a, [running(), paused()]).await;
    stand(&pair.b, gone).await;
    let own = pair.a.agent();
    own.vm_when(OWN, |vm| vm.state == VmState::Running).await;
}

async fn a_domain_that_no_host_can_take_stays_with_why_and_the_rest_moves(libvirt: PathBuf) {
    const ONLY_HERE: &str = "/run/only-here.iso";
    let medium = format!(
        "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='{ONLY_HERE}'/>\
         <target dev='sda' bus='sata'/><readonly/></disk>"
    );
    let xml = guest::idle("web").replace("<memballoon", &format!("{medium}<memballoon"));
    let pair = Pair::with(&libvirt, &xml, &format!("truncate -s 1M {ONLY_HERE}")).await;
    with_own(&pair.a).await;
    pair.a.host.define(&guest::idle("db"));
    pair.a.host.virsh(&["start", "db"]);
    let domains = [("web", VmState::Running), ("db", VmState::Running)];
    knows_domains(&pair.a, &domains).await;

    // Before anything starts.
    let planned = PlanRequest { request: drain() };
    let planned = pair.a.agent().client.plan(&planned).await.unwrap();
    let words = text::plan(&planned.plan);
    for said in [
        "(libvirt's \"web\") on a",
        &format!("b: {ONLY_HERE} is not there"),
        "(libvirt's \"db\"): a -> b",
    ] {
        assert!(words.contains(said), "no {said:?} in {words}");
    }
    assert_eq!(planned.plan.steps.len(), 2, "{words}");

    let id = begun(&pair, RunRequest::of(drain())).await;
    let drained = ended(&pair, id).await;
    assert_eq!(drained.result, Some(RunResult::Partial), "{drained:#?}");
    assert_eq!(states(&drained), [MoveState::Moved; 2]);
    let cause = drained.cause.unwrap();
    assert!(cause.contains("still on a"), "{cause}");
    let here = [("web", Some(DomainState::Running)), ("db", None)];
    stand(&pair.a, here).await;
    let there = [("web", None), ("db", Some(DomainState::Running))];
    stand(&pair.b, there).await;
    let own = pair.b.agent();
    own.vm_when(OWN, |vm| vm.state == VmState::Running).await;
}

async fn a_run_that_moves_a_domain_goes_on_when_its_coordinator_was_killed(libvirt: PathBuf) {
    let Some(mut pair) = Pair::busy(&libvirt).await else {
        return;
    };
    pair.slow().await;
    let id = begun(&pair, RunRequest::of(drain())).await;
    let carries = |view: &RunView| {
        let mut moves = view.moves.iter();
        moves.any(|step| step.live.is_some_and(|live| live.transferred.0 > 0))
    };
    let before = when(&pair, id, carries).await;
    pair.a.kill_agent();
    pair.a.start_agent().await;
    pair.unlimited().await;
    let drained = ended(&pair, id).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(states(&drained), [MoveState::Moved]);
    assert_eq!(drained.moves[0].migration, before.moves[0].migration);
    assert_eq!(pair.a.state().await, None);
    assert_eq!(pair.b.state().await, Some(DomainState::Running));
}

/// As many as a variable says, or else so many.
fn asked_for(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Of each domain its id, its name, and whether it runs or stands still.
type Seen = BTreeSet<(String, String, bool)>;

async fn seen_by_libvirt(side: &Side) -> Seen {
    let domains = side.libvirt.domains().await.unwrap();
    assert!(domains.untold.is_empty(), "{:?}", domains.untold);
    let seen = domains.told.into_iter().map(|domain| {
        let runs = domain.state == DomainState::Running;
        assert!(runs || domain.state == DomainState::Paused, "{domain:?}");
        (domain.uuid.to_string(), domain.name, runs)
    });
    seen.collect()
}

async fn seen_by_the_agent(side: &Side) -> Seen {
    let vms = side.agent().client.vms().await.unwrap().into_iter();
    let seen = vms.map(|vm| (vm.uuid.unwrap(), vm.name, vm.state == VmState::Running));
    seen.collect()
}

/// Both views of both hosts: all domains on one, none on the other. Agents hear of what happens a moment later.
async fn all_are_on(full: &Side, all: &Seen, empty: &Side) {
    for (side, wanted) in [(full, all), (empty, &Seen::new())] {
        assert_eq!(&seen_by_libvirt(side).await, wanted);
        assert_eq!(side.host.qemus().len(), wanted.len());
        until("the agent sees what libvirt does", async || {
            seen_by_the_agent(side).await == *wanted
        })
        .await;
    }
}

async fn domains_go_and_come_back_again_and_again_and_both_views_of_them_are_the_same(
    libvirt: PathBuf,
) {
    let (domains, rounds) = (
        asked_for("DROVER_DOMAINS", DOMAINS),
        asked_for("DROVER_ROUNDS", ROUNDS),
    );
    let pair = Pair::idle(&libvirt).await;
    for number in 1..domains {
        let name = format!("Käfer {number}");
        pair.a.host.define(&guest::idle(&name));
        pair.a.host.virsh(&["start", &name]);
        if number % 2 == 1 {
            pair.a.host.virsh(&["suspend", &name]);
        }
    }
    let all = seen_by_libvirt(&pair.a).await;
    assert_eq!(all.len(), domains);
    all_are_on(&pair.a, &all, &pair.b).await;

    for round in 1..=rounds {
        let begun_at = Instant::now();
        for (request, from, to) in [
            (RunRequest::of(drain()), &pair.a, &pair.b),
            (resume(), &pair.b, &pair.a),
        ] {
            let id = begun(&pair, request).await;
            let run = ended(&pair, id).await;
            assert_eq!(run.result, Some(RunResult::Completed), "{run:#?}");
            assert_eq!(states(&run), vec![MoveState::Moved; domains]);
            all_are_on(to, &all, from).await;
        }
        let took = begun_at.elapsed().as_secs_f64();
        println!("round {round}: {domains} domains there and back in {took:.1} s");
    }
}
