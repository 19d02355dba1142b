//! What migrations do with guests of the registry, on a real QEMU.

use std::path::{Path, PathBuf};

use drover_api::{ErrorCode, StartRequest, VmDefinition, VmState, VmView};
use drover_hypervisor::{MachineEvent, QemuLauncher, RunState};
use tempfile::TempDir;

use super::*;

mod suspended;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

fn has_qemu() -> bool {
    let there = Path::new(QEMU).exists();
    if !there {
        eprintln!("skipped, because there is no {QEMU}");
    }
    there
}

/// A host without an agent: its directories. What runs in them ends with it.
struct Host(TempDir);

/// The registry of one agent's life.
struct Agent {
    registry: Registry,
    recovered: Vec<Recovered>,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("dr")
            .tempdir_in("/tmp")
            .unwrap();
        for name in ["vms", "run/vms", "state/departed"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The life of one agent; nothing of it goes on afterwards but QEMU.
    fn life<T>(&self, of: impl AsyncFnOnce(Agent) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let done = runtime.block_on(async {
            let (registry, recovered) = open(self.0.path()).await;
            of(Agent {
                registry,
                recovered,
            })
            .await
        });
        runtime.shutdown_timeout(crate::limits::RECOVER);
        done
    }

    async fn start(&self, agent: &Agent) -> u32 {
        let text = toml::to_string(&definition()).unwrap() + "# the operator's\n";
        std::fs::write(self.path("vms/web.toml"), text).unwrap();
        agent.starts().await.unwrap().pid.unwrap()
    }
}

impl Agent {
    async fn starts(&self) -> Result<VmView, Refusal> {
        self.registry.start(&web(), StartRequest::default()).await
    }

    async fn state(&self) -> VmState {
        self.registry.get(&web()).await.unwrap().state
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let guest = self.path("run/vms/web");
        if let Some(process) = QemuLauncher::new().find(&guest) {
            let pid = i32::try_from(process.pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            let _ = rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL);
        }
    }
}

async fn open(at: &Path) -> (Registry, Vec<Recovered>) {
    let at = at.display();
    let text = format!(
        "host = \"a\"\ndefinitions = \"{at}/vms\"\nstate = \"{at}/state\"\nruntime = \"{at}/run\"\n\
         memory_headroom = 0\nqemu.binaries = [\"{QEMU}\", \"/nowhere/qemu\"]"
    );
    let config = Config::parse(&text, Path::new("droverd.toml")).unwrap();
    let hypervisor = Arc::new(QemuLauncher::new());
    Registry::open(Arc::new(config), hypervisor).await.unwrap()
}

fn web() -> VmName {
    "web".parse().unwrap()
}

fn definition() -> VmDefinition {
    VmDefinition {
        name: web(),
        memory: drover_types::Bytes(64 << 20),
        vcpus: 1,
        qemu: QEMU.into(),
        machine: Some("q35,accel=tcg".to_owned()),
        args: vec!["-nodefaults".to_owned()],
        convergence: drover_types::Convergence::default(),
        checkpoint: true,
        policy: drover_plan::policy::VmPolicy::default(),
    }
}

fn migration() -> MigrationId {
    MigrationId(uuid::Uuid::from_u128(7))
}

fn to_b() -> Purpose {
    Purpose::Outgoing {
        migration: migration(),
        destination: "b".parse().unwrap(),
    }
}

fn from_b() -> Purpose {
    Purpose::Incoming {
        migration: migration(),
        source: "b".parse().unwrap(),
    }
}

fn outgoing() -> Role {
    Role::Outgoing {
        migration: migration(),
        destination: "b".parse().unwrap(),
    }
}

#[test]
fn a_guest_that_was_handed_off_never_starts_here_again() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    let pid = host.life(async |agent| {
        let pid = host.start(&agent).await;
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        leaving.set_role(outgoing()).unwrap();
        let refused = agent
            .registry
            .stop(&web(), &Default::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::MigrationUnderWay);

        leaving.hand_off().unwrap();
        leaving.hand_off().unwrap();
        assert_eq!(agent.state().await, VmState::HandingOff);
        assert!(!host.path("vms/web.toml").exists());
        let departed = std::fs::read_to_string(host.path("state/departed/web.toml")).unwrap();
        assert!(
            departed.ends_with("# the operator's\n"),
            "as it was: {departed}"
        );
        // Also by an agent that knows nothing of it but the files.
        drop(leaving);
        let refused = agent.starts().await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::VmHandedOff, "{refused}");
        pid
    });
    host.life(async |mut agent| {
        let recovered = agent.recovered.remove(0);
        assert!(matches!(recovered.role, Role::HandedOff { .. }));
        assert!(recovered.reservation.machine().is_some());
        recovered.reservation.release().await;
        drop(recovered);
        assert_eq!(drover_hypervisor::ProcessId::of(pid), None);
        assert!(!host.path("run/vms/web").exists());
        let refused = agent.starts().await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::NoSuchVm);
        assert!(refused.message.contains("has left a"), "{refused}");
        assert_eq!(agent.registry.list().await.unwrap(), vec![]);
    });
}

#[test]
fn a_guest_whose_definition_vanished_leaves_it_behind_all_the_same() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        std::fs::remove_file(host.path("vms/web.toml")).unwrap();
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        leaving.hand_off().unwrap();
        let departed = std::fs::read_to_string(host.path("state/departed/web.toml")).unwrap();
        assert!(departed.contains("web left this host for b"), "{departed}");
        assert_eq!(
            toml::from_str::<VmDefinition>(&departed).unwrap(),
            definition()
        );
        leaving.release().await;
    });
}

#[test]
fn a_travelling_definition_has_a_concrete_machine_type() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        let travelling = leaving.travelling_definition().await.unwrap();
        let machine = travelling.machine.clone().unwrap();
        assert!(
            machine.starts_with("pc-q35-") && machine.ends_with(",accel=tcg"),
            "{machine}"
        );
        assert_eq!(
            VmDefinition {
                machine: definition().machine,
                ..travelling
            },
            definition()
        );
    });
}

#[test]
fn a_policy_counts_at_once_and_travels_with_the_guest() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let mut wanted = definition();
        wanted.policy = serde_json::from_str(r#"{"pinned":{"hosts":["a"]}}"#).unwrap();
        let text = toml::to_string(&wanted).unwrap();
        std::fs::write(host.path("vms/web.toml"), text).unwrap();
        let shown = agent.registry.get(&web()).await.unwrap();
        assert_eq!(shown.problem, None, "QEMU has nothing to do with it");
        let (known, _) = agent.registry.known().await.unwrap();
        let policy = |known: &[Known]| known[0].definition.as_ref().unwrap().policy.clone();
        assert_eq!(policy(&known), wanted.policy);
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        let travelling = leaving.travelling_definition().await.unwrap();
        assert_eq!(travelling.policy, wanted.policy);
        // A file that cannot be read takes nothing away.
        std::fs::write(host.path("vms/web.toml"), "name = 7").unwrap();
        let travelling = leaving.travelling_definition().await.unwrap();
        assert_eq!(travelling.policy, definition().policy);
    });
}

#[test]
fn what_plans_must_know_covers_guests_that_run_stand_by_and_cannot_be_read() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let idle = "name = \"idle\"\nmemory = \"1GiB\"";
        std::fs::write(host.path("vms/idle.toml"), idle).unwrap();
        std::fs::write(host.path("vms/bad.toml"), "memory = 7").unwrap();
        let (known, unusable) = agent.registry.known().await.unwrap();
        let seen = known
            .iter()
            .map(|guest| (guest.name.as_str(), guest.resident.is_some()));
        assert_eq!(seen.collect::<Vec<_>>(), [("web", true), ("idle", false)]);
        assert!(known[0].resident.unwrap().0 > 0 && known[0].machine.is_some());
        assert!(unusable[0].contains("bad.toml"), "{unusable:?}");
        let sampled = |agent: &Agent| agent.registry.sampled().len();
        assert_eq!(sampled(&agent), 1);
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        assert_eq!(
            sampled(&agent),
            0,
            "one that is about to leave is left alone"
        );
        drop(leaving);
        assert_eq!(sampled(&agent), 1);
    });
}

#[test]
fn a_guest_that_arrives_waits_and_leaves_nothing_when_it_is_discarded() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        let arriving = agent.registry.reserve(&web(), from_b()).unwrap();
        assert_eq!(
            agent.state().await,
            VmState::Incoming,
            "before QEMU is there as well"
        );
        let machine = arriving.start_incoming(definition()).await.unwrap();
        assert_eq!(machine.state().await.unwrap(), RunState::InMigrate);
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!(
            (view.state, view.migration),
            (VmState::Incoming, Some(migration()))
        );
        for refused in [
            agent.starts().await.unwrap_err(),
            agent
                .registry
                .reserve(&web(), from_b())
                .map(drop)
                .unwrap_err(),
        ] {
            assert_eq!(refused.code, ErrorCode::MigrationUnderWay, "{refused}");
        }
        arriving.release().await;
        drop(arriving);
        assert!(machine.exit().is_some());
        assert!(!host.path("run/vms/web").exists());
        assert_eq!(agent.registry.list().await.unwrap(), vec![]);
        agent.registry.reserve(&web(), from_b()).map(drop).unwrap();
    });
}

#[test]
fn an_arriving_guest_is_found_again_and_stays_reserved() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    let process = host.life(async |agent| {
        let arriving = agent.registry.reserve(&web(), from_b()).unwrap();
        let machine = arriving.start_incoming(definition()).await.unwrap();
        machine.process()
    });
    host.life(async |mut agent| {
        let recovered = agent.recovered.remove(0);
        assert!(matches!(recovered.role, Role::Incoming { .. }));
        let again = recovered.reservation.machine().unwrap();
        assert_eq!(again.process(), process);
        let refused = agent.starts().await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::MigrationUnderWay);
        recovered.reservation.release().await;
        assert!(!host.path("run/vms/web").exists());
    });
}

#[test]
fn an_adopted_guest_is_this_hosts_own() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        std::fs::write(host.path("state/departed/web.toml"), "# of its last visit").unwrap();
        let arriving = agent.registry.reserve(&web(), from_b()).unwrap();
        arriving.start_incoming(definition()).await.unwrap();
        // Put there while it was on its way.
        std::fs::write(host.path("vms/web.toml"), "# the operator's").unwrap();
        arriving.adopt(None).unwrap();
        arriving.adopt(None).unwrap();
        assert_eq!(arriving.role(), Some(Role::Running));
        drop(arriving);
        let text = std::fs::read_to_string(host.path("vms/web.toml")).unwrap();
        assert!(text.starts_with("# web came from b."), "{text}");
        assert_eq!(toml::from_str::<VmDefinition>(&text).unwrap(), definition());
        let kept = std::fs::read_to_string(host.path("vms/web.toml.before-arrival")).unwrap();
        assert_eq!(kept, "# the operator's");
        assert!(!host.path("state/departed/web.toml").exists());
    });
    host.life(async |agent| {
        assert!(agent.recovered.is_empty());
        assert_eq!(agent.registry.get(&web()).await.unwrap().problem, None);
    });
}

#[test]
fn a_guest_that_ran_and_ended_before_it_was_adopted_leaves_its_definition_here() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        let arriving = agent.registry.reserve(&web(), from_b()).unwrap();
        arriving.start_incoming(definition()).await.unwrap();
        arriving.release().await;
        assert!(arriving.adopt(None).is_err());
        arriving.adopt(Some(&definition())).unwrap();
        let text = std::fs::read_to_string(host.path("vms/web.toml")).unwrap();
        assert!(text.starts_with("# web came from b."), "{text}");
        assert_eq!(toml::from_str::<VmDefinition>(&text).unwrap(), definition());
    });
}

#[test]
fn a_guest_that_cannot_be_taken_in_is_refused_before_anything_is_made() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        let with = |change: fn(&mut VmDefinition)| {
            let mut definition = definition();
            change(&mut definition);
            definition
        };
        let cases = [
            (ErrorCode::DefinitionInvalid, with(|d| d.vcpus = 0)),
            (
                ErrorCode::QemuNotAllowed,
                with(|d| d.qemu = "/bin/sh".into()),
            ),
            (
                ErrorCode::QemuMissing,
                with(|d| d.qemu = "/nowhere/qemu".into()),
            ),
            (
                ErrorCode::MachineTypeMissing,
                with(|d| d.machine = Some("pc-q35-99.0".into())),
            ),
            (ErrorCode::NotEnoughMemory, with(|d| d.memory.0 = 60 << 40)),
            (
                ErrorCode::QemuFailed,
                with(|d| d.args = vec!["-nonsense".into()]),
            ),
        ];
        for (code, definition) in cases {
            let arriving = agent.registry.reserve(&web(), from_b()).unwrap();
            let refused = arriving
                .start_incoming(definition)
                .await
                .map(drop)
                .unwrap_err();
            assert_eq!(refused.code, code, "{refused}");
            drop(arriving);
            assert!(!host.path("run/vms/web").exists(), "{code}");
        }
        host.start(&agent).await;
        let refused = agent
            .registry
            .reserve(&web(), from_b())
            .map(drop)
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::VmExists, "{refused}");
        let force = drover_api::StopRequest {
            force: true,
            timeout_s: None,
        };
        agent.registry.stop(&web(), &force).await.unwrap();
        let refused = agent
            .registry
            .reserve(&web(), from_b())
            .map(drop)
            .unwrap_err();
        assert_eq!(
            refused.code,
            ErrorCode::VmExists,
            "defined is enough: {refused}"
        );
    });
}

#[test]
fn a_guest_that_dies_on_its_way_leaves_its_reservation_to_the_migration() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let leaving = agent.registry.reserve(&web(), to_b()).unwrap();
        leaving.set_role(outgoing()).unwrap();
        let machine = leaving.machine().unwrap();
        machine.kill().await.unwrap();
        let gone = async {
            while leaving.machine().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::limits::RECOVER, gone)
            .await
            .unwrap();
        assert_eq!(
            leaving.set_role(Role::Running).unwrap_err().code,
            ErrorCode::VmNotRunning
        );
        let refused = agent.starts().await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::MigrationUnderWay);
        drop(leaving);
        assert_eq!(agent.state().await, VmState::Failed);
        agent.starts().await.unwrap();
    });
}

/// Breaks off every connection of this process to the guest's QEMU.
fn cut_monitors(of: &Path) -> usize {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = open.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse().ok());
    let copies = numbers.filter_map(|fd| pidfd_getfd(&own, fd, PidfdGetfdFlags::empty()).ok());
    let streams = copies.map(std::os::unix::net::UnixStream::from);
    let cut = streams.filter(|stream| {
        let peer = stream.peer_addr();
        let is_it = peer.is_ok_and(|peer| peer.as_pathname().is_some_and(|at| at.starts_with(of)));
        is_it && stream.shutdown(std::net::Shutdown::Both).is_ok()
    });
    cut.count()
}

#[test]
fn a_guest_whose_monitor_breaks_off_while_it_shuts_down_is_not_killed() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        let pid = host.start(&agent).await;
        let sampled = agent.registry.sampled().remove(0);
        let mut events = sampled.machine.events();
        let within = crate::limits::AFTER_SHUTDOWN + crate::limits::MONITOR_AGAIN * 2;
        let web = web();
        let stopped = agent.registry.stop_within(&web, Some(within), std::future::pending());
        let cut = async {
            let pressed = "POWERDOWN";
            let is_it = |event: &MachineEvent| matches!(event, MachineEvent::Other { name, .. } if name == pressed);
            while !is_it(&events.next().await) {}
            assert!(cut_monitors(&host.path("run/vms/web")) > 0);
        };
        let (stopped, ()) = tokio::join!(stopped, cut);
        let refusal = stopped.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::StopTimeout, "{refusal}");
        let view = agent.registry.get(&web).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Running, Some(pid)));
    });
}
