//! Processes of domains: each is a QEMU that was started with the domain's id, by whichever libvirtd.
//!
//! # Invariant
//! To read what a process was started with waits for its memory, which a QEMU that hangs may keep for ever. That is done in a
//! thread of its own, of which there is one, and nobody waits for it longer than [`limits::SHOW`]. What was found is remembered
//! for as long as that process runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_hypervisor::ProcessId;
use tokio::time::timeout;
use uuid::Uuid;

use crate::limits;

/// What is known of the processes of this host's domains.
#[derive(Debug, Default)]
pub struct Processes {
    known: Arc<Known>,
    /// Whoever looks has it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Known(Mutex<BTreeMap<Uuid, ProcessId>>);

impl Processes {
    /// The processes of these domains, as far as they are found in time.
    pub async fn of(&self, domains: BTreeSet<Uuid>) -> BTreeMap<Uuid, ProcessId> {
        self.look_for(&domains).await.0
    }

    /// The same, and whether it was looked for all of them: else those that are not found may run.
    pub async fn look_for(&self, domains: &BTreeSet<Uuid>) -> (BTreeMap<Uuid, ProcessId>, bool) {
        let mut found = self.known.running(domains);
        let mut all_looked_for = true;
        if found.len() < domains.len() {
            // Somebody else's look may have found them by then; another one costs little.
            let look = async {
                let turn = Arc::clone(&self.turn).lock_owned().await;
                let known = Arc::clone(&self.known);
                let look = tokio::task::spawn_blocking(move || {
                    known.look();
                    drop(turn);
                });
                // A look that failed has found nothing.
                look.await.is_ok()
            };
            // Nor has one that hangs, beyond what it had found by then.
            all_looked_for = timeout(limits::SHOW, look).await == Ok(true);
            found = self.known.running(domains);
        }
        (found, all_looked_for)
    }
}

impl Known {
    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, ProcessId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of these domains that run still; the others are forgotten.
    fn running(&self, domains: &BTreeSet<Uuid>) -> BTreeMap<Uuid, ProcessId> {
        let mut known = self.lock();
        known.retain(|_, process| process.is_running());
        let wanted = known.iter().filter(|(id, _)| domains.contains(*id));
        wanted.map(|(id, process)| (*id, *process)).collect()
    }

    /// Reads what each QEMU was started with that is not known. Blocks for as long as one of them does.
    fn look(&self) {
        let known: BTreeSet<u32> = self.lock().values().map(|process| process.pid).collect();
        for pid in pids().filter(|pid| !known.contains(pid) && is_qemu(*pid)) {
            let Some(process) = ProcessId::of(pid) else {
                continue;
            };
            let command = read(&format!("/proc/{pid}/cmdline"), limits::COMMAND_BYTES);
            if let Some(id) = command.and_then(|command| domain_of(&command)) {
                self.lock().insert(id, process);
            }
        }
    }
}

/// The ids of all processes.
fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// By its name, which waits for nothing: `qemu-system-x86`, `qemu-kvm`, `kvm`.
fn is_qemu(pid: u32) -> bool {
    let name = read(&format!("/proc/{pid}/comm"), limits::COMMAND_BYTES).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    name.contains("qemu") || name.contains("kvm")
}

/// The domain of a QEMU that was started with this, if libvirt started it: it says `-name guest=...` and `-uuid`, which a guest of
/// the agent's may have, too.
fn domain_of(command: &[u8]) -> Option<Uuid> {
    let arguments: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
    let value = |option: &[u8]| {
        let at = arguments.iter().position(|argument| *argument == option)?;
        arguments.get(at + 1).copied()
    };
    let is_libvirts = value(b"-name")?.starts_with(b"guest=");
    let id = std::str::from_utf8(value(b"-uuid")?).ok()?;
    id.parse().ok().filter(|_| is_libvirts)
}

fn read(path: &str, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that looks like the QEMU of a domain with this id, until it is dropped.
    pub struct Qemu {
        child: Child,
        _folder: tempfile::TempDir,
    }

    impl Qemu {
        pub fn of(id: Uuid) -> Self {
            let folder = tempfile::TempDir::new().unwrap();
            let program = folder.path().join("qemu-of-a-test");
            std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
            // It waits for a line, and has the rest as its arguments.
            let child = Command::new(program)
                .args(["-c", "read line", "-name", "guest=web,debug-threads=on"])
                .args(["-uuid", &id.to_string()])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            // The kernel lets whoever started it go on before it has its name and its arguments.
            let pid = child.id();
            let command = || read(&format!("/proc/{pid}/cmdline"), limits::COMMAND_BYTES);
            while !is_qemu(pid) || command().and_then(|said| domain_of(&said)) != Some(id) {
                std::thread::yield_now();
            }
            Self {
                child,
                _folder: folder,
            }
        }

        fn process(&self) -> ProcessId {
            ProcessId::of(self.child.id()).unwrap()
        }
    }

    impl Drop for Qemu {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn the_domain_of_a_qemu_is_what_libvirt_started_it_with() {
        let id = Uuid::from_u128(0xabc);
        let command = |name: &str| format!("qemu\0-name\0{name}\0-S\0-uuid\0{id}\0-m\x001\0");
        let of = |text: &str| domain_of(text.as_bytes());
        assert_eq!(of(&command("guest=web,debug-threads=on")), Some(id));
        assert_eq!(of(&command("web")), None, "one of the agent's own");
        assert_eq!(of("qemu\0-name\0guest=web\0-uuid"), None);
        assert_eq!(of("qemu\0-name\0guest=web\0-uuid\0none\0"), None);
        assert_eq!(of(""), None);
    }

    #[tokio::test]
    async fn a_process_of_a_domain_is_found_by_its_id_and_forgotten_once_it_has_ended() {
        let (id, other) = (Uuid::now_v7(), Uuid::now_v7());
        let processes = Processes::default();
        assert_eq!(processes.of([id].into()).await, BTreeMap::new());
        let qemu = Qemu::of(id);
        let expected = BTreeMap::from([(id, qemu.process())]);
        assert_eq!(processes.of([id, other].into()).await, expected);
        drop(qemu);
        assert_eq!(processes.of([id].into()).await, BTreeMap::new());
    }

    #[tokio::test]
    async fn while_a_look_hangs_what_was_found_before_is_told() {
        let (id, other) = (Uuid::now_v7(), Uuid::now_v7());
        let processes = Processes::default();
        let qemu = Qemu::of(id);
        let expected = BTreeMap::from([(id, qemu.process())]);
        assert_eq!(processes.of([id].into()).await, expected);
        let _hangs = Arc::clone(&processes.turn).lock_owned().await;
        let found = processes.look_for(&[id, other].into()).await;
        assert_eq!(found, (expected.clone(), false));
        assert_eq!(processes.look_for(&[id].into()).await, (expected, true));
    }
}
