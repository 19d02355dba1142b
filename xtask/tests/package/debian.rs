//! A clean Debian to install into: the unpacked one of `scripts/setup --for-tests`, with changes that are gone afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Where `scripts/setup --for-tests` puts it.
const BASE: &str = "/var/cache/drover-lab/debian-12";

/// For anything to happen on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// All files but packages, logs, and what dpkg itself keeps; with rights, owner and contents.
const LISTED: &str = r"
    find / -xdev \( -path /packages -o -path /var/log -o -path /var/lib/dpkg \) -prune -o \
        -printf '%p %M %U:%G %l\n' -type f -exec sha256sum {} + | sort";

/// A Debian of its own: mounts, network, processes, name. All of it ends with this.
pub struct Debian {
    folder: TempDir,
    /// `unshare`, which dies with the thread that made it. Its death ends process 1, and with that the kernel everything.
    holder: Child,
    /// Process 1 of it, as numbered here.
    init: String,
}

impl Debian {
    /// Whether there can be one; says so when not.
    pub fn is_there() -> bool {
        let there = Path::new(BASE).exists();
        if !there {
            eprintln!(
                "skipped, because there is no clean Debian in {BASE}: run scripts/setup --for-tests"
            );
        }
        there
    }

    /// Makes it, and a folder for packages, `/packages` in there.
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["over", "packages"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--mount", "--net", "--uts", "--pid", "--fork"])
            .args(["--kill-child=KILL", "--mount-proc", "bash", "-c"])
            .args([include_str!("root.sh"), "root", BASE])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut debian = Self {
            folder,
            holder,
            init: String::new(),
        };
        debian.wait_ready();
        debian
    }

    fn wait_ready(&mut self) {
        until("a clean Debian", || {
            let ended = self.holder.try_wait().unwrap();
            let log = fs::read_to_string(self.folder.path().join("log"));
            assert!(ended.is_none(), "{log:?}");
            self.folder.path().join("ready").exists()
        });
        let holder = self.holder.id();
        let children = format!("/proc/{holder}/task/{holder}/children");
        let children = fs::read_to_string(children).unwrap();
        self.init = children.trim().to_owned();
    }

    /// The folder that is `/packages` in there.
    pub fn packages(&self) -> PathBuf {
        self.folder.path().join("packages")
    }

    /// Runs a script in there.
    pub fn run(&self, script: &str) -> Output {
        Command::new("nsenter")
            .args(["--all", "--root", "--wd", "--target", &self.init])
            .args(["sh", "-c", script])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a script that has to succeed; what it printed.
    pub fn shell(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a script that has to fail; what it said.
    pub fn refused(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(!output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a process that stands still, of another name or with arguments; its number in there.
    pub fn stand_in(&self, name: Option<&str>, arguments: &str) -> String {
        let named = name.map_or_else(String::new, |name| format!("$0 = \"{name}\"; "));
        // It tells when it is what it is to be.
        let told = "$| = 1; print $$; close STDOUT; close STDERR; sleep 1000";
        self.shell(&format!("perl -e '{named}{told}' -- {arguments} &"))
    }

    /// Every file.
    pub fn files(&self) -> Vec<String> {
        self.shell(LISTED).lines().map(str::to_owned).collect()
    }

    /// What systemd was asked to do since this was asked last.
    pub fn asked_of_systemd(&self) -> String {
        let file = self.packages().join("systemctl");
        let asked = fs::read_to_string(&file).unwrap_or_default();
        fs::write(&file, "").unwrap();
        asked
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Waits until it is so.
pub fn until(what: &str, so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut so = so;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(POLL);
    }
}
