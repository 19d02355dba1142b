//! One host of a lab: a network namespace, a folder, and what runs in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_api::VmDefinition;
use drover_types::VmName;
use tokio::process::{Child, Command};

use crate::command::run_within;
use crate::libvirt;
use crate::network::{self, HOSTS};
use crate::settings::LabName;

/// Gives a program its host's view: the host's own folder of sockets under the common path. `ip
/// netns exec` has given it mounts of its own, and the network's `/sys`.
const ENTER: &str = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";

/// One host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `a` or `b`.
    pub name: String,
    /// Its place in [`HOSTS`].
    pub number: usize,
    namespace: String,
    folder: PathBuf,
    here: PathBuf,
}

impl Host {
    pub(crate) fn new(lab: &LabName, number: usize, lab_folder: &Path) -> Self {
        let name = HOSTS[number];
        Self {
            name: name.to_owned(),
            number,
            namespace: network::namespace(lab, name),
            folder: lab_folder.join(name),
            here: lab_folder.join("here"),
        }
    }

    pub(crate) fn create_folders(&self) -> Result<()> {
        for folder in [
            self.definitions(),
            self.runtime(),
            self.state(),
            self.folder.join("here"),
        ] {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(())
    }

    /// Makes its folders as they were at first; logs stay.
    pub(crate) fn empty(&self) -> Result<()> {
        for folder in [
            self.definitions(),
            self.runtime(),
            self.state(),
            self.libvirt(),
        ] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let context = || format!("cannot remove {}", folder.display());
                    return Err(error).with_context(context);
                }
                _ => {}
            }
        }
        self.create_folders()
    }

    /// Its network namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The address of IPv4 of one of its NICs, if it has one.
    #[must_use]
    pub fn address(&self, nic: usize) -> Ipv4Addr {
        network::address(nic, self.number)
    }

    /// Where everything of it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The agent's configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.join("droverd.toml")
    }

    /// What its libvirt keeps, where it has one.
    pub(crate) fn libvirt(&self) -> PathBuf {
        self.folder.join("libvirt")
    }

    /// The agent's definitions of guests.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.folder.join("vms")
    }

    /// The file of a guest's definition.
    pub(crate) fn definition_of(&self, guest: &VmName) -> PathBuf {
        self.definitions().join(format!("{guest}.toml"))
    }

    /// Gives its agent the definition of a guest.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn define(&self, definition: &VmDefinition) -> Result<()> {
        let file = self.definition_of(&definition.name);
        let text = toml::to_string(definition).context("cannot write a definition")?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// The agent's runtime folder.
    #[must_use]
    pub fn runtime(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// The agent's state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The agent's socket.
    #[must_use]
    pub fn api_socket(&self) -> PathBuf {
        self.runtime().join("droverd.sock")
    }

    /// What a program on this host writes to its stdout and stderr.
    #[must_use]
    pub fn log(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }

    /// A socket that the host has in its own folder of sockets, as seen from outside.
    #[must_use]
    pub fn socket(&self, file: &str) -> PathBuf {
        self.folder.join("here").join(file)
    }

    /// Starts a program on this host, its output going to [`log`](Self::log). It is in a session of its own, as a
    /// service is: an interrupt at the terminal is not for it, and Linux shares processors between sessions
    /// (`autogroup`, sched(7)), of which each guest is one as well.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        &self,
        log: &str,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<Child> {
        self.start_with(log, program, arguments, Stdio::null())
    }

    /// The same, with something to read from.
    pub(crate) fn start_with(
        &self,
        log: &str,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        stdin: Stdio,
    ) -> Result<Child> {
        let path = self.log(log);
        let output = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let errors = output.try_clone().context("cannot share a log")?;
        let found = |program: &str| crate::command::find(program).unwrap_or_else(|| program.into());
        let enter = self.enter();
        Command::new(found("setsid"))
            .arg(found(&enter[0]))
            .args(&enter[1..])
            .arg(program)
            .args(arguments)
            .current_dir("/")
            .stdin(stdin)
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {} on host {}", program.display(), self.name))
    }

    /// Runs a program on this host, and gives its output.
    ///
    /// # Errors
    /// It cannot be started, fails, or does not end in time.
    pub(crate) async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        within: Duration,
    ) -> Result<String> {
        let enter = self.enter();
        let enter: Vec<_> = enter.iter().map(String::as_str).collect();
        let arguments = [&enter[1..], &[program], arguments].concat();
        run_within(enter[0], &arguments, within).await
    }

    /// The command that gives a shell on it.
    pub(crate) fn shell(&self) -> String {
        match libvirt::holder(self) {
            Some(holder) => format!("nsenter --all --target {holder} bash"),
            None => format!("ip netns exec {} bash", self.namespace),
        }
    }

    /// What gives a program this host's view, before its own name: mounts of its own, or all that programs of a host
    /// with a libvirt share.
    fn enter(&self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        if let Some(holder) = libvirt::holder(self) {
            return words(&["nsenter", "--all", "--target", &holder.to_string()]);
        }
        let own = self.folder.join("here").display().to_string();
        let (space, here) = (&self.namespace, self.here.display().to_string());
        words(&[
            "ip", "netns", "exec", space, "sh", "-c", ENTER, "sh", &own, &here,
        ])
    }
}
