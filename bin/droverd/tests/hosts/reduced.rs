//! Guests whose bytes are reduced, and what hosts keep of their pages.

use std::fs;
use std::path::PathBuf;

use drover_api::{CheckpointsView, MigrateRequest, MigrationPhase, MigrationView};
use drover_lab::network;
use drover_types::{Convergence, MigrationId};

use super::{A, B, Hosts, PATIENCE, name, set_word, until};

/// Two hosts that share no pages and of which only the first keeps checkpoints, with the guest on it.
pub async fn with_checkpoints(test: &str, rate: &str) -> Option<Hosts> {
    that_keep(&[A], test, rate).await
}

/// Two hosts that share no pages and of which these keep checkpoints, with the guest on the first.
pub async fn that_keep(which: &[usize], test: &str, rate: &str) -> Option<Hosts> {
    let mut hosts = Hosts::new(test, rate).await?;
    for host in [A, B] {
        hosts.configure(host, |config| {
            set_word(config, "migration", "shared_pages_memory", "0");
            if which.contains(&host) {
                set_word(config, "checkpoints", "size", "1 GiB");
            }
        });
        hosts.start_agent(host).await;
    }
    hosts.boot().await;
    Some(hosts)
}

/// Begins to move the guest to the other host, reduced in this way.
pub async fn begun(hosts: &mut Hosts, from: usize, how: &str) -> MigrationId {
    begun_by(hosts, from, how, Convergence::default()).await
}

/// The same, and what is done where the guest writes much.
pub async fn begun_by(
    hosts: &mut Hosts,
    from: usize,
    how: &str,
    convergence: Convergence,
) -> MigrationId {
    hosts.listen_on(1 - from);
    let request = MigrateRequest {
        reduction: Some(how.parse().unwrap()),
        with_disks: false,
        convergence,
        ..hosts.request(from, None)
    };
    let asked = hosts.client(from).migrate(&name(), &request).await;
    asked.unwrap().id
}

/// Moves the guest to the other host; what both tell of it.
pub async fn moved(hosts: &mut Hosts, from: usize, how: &str) -> [MigrationView; 2] {
    moved_by(hosts, from, how, Convergence::default()).await
}

/// The same, and what is done where the guest writes much.
pub async fn moved_by(
    hosts: &mut Hosts,
    from: usize,
    how: &str,
    convergence: Convergence,
) -> [MigrationView; 2] {
    let id = begun_by(hosts, from, how, convergence).await;
    let views = [hosts.ended(from, id).await, hosts.ended(1 - from, id).await];
    assert_eq!(views[0].phase, MigrationPhase::Completed, "{views:#?}");
    hosts.guest_runs_only_on(1 - from).await;
    views
}

/// Tries to move the guest to the other host, which fails and leaves it whole where it is; what both tell of it.
pub async fn stayed(hosts: &mut Hosts, from: usize, how: &str) -> [MigrationView; 2] {
    let id = begun(hosts, from, how).await;
    let views = [hosts.ended(from, id).await, hosts.ended(1 - from, id).await];
    assert_eq!(views[0].phase, MigrationPhase::Failed, "{views:#?}");
    assert_eq!(views[1].phase, MigrationPhase::Abandoned, "{views:#?}");
    hosts.guest_runs_only_on(from).await;
    views
}

/// The checkpoints of a host, once `accept` is content with them.
pub async fn checkpoints_when(
    hosts: &Hosts,
    host: usize,
    accept: impl Fn(&CheckpointsView) -> bool,
) -> CheckpointsView {
    until(PATIENCE, async || {
        let kept = hosts.client(host).checkpoints().await.unwrap();
        if accept(&kept) {
            Ok(kept)
        } else {
            Err(format!("{kept:?}"))
        }
    })
    .await
}

/// Descriptors of memory with stored pages that processes of a host have, each as the process and its file in `/proc`.
pub async fn holders(hosts: &Hosts, host: usize) -> Vec<(u32, PathBuf)> {
    let all = network::processes(hosts.host(host).namespace()).await;
    let mut found = Vec::new();
    for pid in all {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        // A process may have ended meanwhile.
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for file in open.filter_map(|entry| Some(entry.ok()?.path())) {
            let target = fs::read_link(&file).unwrap_or_default();
            if target.to_string_lossy().starts_with("/memfd:drover-pages") {
                found.push((pid, file));
            }
        }
    }
    found
}
