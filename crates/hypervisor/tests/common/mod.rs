//! Guests on real QEMU for the tests: small, without a kernel, killed when the test is over.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod between;
pub mod fake;
pub mod huge;
pub mod pair;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_hypervisor::{
    Guest, Machine, MachineEvent, MachineEvents, MigrationAddress, MigrationStatus, Movable,
    ProcessId, QemuLauncher, QemuMachine, RunState, Start,
};
use drover_types::Bytes;
use tempfile::TempDir;

/// For what takes a second on an idle machine; test machines are shared and slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where random bytes are put in a guest's memory, above what its firmware writes to.
pub const CONTENT_AT: u64 = 16 << 20;

/// The QEMU that a test is about.
#[derive(Debug, Clone)]
pub struct Qemu(pub PathBuf);

impl Qemu {
    /// The one in `DROVER_QEMU`, or Debian's.
    pub fn installed() -> Option<Self> {
        let path = std::env::var_os("DROVER_QEMU");
        Self::there(path.map_or("/usr/bin/qemu-system-x86_64".into(), PathBuf::from))
    }

    /// A 7.2, which Debian 12 has: the oldest that is promised to work.
    pub fn oldest() -> Option<Self> {
        let Some(path) = std::env::var_os("DROVER_QEMU_7_2") else {
            eprintln!("skipped, because DROVER_QEMU_7_2 does not name a QEMU 7.2");
            return None;
        };
        Self::there(path.into())
    }

    fn there(path: PathBuf) -> Option<Self> {
        if path.is_file() {
            return Some(Self(path));
        }
        eprintln!("skipped, because there is no {}", path.display());
        None
    }
}

/// Runs a test, an `async fn(Qemu)`, on each QEMU as a test of its own.
#[macro_export]
macro_rules! on_each_qemu {
    ($($name:ident)*) => {$(
        mod $name {
            use $crate::common::Qemu;

            #[tokio::test]
            async fn on_the_installed_qemu() {
                if let Some(qemu) = Qemu::installed() {
                    super::$name(qemu).await;
                }
            }

            #[tokio::test]
            async fn on_qemu_7_2() {
                if let Some(qemu) = Qemu::oldest() {
                    super::$name(qemu).await;
                }
            }
        }
    )*};
}

/// A place for guests.
pub struct Place {
    pub dir: TempDir,
    pub launcher: QemuLauncher,
}

/// A guest that is killed when dropped.
#[derive(Debug)]
pub struct Running {
    machine: QemuMachine,
    _killed: KilledAtEnd,
}

impl Running {
    pub fn new(machine: QemuMachine) -> Self {
        let process = machine.process();
        Self {
            machine,
            _killed: KilledAtEnd(process),
        }
    }

    /// Lets go of the machine, as an agent that ends does. Its process runs on.
    pub fn let_go(self) -> KilledAtEnd {
        self._killed
    }
}

impl Deref for Running {
    type Target = QemuMachine;
    fn deref(&self) -> &QemuMachine {
        &self.machine
    }
}

/// A process that does not survive the test.
#[derive(Debug)]
pub struct KilledAtEnd(ProcessId);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        kill(self.0);
    }
}

/// `SIGKILL`, without waiting.
pub fn kill(process: ProcessId) {
    if process.is_running() {
        let pid = rustix::process::Pid::from_raw(process.pid.try_into().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            launcher: QemuLauncher::new(),
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts `guest` in a directory of this name.
    pub async fn start(&self, guest: &Guest, name: &str, start: Start) -> Running {
        Running::new(
            self.launcher
                .start(guest, &self.file(name), start)
                .await
                .unwrap(),
        )
    }

    /// Random bytes in a file: what a guest's memory can be filled with.
    pub fn content(&self, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        let source = std::fs::File::open("/dev/urandom").unwrap();
        std::io::Read::read_exact(&mut &source, &mut content).unwrap();
        std::fs::write(self.file("content"), &content).unwrap();
        content
    }

    /// A guest whose memory holds the content from [`CONTENT_AT`] on.
    pub fn filled(&self, qemu: &Qemu) -> Guest {
        let mut guest = guest(qemu);
        let file = self.file("content");
        let loader = format!(
            "loader,file={},addr={CONTENT_AT},force-raw=on",
            file.display()
        );
        guest.args.extend(["-device".to_owned(), loader]);
        guest
    }

    /// The part of a guest's memory that was filled.
    pub async fn memory(&self, machine: &QemuMachine, bytes: usize) -> Vec<u8> {
        let file = self.file("memory");
        let arguments = serde_json::json!({"val": CONTENT_AT, "size": bytes, "filename": file});
        machine.qmp().execute("pmemsave", arguments).await.unwrap();
        std::fs::read(&file).unwrap()
    }

    /// The socket that migrations go over.
    pub fn socket(&self) -> MigrationAddress {
        MigrationAddress::Unix(self.file("migration.sock"))
    }
}

/// A guest that runs its firmware and then waits for ever.
pub fn guest(qemu: &Qemu) -> Guest {
    Guest {
        name: "guest".parse().unwrap(),
        memory: Bytes(64 << 20),
        vcpus: 1,
        binary: qemu.0.clone(),
        machine: Some("q35,accel=tcg".into()),
        args: vec!["-nodefaults".into()],
    }
}

/// Waits for an event.
pub async fn event(
    events: &mut MachineEvents,
    wanted: impl Fn(&MachineEvent) -> bool,
) -> MachineEvent {
    let mut seen = Vec::new();
    let waiting = async {
        loop {
            let event = events.next().await;
            if wanted(&event) {
                return event;
            }
            assert!(
                !matches!(event, MachineEvent::Disconnected { .. }),
                "{event:?} {seen:?}"
            );
            seen.push(event);
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(event) => event,
        Err(_) => panic!("not seen, but {seen:?}"),
    }
}

/// Waits until a migration's status is `wanted`.
pub async fn status(events: &mut MachineEvents, wanted: MigrationStatus) -> MachineEvent {
    let is = |event: &MachineEvent| matches!(event, MachineEvent::MigrationStatus { status, .. } if *status == wanted);
    event(events, is).await
}

/// Waits until the guest is in one of these states, which no event announces.
pub async fn state(machine: &QemuMachine, wanted: &[RunState]) -> RunState {
    let waiting = async {
        loop {
            let state = machine.state().await.unwrap();
            if wanted.contains(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(state) => state,
        Err(_) => panic!("not {wanted:?} but {:?}", machine.state().await),
    }
}

/// A file that can be executed.
pub fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
