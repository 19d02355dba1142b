use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use drover_libvirt::uri_of_socket;
use tempfile::TempDir;

use super::{PATIENCE, POLL};

/// A host of its own: mounts, network, processes, name; in it a libvirtd. All of it ends with this.
pub struct Host {
    folder: TempDir,
    /// `unshare`, which dies with the thread that made the host, however that ends. Its death ends process 1, and with that the
    /// kernel everything in the host.
    holder: Child,
    /// Process 1 of the host, as numbered here.
    init: u32,
}

impl Host {
    /// Makes the host and starts its libvirtd, this unpacked one.
    pub fn new(libvirt: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        // A file for each version of libvirt and QEMU, written at once: hosts may share them.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(libvirt.file_name().unwrap());
        fs::create_dir_all(&cache).unwrap();
        let log = fs::File::create(folder.path().join("host.log")).unwrap();
        let holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--mount", "--net", "--uts", "--pid", "--fork"])
            .args(["--kill-child=KILL", "--mount-proc", "bash", "-c"])
            .args([drover_lab::libvirt::HOST, "host"])
            .arg(libvirt)
            .arg(folder.path())
            .arg(cache)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut host = Self {
            folder,
            holder,
            init: 0,
        };
        host.wait_ready();
        host.start_libvirtd();
        host
    }

    /// Process 1 of the host, as numbered here.
    pub fn init(&self) -> u32 {
        self.init
    }

    fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.folder.path().join("ready").exists() {
            let ended = self.holder.try_wait().unwrap();
            let log = fs::read_to_string(self.folder.path().join("host.log"));
            assert!(ended.is_none() && Instant::now() < deadline, "{log:?}");
            std::thread::sleep(POLL);
        }
        let holder = self.holder.id();
        let children = format!("/proc/{holder}/task/{holder}/children");
        let children = fs::read_to_string(children).unwrap();
        self.init = children.trim().parse().unwrap();
    }

    /// A path of the host, as seen from outside.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.init))
    }

    /// The socket of its libvirtd.
    pub fn socket(&self) -> PathBuf {
        self.path("/run/libvirt/libvirt-sock")
    }

    /// Its libvirtd, for anyone on this machine.
    pub fn uri(&self) -> String {
        uri_of_socket(&self.socket())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["--all", "--target", &self.init.to_string(), program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a program on the host and gives what it printed.
    pub fn shell(&self, script: &str) -> String {
        let output = self.run("sh", &["-c", script]);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// libvirt's own command, a second opinion.
    pub fn virsh(&self, arguments: &[&str]) -> String {
        let output = self.run("virsh", arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Defines a domain.
    pub fn define(&self, xml: &str) {
        fs::write(self.folder.path().join("domain.xml"), xml).unwrap();
        let file = self.folder.path().join("domain.xml");
        self.virsh(&["define", file.to_str().unwrap()]);
    }

    /// Starts a domain without a definition.
    pub fn create(&self, xml: &str) {
        fs::write(self.folder.path().join("domain.xml"), xml).unwrap();
        let file = self.folder.path().join("domain.xml");
        self.virsh(&["create", file.to_str().unwrap()]);
    }

    pub fn start_libvirtd(&self) {
        self.shell("rm -f /run/libvirtd.pid && libvirtd --daemon");
    }

    /// Sends a signal to its libvirtd.
    pub fn signal_libvirtd(&self, signal: &str) {
        self.shell(&format!("kill -{signal} $(cat /run/libvirtd.pid)"));
    }

    /// The processes of QEMUs that run guests, as numbered on the host.
    pub fn qemus(&self) -> Vec<String> {
        let found = self.run("pgrep", &["-f", "^/[^ ]*/qemu-system-x86_64 -name guest="]);
        let found = String::from_utf8(found.stdout).unwrap();
        found.lines().map(str::to_owned).collect()
    }

    /// The end of what libvirtd logged, and its QEMUs, for a failed test.
    pub fn log(&self) -> String {
        let logs = self.folder.path().join("log");
        let qemus = fs::read_dir(logs.join("qemu")).into_iter().flatten();
        let qemus = qemus.map(|log| log.unwrap().path());
        let all = std::iter::once(logs.join("libvirtd.log")).chain(qemus);
        all.map(|log| end_of(&log)).collect::<Vec<_>>().join("\n")
    }
}

/// The last lines of a file.
fn end_of(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the end of the logs of libvirtd and its QEMUs:\n{}",
                self.log()
            );
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
