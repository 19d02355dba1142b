//! Where the guest is, and that nothing of it is anywhere else.

use std::fs;

use drover_api::{MigrationView, StatusView, VmState, VmView};
use drover_lab::network;

use super::guest::name;
use super::{A, B, Hosts, PATIENCE, until};

impl Hosts {
    /// Processes of the guest's QEMU on a host.
    pub async fn qemus(&self, host: usize) -> Vec<u32> {
        let all = network::processes(self.host(host).namespace()).await;
        let pids = all
            .into_iter()
            .map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        pids.filter(|pid| is_live_qemu(*pid)).collect()
    }

    /// What is on a host of a guest that is not to be there: processes, files, and what its agent
    /// says.
    pub async fn left_on(&self, host: usize) -> Vec<String> {
        let place = self.host(host);
        let mut left = Vec::new();
        for pid in self.qemus(host).await {
            left.push(format!("{}: process {pid}", place.name));
        }
        let runtime = place.runtime().join("vms").join(name().as_str());
        let definition = place.definitions().join(format!("{}.toml", name()));
        for path in [runtime, definition] {
            if path.exists() {
                left.push(path.display().to_string());
            }
        }
        if self.runs_agent(host) {
            let vms = self.client(host).vms().await.unwrap();
            let shown = vms.into_iter().filter(|vm| vm.name == name().as_str());
            left.extend(shown.map(|vm| format!("{vm:?}")));
        }
        left
    }

    /// Waits until the guest runs on this host and nothing of it is on the other, as the processes,
    /// the files and both agents' status say; then has the guest verify every page.
    pub async fn guest_runs_only_on(&self, host: usize) {
        self.guest_is_only_on(host).await;
        self.guest_is_whole().await;
    }

    /// The same for a guest that has no probe in it.
    pub async fn guest_is_only_on(&self, host: usize) {
        until(PATIENCE, async || self.is_at_home(host).await).await;
    }

    /// The guest goes on, its memory is whole, and it never went back or ran twice.
    pub async fn guest_is_whole(&self) {
        let console = &self.guest.as_ref().unwrap().console;
        console.wait_sequence(3, PATIENCE).await.unwrap();
        let verified = console.verify().await.unwrap();
        assert_eq!(verified.bad, 0);
    }

    async fn is_at_home(&self, host: usize) -> Result<(), String> {
        let left = self.left_on(1 - host).await;
        if !left.is_empty() {
            return Err(format!("left: {left:#?}"));
        }
        let status = self.status(host).await;
        let vm = guest_of(&status).ok_or_else(|| format!("no guest: {status:#?}"))?;
        let as_it_should = vm.state == VmState::Running
            && vm.migration.is_none()
            && vm.problem.is_none()
            && vm.definition.as_ref().is_some_and(|path| path.exists());
        let qemus = self.qemus(host).await;
        if !as_it_should || qemus != [vm.pid.unwrap_or(0)] {
            return Err(format!("{vm:#?}, processes {qemus:?}"));
        }
        for agent in [A, B].into_iter().filter(|agent| self.runs_agent(*agent)) {
            let migrations = self.client(agent).migrations().await.unwrap();
            if let Some(open) = migrations.iter().find(|view| !view.phase.has_ended()) {
                return Err(format!("{open:#?}"));
            }
        }
        Ok(())
    }

    /// The processes of the relays on a host.
    pub fn relays(&self, host: usize) -> Vec<u32> {
        let directory = self.host(host).runtime().join("relays");
        let records = fs::read_dir(directory).unwrap().filter_map(|entry| {
            let text = fs::read_to_string(entry.unwrap().path().join("process.json")).ok()?;
            let record: serde_json::Value = serde_json::from_str(&text).unwrap();
            u32::try_from(record["pid"].as_u64()?).ok()
        });
        records.collect()
    }

    /// Waits until no relay is left on either host, neither process nor file.
    pub async fn no_relay_is_left(&self) {
        for host in [A, B] {
            let directory = self.host(host).runtime().join("relays");
            until(PATIENCE, async || {
                let left: Vec<_> = fs::read_dir(&directory).unwrap().collect();
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{left:?}"))
                }
            })
            .await;
        }
    }

    /// A host's guest, once `accept` is content with it.
    pub async fn vm_when(&self, host: usize, accept: impl Fn(&VmView) -> bool) -> VmView {
        let client = self.client(host);
        until(PATIENCE, async || match client.vm(&name()).await {
            Ok(view) if accept(&view) => Ok(view),
            other => Err(format!("{other:#?}")),
        })
        .await
    }
}

/// The interfaces of the source that carried the guest.
pub fn used(view: &MigrationView) -> Vec<&str> {
    let carried = view
        .paths
        .iter()
        .filter(|path| path.lanes.iter().any(|lane| lane.traffic.sent_bytes.0 > 0));
    carried
        .map(|path| path.path.source.interface.as_str())
        .collect()
}

/// The guest in a status.
pub fn guest_of(status: &StatusView) -> Option<&VmView> {
    status.vms.iter().find(|vm| vm.name == name().as_str())
}

fn is_live_qemu(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let lives = stat
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.starts_with(" Z"));
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let asked = |what: &[u8]| line.windows(what.len()).any(|part| part == what);
    lives && String::from_utf8_lossy(program).contains("qemu") && asked(b"-name\0guest")
}
