//! Processes of domains: each is a QEMU that was started with the domain's id, by whichever libvirtd.
//!
//! # Invariant
//! To read what a process was started with waits for its memory, which a QEMU that hangs may keep for ever. That is done in a thread for
//! each, of which there are [`limits::COMMANDS_READ`], and nobody waits for it longer than [`limits::SHOW`]: one that hangs hides no other.
//! What was found is remembered for as long as that process runs; of two with one id it is the one that was found first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_hypervisor::ProcessId;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join_all};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uuid::Uuid;

use crate::limits;

/// What is known of the processes of this host's domains.
#[derive(Debug)]
pub struct Processes(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// Where the kernel tells of processes: `/proc`.
    told: PathBuf,
    found: Mutex<BTreeMap<Uuid, ProcessId>>,
    /// Those whose command is being read, whoever wanted that.
    reads: Mutex<HashMap<ProcessId, Reading>>,
    turns: Arc<Semaphore>,
}

/// Ends when a command was read.
type Reading = Shared<BoxFuture<'static, ()>>;

impl Default for Processes {
    fn default() -> Self {
        Self::told_in("/proc")
    }
}

impl Processes {
    fn told_in(told: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Known {
            told: told.into(),
            found: Mutex::default(),
            reads: Mutex::default(),
            turns: Arc::new(Semaphore::new(limits::COMMANDS_READ)),
        }))
    }

    /// The processes of these domains, as far as they are found in time.
    pub async fn of(&self, domains: BTreeSet<Uuid>) -> BTreeMap<Uuid, ProcessId> {
        self.look_for(&domains).await.0
    }

    /// The same, and whether it was looked for all of them: else those that are not found may run.
    pub async fn look_for(&self, domains: &BTreeSet<Uuid>) -> (BTreeMap<Uuid, ProcessId>, bool) {
        let found = self.0.running(domains);
        if found.len() == domains.len() {
            return (found, true);
        }
        let known = Arc::clone(&self.0);
        let look = async {
            let unread = tokio::task::spawn_blocking(move || known.unread());
            // A look that failed has found nothing.
            let Ok(unread) = unread.await else {
                return false;
            };
            join_all(unread.into_iter().map(|process| self.read(process))).await;
            true
        };
        // Nor has one that hangs, beyond what it had found by then.
        let all_looked_for = timeout(limits::SHOW, look).await == Ok(true);
        (self.0.running(domains), all_looked_for)
    }

    /// Reads what a process was started with, or waits for who does.
    fn read(&self, process: ProcessId) -> Reading {
        let mut reads = lock(&self.0.reads);
        reads.retain(|_, reading| reading.peek().is_none());
        let begin = || {
            let known = Arc::clone(&self.0);
            let reading = tokio::spawn(async move {
                let turn = Arc::clone(&known.turns).acquire_owned().await;
                let read = move || {
                    known.read(process);
                    drop(turn);
                };
                // Nothing in there panics, and there is nothing to be done about it.
                drop(tokio::task::spawn_blocking(read).await);
            });
            reading.map(drop).boxed().shared()
        };
        reads.entry(process).or_insert_with(begin).clone()
    }
}

/// Nothing panics while it holds one of these locks, so a poisoned one is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// Those of these domains that run still; the others are forgotten.
    fn running(&self, domains: &BTreeSet<Uuid>) -> BTreeMap<Uuid, ProcessId> {
        let mut found = lock(&self.found);
        found.retain(|_, process| process.is_running());
        let wanted = found.iter().filter(|(id, _)| domains.contains(*id));
        wanted.map(|(id, process)| (*id, *process)).collect()
    }

    /// QEMUs of which it is not known what they were started with.
    fn unread(&self) -> Vec<ProcessId> {
        let known: BTreeSet<u32> = lock(&self.found).values().map(|one| one.pid).collect();
        let pids = self.pids().filter(|pid| !known.contains(pid));
        let qemus = pids.filter(|pid| self.is_qemu(*pid));
        qemus.filter_map(ProcessId::of).collect()
    }

    /// Blocks for as long as that process does.
    fn read(&self, process: ProcessId) {
        let command = self.command(process.pid);
        let Some(id) = command.and_then(|command| domain_of(&command)) else {
            return;
        };
        let mut found = lock(&self.found);
        let noted = found.entry(id).or_insert(process);
        if !noted.is_running() {
            *noted = process;
        }
    }

    /// The ids of all processes.
    fn pids(&self) -> impl Iterator<Item = u32> {
        let entries = std::fs::read_dir(&self.told).into_iter();
        let entries = entries.flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// By its name, which waits for nothing: `qemu-system-x86`, `qemu-kvm`, `kvm`.
    fn is_qemu(&self, pid: u32) -> bool {
        let name = read(&self.told.join(format!("{pid}/comm"))).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        name.contains("qemu") || name.contains("kvm")
    }

    fn command(&self, pid: u32) -> Option<Vec<u8>> {
        read(&self.told.join(format!("{pid}/cmdline")))
    }
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

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    let mut file = file.take(limits::COMMAND_BYTES);
    file.read_to_end(&mut bytes).ok()?;
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
            let (pid, processes) = (child.id(), Processes::default());
            let command = || processes.0.command(pid);
            while !processes.0.is_qemu(pid)
                || command().and_then(|said| domain_of(&said)) != Some(id)
            {
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

    /// What the kernel tells of one process, as a folder of the test's has it: its command is a pipe that nobody writes to.
    fn hanging(told: &Path, qemu: &Qemu) {
        let folder = told.join(qemu.child.id().to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("comm"), "qemu-system-x86\n").unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = folder.join("cmdline");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    #[tokio::test]
    async fn one_that_hangs_hides_no_other_and_is_found_once_it_answers() {
        let (id, other, hung) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
        let told = tempfile::TempDir::new().unwrap();
        let processes = Processes::told_in(told.path());
        let [first, later, silent] = [id, other, hung].map(Qemu::of);
        let show = |qemu: &Qemu| {
            let pid = qemu.child.id().to_string();
            std::os::unix::fs::symlink(Path::new("/proc").join(&pid), told.path().join(pid))
                .unwrap();
        };
        hanging(told.path(), &silent);
        show(&first);
        let expected = BTreeMap::from([(id, first.process())]);
        let found = processes.look_for(&[id, hung].into()).await;
        assert_eq!(found, (expected.clone(), false), "one may run");
        let found = processes.look_for(&[id].into()).await;
        assert_eq!(found, (expected, true));
        // One that starts while another hangs.
        show(&later);
        let expected = BTreeMap::from([(other, later.process())]);
        assert_eq!(processes.of([other].into()).await, expected);
        let left = limits::COMMANDS_READ - processes.0.turns.available_permits();
        assert_eq!(left, 1, "one thread, however often it was looked for");

        let command = format!("qemu\0-name\0guest=web\0-uuid\0{hung}\0");
        let pipe = told.path().join(format!("{}/cmdline", silent.child.id()));
        std::fs::write(pipe, command).unwrap();
        let expected = BTreeMap::from([(hung, silent.process())]);
        let found = processes.look_for(&[hung].into()).await;
        assert_eq!(found, (expected, true));
    }

    #[tokio::test]
    async fn of_two_with_one_id_the_first_is_the_domains_while_it_runs() {
        let id = Uuid::now_v7();
        let processes = Processes::default();
        let first = Qemu::of(id);
        let found = || async { processes.of([id].into()).await };
        let expected = BTreeMap::from([(id, first.process())]);
        assert_eq!(found().await, expected);
        let second = Qemu::of(id);
        // Somebody looks for another one, by which all are read.
        processes.look_for(&[Uuid::now_v7()].into()).await;
        assert_eq!(found().await, expected);
        drop(first);
        let expected = BTreeMap::from([(id, second.process())]);
        assert_eq!(found().await, expected);
    }
}
