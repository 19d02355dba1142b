//! The process that carries a change out, killed at every single call of the system that writes, sends, or opens anything.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use drover_change::{Account, Journal, Lasts, Order, Outcome, PathTo, Phase, Plan, Planned};
use drover_host::{Told, Tree};
use drover_tune::facts::Host as Facts;
use drover_tune::lasting::Rewrite;
use drover_tune::{Disruption, NicSetting, Step};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::host::{Deaths, settled};
use crate::network::Network;

/// Words for strace by which an apply dies after some of its steps.
const KILLED_IN_THE_MIDDLE: [&str; 8] = [
    "-f",
    "-qq",
    "-o",
    "/dev/null",
    "-e",
    "trace=fsync",
    "-e",
    "inject=fsync:signal=SIGKILL:when=8",
];

/// The same, of one after whose steps files are written: at the second one.
const KILLED_AT_A_FILE: [&str; 8] = [
    "-f",
    "-qq",
    "-o",
    "/dev/null",
    "-e",
    "trace=renameat2",
    "-e",
    "inject=renameat2:signal=SIGKILL:when=2",
];

/// Where the files are that are written.
const SYSCTL: &str = "/etc/sysctl.d";

/// All that gives a file its name, its mode or its place on the disk, or takes it away. Other tests kill at what is written.
const FILES: &str = "fsync,fchmod,renameat2,mkdirat,unlinkat";

/// Runs the test below in a network of its own, for a process that does this.
fn killed_at_every(what: &str, calls: &str) {
    if Command::new("strace").arg("--version").output().is_err() {
        println!("skipped, because strace does not run, which kills at a call");
        return;
    }
    let Some(network) = Network::new("deaths") else {
        return;
    };
    network.test("deaths::inside_the_network", &format!("{what} {calls}"));
}

#[test]
fn a_process_that_is_killed_at_any_record_of_its_journal_leaves_all_or_nothing() {
    killed_at_every("apply", "write,fsync,ftruncate");
}

#[test]
fn a_process_that_is_killed_at_anything_that_it_asks_of_the_kernel_leaves_all_or_nothing() {
    killed_at_every("apply", "sendto,sendmsg,connect");
}

#[test]
fn a_process_that_is_killed_at_any_file_that_it_opens_leaves_all_or_nothing() {
    killed_at_every("apply", "openat");
}

#[test]
fn an_undo_that_is_killed_at_any_record_of_its_journal_leaves_all_or_nothing() {
    killed_at_every("undo", "fsync");
}

#[test]
fn a_process_that_goes_back_and_is_killed_at_any_record_of_its_journal_is_followed_by_the_next() {
    killed_at_every("recover", "write,fsync,ftruncate");
}

#[test]
fn a_process_that_is_killed_at_anything_it_does_to_a_file_leaves_every_byte_of_all_or_of_nothing() {
    killed_at_every("lasting apply", FILES);
}

#[test]
fn an_undo_that_is_killed_at_anything_it_does_to_a_file_leaves_every_byte_of_all_or_of_nothing() {
    killed_at_every("lasting undo", FILES);
}

#[test]
fn a_process_that_puts_files_back_and_is_killed_at_any_of_it_is_followed_by_the_next() {
    killed_at_every("lasting recover", FILES);
}

#[tokio::test]
#[ignore = "the tests above start it, inside the network that they made"]
async fn inside_the_network() {
    let word = std::env::var("DROVER_TEST_WORD").unwrap();
    let (what, calls) = word.rsplit_once(' ').unwrap();
    let host = Changed::new(what.starts_with("lasting")).await;
    let what = what.trim_start_matches("lasting ");
    let mut deaths = Deaths::default();
    for (call, times) in host.count(what, calls).await {
        for at in 1..=times {
            let (died, outcome) = host.round(what, &call, at).await;
            if died {
                deaths.came_to(&outcome);
            }
        }
    }
    deaths.tell(&word);
    let least = if what == "apply" { 20 } else { 5 };
    assert!(deaths.count() > least, "{deaths:?}");
}

/// This namespace's host.
struct Changed {
    folder: TempDir,
    order: Order,
    before: There,
    after: There,
}

/// What is there: settings, and files below a folder with their text, mode and owner.
#[derive(Debug, PartialEq)]
struct There {
    facts: Facts,
    files: BTreeMap<PathBuf, (String, u32, u32, u32)>,
}

impl There {
    async fn now() -> Self {
        let root = Path::new("/");
        let told = Told::ask(root, "a").await.unwrap();
        let facts = settled(drover_host::facts(&Tree::at(root), &told));
        let mut files = BTreeMap::new();
        collect(Path::new(SYSCTL), &mut files);
        Self { facts, files }
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, (String, u32, u32, u32)>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            collect(&path, files);
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let (mode, uid, gid) = (about.mode(), about.uid(), about.gid());
        files.insert(path, (text, mode, uid, gid));
    }
}

/// A file that is new in a folder that is new, and one of somebody's; below one that nobody else sees.
fn files(own: &Path) -> Lasts {
    let mounted = Command::new("mount")
        .arg("--bind")
        .args([own, Path::new(SYSCTL)])
        .status();
    assert!(mounted.unwrap().success());
    let theirs = own.join("99-theirs.conf");
    fs::write(&theirs, "x = 0\n").unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&theirs, Some(7), Some(8)).unwrap();
    let rewrite = |name: &str| {
        let path = format!("{SYSCTL}/{name}");
        let there = drover_host::place(Path::new("/"), &path).unwrap();
        Rewrite {
            by: "sysctl.d".into(),
            path,
            mode: there.mode,
            uid: there.uid,
            gid: there.gid,
            folders: there.folders,
            before: there.text,
            after: "x = 1\n".into(),
        }
    };
    Lasts {
        files: ["ours/90-ours.conf", "99-theirs.conf"].map(rewrite).into(),
        ..Lasts::default()
    }
}

/// On top of what the rules want here: what they want of adapters, and of paths.
fn by_hand() -> Planned {
    let smaller = Step::Nic {
        nic: "nic1".into(),
        what: NicSetting::Mtu,
        from: "9000".into(),
        to: "1500".into(),
    };
    let steering = ["nic0", "nic1"].map(|nic| Step::File {
        path: format!("sys/class/net/{nic}/queues/rx-0/rps_cpus"),
        from: "1".into(),
        to: "0".into(),
    });
    Planned {
        rule: "a-rule".into(),
        nic: None,
        disruption: Disruption::BouncesLink,
        why: "it is to be tried".into(),
        steps: steering.into_iter().chain([smaller]).collect(),
    }
}

impl Changed {
    async fn new(is_lasting: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("etc");
        fs::create_dir(&own).unwrap();
        let lasting = is_lasting.then(|| files(&own));
        let before = There::now().await;
        let report = drover_tune::examine(std::slice::from_ref(&before.facts), &[]);
        let boot = drover_host::boot_id(Path::new("/")).unwrap();
        let of = (&"a".parse().unwrap(), boot.as_str());
        let (mut plan, _) = Plan::of(&report, of, Timestamp::now(), false);
        assert!(plan.steps().count() >= 4, "{plan:#?}");
        plan.changes.push(by_hand());
        let path = |nic: u8| PathTo {
            host: "b".parse().unwrap(),
            nic: format!("nic{nic}"),
            from: IpAddr::from([10, 77, nic, 1]),
            to: (IpAddr::from([10, 77, nic, 2]), 7470).into(),
        };
        let paths = vec![path(0), path(1)];
        let order = Order {
            plan,
            paths,
            links: Vec::new(),
            lasting,
        };
        let mut host = Self {
            folder,
            order,
            before,
            after: There::now().await,
        };
        let (folder, ended) = host.apply(&[]).await;
        assert!(ended.success());
        let applied = Outcome::Applied { proven: 2 };
        assert_eq!(outcome(&folder), applied);
        host.after = There::now().await;
        assert_ne!(host.after, host.before);
        host.undo(&folder).await;
        host
    }

    /// How often a whole run does each of these calls.
    async fn count(&self, what: &str, calls: &str) -> BTreeMap<String, usize> {
        let log = self.folder.path().join("strace");
        let trace = format!("trace={calls}");
        let log_file = log.to_str().unwrap();
        let strace = ["-f", "-o", log_file, "-e", &trace];
        let (folder, _) = self.process(what, &strace).await;
        if matches!(outcome(&folder), Outcome::Applied { .. }) {
            self.undo(&folder).await;
        }
        let mut counted = BTreeMap::new();
        for line in fs::read_to_string(log).unwrap().lines() {
            for call in calls.split(',') {
                if line.contains(&format!(" {call}(")) {
                    *counted.entry(call.to_owned()).or_insert(0) += 1;
                }
            }
        }
        counted
    }

    /// Killed as it makes this call for the n-th time, and followed by one that goes back.
    async fn round(&self, what: &str, call: &str, at: usize) -> (bool, String) {
        let inject = format!("inject={call}:signal=SIGKILL:when={at}");
        let trace = format!("trace={call}");
        let strace = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let (folder, ended) = self.process(what, &strace).await;
        let said = format!("{call} {at} {ended:?}");
        if !Account::read(&folder).unwrap().standing.has_ended() {
            let lock = Journal::open(&folder).unwrap().into_lock();
            assert!(
                process(&[], "recover", &folder, lock).await.success(),
                "{said}"
            );
        }
        let end = outcome(&folder);
        let word = match &end {
            Outcome::Applied { .. } => "applied",
            Outcome::RolledBack { .. } => "rolled back",
            Outcome::Undone => "undone",
            other => panic!("{said}: {other:?}"),
        };
        let there = There::now().await;
        if word == "applied" {
            assert_eq!(there, self.after, "{said}: {end:?}");
            self.undo(&folder).await;
        } else {
            assert_eq!(there, self.before, "{said}: {end:?}");
        }
        (!ended.success(), word.to_owned())
    }

    /// A process below this, with a folder as it finds it.
    async fn process(&self, what: &str, strace: &[&str]) -> (PathBuf, ExitStatus) {
        let (folder, _) = match what {
            "apply" => return self.apply(strace).await,
            "undo" => self.apply(&[]).await,
            _ if self.order.lasting.is_some() => self.apply(&KILLED_AT_A_FILE).await,
            _ => self.apply(&KILLED_IN_THE_MIDDLE).await,
        };
        let lock = Journal::open(&folder).unwrap().into_lock();
        let ended = process(strace, what, &folder, lock).await;
        (folder, ended)
    }

    /// A process that begins with a new folder, below this.
    async fn apply(&self, strace: &[&str]) -> (PathBuf, ExitStatus) {
        let number = fs::read_dir(self.folder.path()).unwrap().count();
        let folder = self.folder.path().join(number.to_string());
        let lock = Journal::make(&folder, &self.order).unwrap().into_lock();
        let ended = process(strace, "apply", &folder, lock).await;
        (folder, ended)
    }

    async fn undo(&self, folder: &Path) {
        let lock = Journal::open(folder).unwrap().into_lock();
        assert!(process(&[], "undo", folder, lock).await.success());
        assert_eq!(outcome(folder), Outcome::Undone);
        assert_eq!(There::now().await, self.before);
    }
}

/// Below strace; what it logs cannot be written, as on a full disk.
async fn process(strace: &[&str], what: &str, folder: &Path, lock: OwnedFd) -> ExitStatus {
    let droverd = env!("CARGO_BIN_EXE_droverd");
    let mut command = match strace {
        [] => Command::new(droverd),
        strace => {
            let mut command = Command::new("strace");
            command.args(strace).arg(droverd);
            command
        }
    };
    command
        .args(["change", "--host", "a"])
        .arg(folder)
        .arg(what);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command
        .stdin(Stdio::from(lock))
        .stdout(Stdio::null())
        .stderr(full);
    let mut child = tokio::process::Command::from(command).spawn().unwrap();
    child.wait().await.unwrap()
}

fn outcome(folder: &Path) -> Outcome {
    let account = Account::read(folder).unwrap();
    let Phase::Ended(outcome) = account.standing.phase else {
        panic!("{:?}", account.standing);
    };
    outcome
}
