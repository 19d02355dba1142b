//! An agent in a directory of its own, with guests that need no kernel.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, not all used by each of them"
)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use drover_api::{Client, VmState, VmView};
use tempfile::TempDir;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// For anything to happen on a loaded machine, or on one that such a machine emulates.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Whether there is a QEMU; says so when there is none.
pub fn has_qemu() -> bool {
    let there = Path::new(QEMU).exists();
    if !there {
        eprintln!("skipped, because there is no {QEMU}");
    }
    there
}

/// A port of the loopback that is free for an agent.
///
/// The kernel gives none of these to a connection, as it may with one that a listener was given and has closed
/// again, and other processes of tests begin at others.
pub fn free_address() -> SocketAddr {
    const FIRST: u32 = 10_000;
    const OF_A_PROCESS: u32 = 16;
    const PROCESSES: u32 = 1_400;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id() % PROCESSES * OF_A_PROCESS;
    (0..PROCESSES * OF_A_PROCESS)
        .map(|_| own + TRIED.fetch_add(1, Ordering::Relaxed))
        .map(|number| FIRST + number % (PROCESSES * OF_A_PROCESS))
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap())))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a port of the loopback is free")
}

/// A directory for one host; its guests end with it.
pub struct Place {
    directory: TempDir,
    name: &'static str,
}

impl Place {
    pub fn new() -> Self {
        Self::named("a")
    }

    /// For the host of that name.
    pub fn named(name: &'static str) -> Self {
        // Short: the paths of sockets have a limit.
        let directory = tempfile::Builder::new()
            .prefix("dr")
            .tempdir_in("/tmp")
            .unwrap();
        let place = Self { directory, name };
        fs::create_dir(place.path("vms")).unwrap();
        place.configure("");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("run/droverd.sock")
    }

    /// The configuration with `more` at its end.
    pub fn configure(&self, more: &str) {
        let at = self.directory.path().display();
        // Agents of tests that run at once must not meet on one port.
        let own = more.contains("[migration]");
        let port = if own { "" } else { "migration.data_port = 0\n" };
        // Nor list what this machine has.
        let own = more.contains("[libvirt]");
        let libvirt = if own { "" } else { "libvirt.uri = \"off\"\n" };
        let text = format!(
            "host = \"{}\"\ndefinitions = \"{at}/vms\"\nstate = \"{at}/state\"\n\
             runtime = \"{at}/run\"\nmemory_headroom = 0\n{port}{libvirt}{more}",
            self.name
        );
        fs::write(self.path("droverd.toml"), text).unwrap();
    }

    /// Defines a tiny guest.
    pub fn define(&self, name: &str) {
        self.define_with(name, &format!("qemu = \"{QEMU}\""));
    }

    /// Defines a tiny guest with `more` at the end of its file.
    pub fn define_with(&self, name: &str, more: &str) {
        let text = format!(
            "name = \"{name}\"\nmemory = \"64MiB\"\nmachine = \"q35,accel=tcg\"\n\
             args = [\"-nodefaults\"]\n{more}\n"
        );
        fs::write(self.path("vms").join(format!("{name}.toml")), text).unwrap();
    }

    /// A QEMU that first says something on stderr.
    pub fn talking_qemu(&self, words: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("qemu");
        fs::write(
            &path,
            format!("#!/bin/sh\necho '{words}' >&2\nexec {QEMU} \"$@\"\n"),
        )
        .unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// droverd with this place's configuration, not yet started.
    pub fn droverd(&self) -> Command {
        let mut command = Command::new(droverd());
        command.arg("--config").arg(self.path("droverd.toml"));
        command
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    /// Starts an agent and waits until it answers.
    pub async fn start(&self) -> Agent {
        self.start_by(self.droverd()).await
    }

    /// The same with a command of the caller's.
    pub async fn start_by(&self, mut command: Command) -> Agent {
        let log = self.path("log");
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        let mut agent = Agent {
            child,
            client: Client::unix(self.socket()),
            log,
        };
        let deadline = Instant::now() + PATIENCE;
        while agent.client.host().await.is_err() {
            assert_eq!(agent.child.try_wait().unwrap(), None, "{}", agent.log());
            assert!(Instant::now() < deadline, "no answer: {}", agent.log());
            tokio::time::sleep(POLL).await;
        }
        agent
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Guests outlive their agents; those with this directory in their arguments are ours.
        let ours = self.directory.path().to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().parse::<u32>().ok();
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            if let Some(pid) = pid
                && line.contains("qemu")
                && line.contains(&ours)
            {
                kill(pid, "-KILL");
            }
        }
    }
}

/// The program under test: that of this package, or the one built beside the test's own.
fn droverd() -> PathBuf {
    if let Some(path) = option_env!("CARGO_BIN_EXE_droverd") {
        return path.into();
    }
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push("droverd");
    assert!(
        path.exists(),
        "{} is not built: cargo build -p droverd",
        path.display()
    );
    path
}

/// An agent that runs, and is killed with its test.
pub struct Agent {
    child: Child,
    pub client: Client,
    log: PathBuf,
}

impl Agent {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a word.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in order; its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        kill(self.child.id(), "-TERM");
        wait(&mut self.child).code()
    }

    /// A guest, once `accept` is content with it.
    pub async fn vm_when(&self, name: &str, accept: impl Fn(&VmView) -> bool) -> VmView {
        let name = name.parse().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.client.vm(&name).await.unwrap();
            if accept(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "{view:#?}\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Starts a guest; its process id.
    pub async fn start_vm(&self, name: &str) -> u32 {
        let view = self.client.start_vm(&name.parse().unwrap()).await.unwrap();
        assert_eq!(view.state, VmState::Running, "{view:#?}");
        view.pid.unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal.
pub fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill")
        .arg(signal)
        .arg(pid.to_string())
        .status()
        .unwrap();
    assert!(status.success() || signal == "-KILL");
}

/// Waits for a child's end, with a deadline.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            return ExitStatus::from_raw(-1);
        }
        std::thread::sleep(POLL);
    }
}

/// Whether a process runs; a zombie does not.
pub fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.starts_with(" Z"))
}
