//! What goes wrong, or is unusual, while a guest's bytes are reduced, between real QEMUs: it arrives whole, or stays whole.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

#[path = "../../../crates/hypervisor/tests/common/huge.rs"]
mod huge;

mod hosts;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use drover_api::{LimitScope, MigrationPhase, MigrationView};
use drover_types::{AtDeadline, Convergence, MigrationId, Throttle};
use hosts::reduced::{begun, begun_by, checkpoints_when, holders};
use hosts::reduced::{moved, stayed, with_checkpoints};
use hosts::{A, B, FAST, Hosts, PATIENCE, kill, limit, set_word, until};
use huge::HugePages;

const PAGE: u64 = 4096;
/// With nonce and tag.
const SEALED: u64 = PAGE + 28;

/// Stored pages that a session referred to.
fn referred(view: &MigrationView) -> u64 {
    view.reduction.as_ref().unwrap().pages.stored
}

/// More than a guest has twice by itself.
const MANY: u64 = 6000;
/// Less than if pages were known that it brought before.
const FEW: u64 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_restarted_between_guests_refers_to_nothing_that_was_told_before() {
    let Some(mut hosts) = Hosts::with_guest("faultrestart", FAST).await else {
        return;
    };
    moved(&mut hosts, A, "zstd:1").await;
    moved(&mut hosts, B, "zstd:1").await;
    // Relays have ended, and only the agents hold what guests share.
    hosts.no_relay_is_left().await;
    for host in [A, B] {
        assert_eq!(holders(&hosts, host).await.len(), 1);
    }
    hosts.kill_agent(A).await;
    assert_eq!(holders(&hosts, A).await, []);
    hosts.start_agent(A).await;
    // The source is another one, the destination has what it had.
    let [left, _] = moved(&mut hosts, A, "zstd:1").await;
    assert!(referred(&left) > MANY, "{left:#?}");
    // The destination is another one.
    let [left, arrived] = moved(&mut hosts, B, "zstd:1").await;
    assert!(referred(&left) < FEW, "{left:#?}");
    assert!(arrived.shared_pages.unwrap().added > MANY);
}

/// Changes what the agent of a host holds for arriving guests: one byte of each page.
async fn damage_shared_pages(hosts: &Hosts, host: usize) {
    let holders = holders(hosts, host).await;
    let [(_, file)] = &holders[..] else {
        panic!("{holders:?}");
    };
    damage(file, PAGE);
}

/// Changes one byte in the middle of each page of a file, which takes so many bytes there.
fn damage(file: &Path, each: u64) {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from(u32::from_be_bytes(bytes))
    };
    // As `drover-pagestore` lays them out: all places are at the end, of which so many are taken.
    let (places, taken) = (number(16), number(64));
    let begin = file.metadata().unwrap().len() - places * each;
    for number in 0..taken {
        let at = begin + number * each + each / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

/// What was told while a guest was moved.
async fn events(hosts: &Hosts, host: usize, id: MigrationId) -> String {
    let events = hosts.client(host).events(id).await.unwrap();
    format!("{events:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_pages_that_were_damaged_cost_one_migration_and_no_byte_of_the_guest() {
    let Some(mut hosts) = Hosts::with_guest("faultshared", FAST).await else {
        return;
    };
    moved(&mut hosts, A, "zstd:1").await;
    moved(&mut hosts, B, "zstd:1").await;
    damage_shared_pages(&hosts, B).await;
    let [left, arrived] = stayed(&mut hosts, A, "zstd:1").await;
    let told = events(&hosts, B, left.id).await;
    let why = "it gives other bytes than the source had";
    assert!(told.contains(why), "{told}\n{arrived:#?}");
    let [left, _] = moved(&mut hosts, A, "zstd:1").await;
    assert!(referred(&left) < FEW, "{left:#?}");
}

/// Two hosts of which only the first keeps checkpoints, with the guest on the second one.
async fn with_checkpoint(test: &str) -> Option<Hosts> {
    let mut hosts = with_checkpoints(test, FAST).await?;
    leaves(&mut hosts).await;
    Some(hosts)
}

/// The guest leaves the first host, and its pages are there.
async fn leaves(hosts: &mut Hosts) {
    moved(hosts, A, "zstd:1").await;
    checkpoints_when(hosts, A, |kept| kept.checkpoints.len() == 1).await;
}

/// The pages that the first host keeps.
fn pages(hosts: &Hosts) -> PathBuf {
    hosts.host(A).state().join("checkpoints/guest.pages")
}

/// Why a chunk is not used that refers to a page of a checkpoint which was damaged.
const DAMAGED: &str = "what is kept of the guest for its return cannot be read as it was written";

/// The return fails once for what was kept, and then the guest comes without it.
async fn returns_at_the_second_try(hosts: &mut Hosts) {
    let [left, arrived] = stayed(hosts, B, "zstd:1").await;
    let told = events(hosts, A, left.id).await;
    assert!(told.contains(DAMAGED), "{told}\n{arrived:#?}");
    checkpoints_when(hosts, A, |kept| kept.checkpoints.is_empty()).await;
    let [left, _] = moved(hosts, B, "zstd:1").await;
    assert!(referred(&left) < FEW, "{left:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_was_damaged_costs_one_migration_and_no_byte_of_the_guest() {
    let Some(mut hosts) = with_checkpoint("faultdamaged").await else {
        return;
    };
    damage(&pages(&hosts), SEALED);
    returns_at_the_second_try(&mut hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_was_cut_short_costs_one_migration_and_one_that_was_removed_none() {
    let Some(mut hosts) = with_checkpoint("faultcut").await else {
        return;
    };
    fs::remove_file(pages(&hosts)).unwrap();
    let [left, _] = moved(&mut hosts, B, "zstd:1").await;
    let unused = |note: &String| note.contains("the checkpoint of it on a is not used");
    assert!(left.notes.iter().any(unused), "{left:#?}");
    assert!(referred(&left) < FEW, "{left:#?}");

    leaves(&mut hosts).await;
    let file = File::options().write(true).open(pages(&hosts)).unwrap();
    // Headers and digests stay, of the pages nearly nothing.
    let length = file.metadata().unwrap().len();
    file.set_len(length / 64).unwrap();
    returns_at_the_second_try(&mut hosts).await;
}

/// So slow that most pages of the guest follow it, though they are referred to in a few bytes each.
const TRICKLE: Option<&str> = Some("2mbit");

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_damaged_while_pages_follow_costs_their_session_and_no_guest() {
    let Some(mut hosts) = with_checkpoint("faultfill").await else {
        return;
    };
    limit(&hosts, B, LimitScope::Host, TRICKLE).await;
    let convergence = Convergence {
        throttle: Some(Throttle::Off),
        deadline_s: Some(1.try_into().unwrap()),
        at_deadline: Some(AtDeadline::Postcopy),
        ..Convergence::default()
    };
    let id = begun_by(&mut hosts, B, "pages", convergence).await;
    let serves = |phase: MigrationPhase| phase == MigrationPhase::Serving || phase.has_ended();
    let view = hosts.phase_when(B, id, PATIENCE, serves).await;
    assert_eq!(view.phase, MigrationPhase::Serving, "{view:#?}");
    damage(&pages(&hosts), SEALED);
    limit(&hosts, B, LimitScope::Host, None).await;

    let left = hosts.ended(B, id).await;
    assert_eq!(left.phase, MigrationPhase::Completed, "{left:#?}");
    hosts.guest_runs_only_on(A).await;
    let reopened = left.postcopy.as_ref().map(|postcopy| postcopy.reopened);
    assert!(reopened > Some(0), "{left:#?}");
    let told = events(&hosts, A, id).await;
    assert!(told.contains(DAMAGED), "{told}");
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.is_empty()).await;
    hosts.no_relay_is_left().await;
}

/// Longer than an agent takes to come back on a busy machine.
const LONG: i64 = 60;

/// Slow enough for the guest's own writes to keep it moving until that is lifted.
const CRAWL: Option<&str> = Some("8mbit");

/// Begins to move the guest, and waits until memory is being carried.
async fn midway(hosts: &mut Hosts, from: usize) -> MigrationId {
    limit(hosts, from, LimitScope::Host, CRAWL).await;
    let id = begun(hosts, from, "zstd:1").await;
    hosts.midway(from, id).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_killed_while_a_guest_returns_go_on_and_its_checkpoint_is_used_once() {
    let Some(mut hosts) = Hosts::new("faultagents", FAST).await else {
        return;
    };
    for host in [A, B] {
        hosts.configure(host, |config| {
            set_word(config, "checkpoints", "size", "1 GiB");
            let migration = config["migration"].as_table_mut().unwrap();
            migration.insert("outage_limit_s".into(), LONG.into());
        });
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    leaves(&mut hosts).await;
    let id = midway(&mut hosts, B).await;
    for host in [A, B] {
        hosts.kill_agent(host).await;
    }
    for host in [A, B] {
        hosts.start_agent(host).await;
    }
    limit(&hosts, B, LimitScope::Host, None).await;
    let left = hosts.ended(B, id).await;
    assert_eq!(left.phase, MigrationPhase::Completed, "{left:#?}");
    hosts.guest_runs_only_on(A).await;
    assert!(referred(&left) > MANY, "{left:#?}");
    let reduction = left.reduction.unwrap();
    assert!(reduction.opaque.is_empty(), "{reduction:#?}");
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.is_empty()).await;
    // Its own agent ended while it left.
    checkpoints_when(&hosts, B, |kept| kept.taken.0 == 0).await;
}

/// Begins to move the guest, and is told to leave it before it has arrived.
async fn cancelled(hosts: &mut Hosts, from: usize) {
    let id = midway(hosts, from).await;
    hosts.client(from).cancel(id).await.unwrap();
    let left = hosts.ended(from, id).await;
    assert_eq!(left.phase, MigrationPhase::Cancelled, "{left:#?}");
    let there = hosts.ended(1 - from, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    hosts.guest_runs_only_on(from).await;
    hosts.no_relay_is_left().await;
    limit(hosts, from, LimitScope::Host, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_cancelled_leaves_what_is_stored_to_the_next_one() {
    let Some(mut hosts) = Hosts::new("faultcancel", FAST).await else {
        return;
    };
    hosts.configure(A, |config| {
        set_word(config, "checkpoints", "size", "1 GiB");
    });
    for host in [A, B] {
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    leaves(&mut hosts).await;

    cancelled(&mut hosts, B).await;
    let [_, returned] = moved(&mut hosts, B, "zstd:1").await;
    let found = returned.shared_pages.unwrap().found_in_checkpoint;
    assert!(found > MANY, "{found}");
    checkpoints_when(&hosts, A, |kept| kept.checkpoints.is_empty()).await;

    // What guests share there, too.
    cancelled(&mut hosts, A).await;
    let [_, arrived] = moved(&mut hosts, A, "zstd:1").await;
    let found = arrived.shared_pages.unwrap().found;
    assert!(found > MANY, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_while_it_reduces_costs_only_the_migration() {
    let Some(mut hosts) = Hosts::with_guest("faultrelay", FAST).await else {
        return;
    };
    for host in [A, B] {
        let id = midway(&mut hosts, A).await;
        kill(hosts.relays(host)[0]);
        let view = hosts.ended(A, id).await;
        assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
        let there = hosts.ended(B, id).await;
        assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
        hosts.guest_runs_only_on(A).await;
        hosts.no_relay_is_left().await;
    }
    limit(&hosts, A, LimitScope::Host, None).await;
    let [left, _] = moved(&mut hosts, A, "zstd:1").await;
    // What a relay had stored that died is given to no other.
    assert!(referred(&left) < FEW, "{left:#?}");
}

/// Waits until the source has told this of a migration that goes on.
async fn is_told(hosts: &Hosts, id: MigrationId, what: &str) {
    until(PATIENCE, async || {
        let view = hosts.client(A).migration(id).await.unwrap();
        assert!(!view.phase.has_ended(), "{view:#?}");
        let told = view.notes.iter().any(|note| note.contains(what));
        told.then_some(()).ok_or_else(|| format!("{view:#?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_that_go_and_come_back_while_bytes_are_reduced_cost_no_byte() {
    let Some(mut hosts) = Hosts::with_outage_limit("faultnics", FAST, LONG).await else {
        return;
    };
    let id = midway(&mut hosts, A).await;
    for (nics, gone, back) in [
        (
            &[1][..],
            "nic1 is down",
            "path 1 (nic1 > nic1) has lanes again",
        ),
        (
            &[0, 1][..],
            "no path to the other host",
            "a path to the other host again",
        ),
    ] {
        for nic in nics {
            hosts.set_nic(A, *nic, "down").await;
        }
        is_told(&hosts, id, gone).await;
        for nic in nics {
            hosts.set_nic(A, *nic, "up").await;
        }
        is_told(&hosts, id, back).await;
    }
    limit(&hosts, A, LimitScope::Host, None).await;
    let left = hosts.ended(A, id).await;
    assert_eq!(left.phase, MigrationPhase::Completed, "{left:#?}");
    hosts.guest_runs_only_on(B).await;
    let reduction = left.reduction.unwrap();
    assert!(reduction.opaque.is_empty(), "{reduction:#?}");
    assert!(reduction.pages.ordinary > MANY / 2, "{reduction:#?}");
    assert_eq!(reduction.passed_bytes.0, 0, "{reduction:#?}");
}

/// Memory that both relays have touched at most, as long as they run.
async fn relays_touch(hosts: &Hosts, from: usize, id: MigrationId) -> [u64; 2] {
    let mut most = [0; 2];
    until(PATIENCE, async || {
        for host in [A, B] {
            for relay in hosts.relays(host) {
                let status = fs::read_to_string(format!("/proc/{relay}/status"));
                most[host] = most[host].max(peak(&status.unwrap_or_default()));
            }
        }
        let view = hosts.client(from).migration(id).await.unwrap();
        view.phase
            .has_ended()
            .then_some(())
            .ok_or_else(|| format!("{:?}", view.phase))
    })
    .await;
    most
}

/// `VmHWM` (`proc_pid_status(5)`), in bytes.
fn peak(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_least_memory_at_one_end_both_reduce_within_it_and_qemus_own_compression_is_off() {
    const LEAST: u64 = 16 << 20;
    /// With the windows of two lines of 1 Gbit/s (docs/SEMANTICS.md, Memory of a migration).
    const PROMISED: u64 = (64 << 20) + (12 << 20) + LEAST;
    let Some(mut hosts) = Hosts::new("faultmemory", FAST).await else {
        return;
    };
    for (host, memory) in [(A, "16 MiB"), (B, "1 GiB")] {
        hosts.configure(host, |config| {
            set_word(config, "migration", "reduction_memory", memory);
        });
        hosts.start_agent(host).await;
    }
    let mut definition = hosts.definition().await;
    let compresses = ["-global", "migration.multifd-compression=zstd"];
    definition.args.extend(compresses.map(str::to_owned));
    hosts.boot_from(definition).await;
    for from in [A, B] {
        let id = begun(&mut hosts, from, "zstd:1").await;
        let touched = relays_touch(&hosts, from, id).await;
        let view = hosts.ended(from, id).await;
        assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
        hosts.guest_runs_only_on(1 - from).await;
        let reduction = view.reduction.clone().unwrap();
        assert!(reduction.kept_most.0 < LEAST, "{reduction:#?}");
        assert!(reduction.opaque.is_empty(), "{reduction:#?}");
        assert!(reduction.pages.ordinary > 0, "{reduction:#?}");
        for peak in touched {
            assert!((1 << 20..PROMISED).contains(&peak), "{touched:?}");
        }
    }
    hosts.no_relay_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_in_huge_pages_is_reduced_there_and_back() {
    // For both ends of one guest, in pages of 2 MiB, and some more.
    let Some(_pages) = HugePages::more(2 * 128 + 8) else {
        return;
    };
    let Some(mut hosts) = Hosts::with_agents("faulthuge", FAST).await else {
        return;
    };
    let mut definition = hosts.definition().await;
    let memory = definition.memory.0;
    let backend = format!("memory-backend-memfd,id=huge,size={memory},hugetlb=on,hugetlbsize=2M");
    let args = ["-object", &backend].map(str::to_owned);
    definition.args.extend(args);
    let machine = definition.machine.take().unwrap();
    definition.machine = Some(format!("{machine},memory-backend=huge"));
    hosts.boot_from(definition).await;
    for from in [A, B] {
        let [left, _] = moved(&mut hosts, from, "zstd:1").await;
        let reduction = left.reduction.unwrap();
        assert!(reduction.opaque.is_empty(), "{reduction:#?}");
        assert!(reduction.wire_bytes.0 * 5 < reduction.raw_bytes.0 * 4);
        let qemu = hosts.qemus(1 - from).await[0];
        let status = fs::read_to_string(format!("/proc/{qemu}/status")).unwrap();
        let huge = status
            .lines()
            .find(|line| line.starts_with("HugetlbPages:"));
        assert!(
            huge.is_some_and(|line| !line.ends_with(" 0 kB")),
            "{huge:?}"
        );
    }
}
