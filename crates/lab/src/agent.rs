//! The agents of a lab: `droverd` on each host.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use drover_api::{Client, Encryption, LibvirtState};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::command::log_end;
use crate::host::Host;
use crate::lab::Lab;
use crate::resident::wait_gone;
use crate::settings::AgentSettings;
use crate::{libvirt, limits, network};

/// The agents' port for each other.
const PORT: u16 = 7470;

/// Addresses of one agent: its configuration takes no more.
const ADDRESSES: usize = 16;

/// The agent's file name.
const DROVERD: &str = "droverd";

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    /// Its host.
    pub host: Host,
    /// Its process id.
    pub pid: u32,
    /// How to talk to it.
    pub client: Client,
    child: Option<Child>,
}

impl Agent {
    /// The agent that an earlier command started on this host.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub async fn find(host: Host) -> Result<Self> {
        let client = Client::unix(host.api_socket());
        client.host().await.with_context(|| {
            format!(
                "the agent of lab host {} does not answer; see {}",
                host.name,
                host.log(DROVERD).display()
            )
        })?;
        let pid = process_of(&host).await?;
        Ok(Self {
            host,
            pid,
            client,
            child: None,
        })
    }

    /// Starts the agent of one host and waits until it answers.
    ///
    /// # Errors
    /// It cannot be found or started, or does not answer; with the end of its log.
    pub async fn start(lab: &Lab, number: usize) -> Result<Self> {
        Self::start_with(lab, number, Encryption::On).await
    }

    /// The same, told something else than the lab's agents are.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_told(lab: &Lab, number: usize, told: &AgentSettings) -> Result<Self> {
        let host = lab.host(number);
        let text = configuration(lab, &host, Encryption::On, told);
        Self::start_by(host, &text).await
    }

    /// The same, with lanes encrypted or not.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(lab: &Lab, number: usize, encryption: Encryption) -> Result<Self> {
        let host = lab.host(number);
        let text = configuration(lab, &host, encryption, &lab.settings().agents);
        Self::start_by(host, &text).await
    }

    async fn start_by(host: Host, configuration: &str) -> Result<Self> {
        fs::write(host.config(), configuration)
            .with_context(|| format!("cannot write {}", host.config().display()))?;
        let arguments = ["--config".into(), host.config()];
        let mut child = host.start(DROVERD, &find()?, &arguments)?;
        let client = Client::unix(host.api_socket());
        let deadline = Instant::now() + limits::AGENT_START;
        while client.host().await.is_err() {
            let ended = child.try_wait().context("cannot watch the agent")?;
            let log = host.log(DROVERD);
            if let Some(status) = ended {
                bail!(
                    "the agent of host {} ended ({status}): {}",
                    host.name,
                    log_end(&log)
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "the agent of host {} does not answer within {} s: {}",
                    host.name,
                    limits::AGENT_START.as_secs(),
                    log_end(&log)
                );
            }
            tokio::time::sleep(limits::POLL).await;
        }
        let has_libvirt = libvirt::holder(&host).is_some();
        let pid = if has_libvirt {
            // The host numbers its own processes, and the child is what started it there.
            process_of(&host).await?
        } else {
            child.id().context("the agent ended at once")?
        };
        let agent = Self {
            host,
            pid,
            client,
            child: Some(child),
        };
        if has_libvirt {
            agent.watches_libvirt().await?;
        }
        Ok(agent)
    }

    /// Waits until it watches its host's domains: an order for one would be refused before.
    async fn watches_libvirt(&self) -> Result<()> {
        let deadline = Instant::now() + limits::LIBVIRT_START;
        loop {
            let libvirt = self.client.status().await?.libvirt;
            if libvirt.as_ref().map(|libvirt| libvirt.state) == Some(LibvirtState::Connected) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let host = &self.host.name;
                bail!(
                    "the agent of host {host} does not watch its libvirt within {} s: {libvirt:?}; {}",
                    limits::LIBVIRT_START.as_secs(),
                    log_end(&self.host.log(DROVERD))
                );
            }
            tokio::time::sleep(limits::POLL).await;
        }
    }

    /// Kills it, as a crash does; guests go on.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn kill(self) -> Result<()> {
        if let Some(mut child) = self.child.filter(|child| child.id() == Some(self.pid)) {
            return child.kill().await.context("cannot kill the agent");
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("the agent has no process")?;
        kill_process(pid, Signal::KILL).context("cannot kill the agent")?;
        wait_gone(self.pid, limits::KILL).await
    }
}

/// The agent's process on a host, as numbered here.
async fn process_of(host: &Host) -> Result<u32> {
    for pid in network::processes(host.namespace()).await {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == DROVERD {
            return Ok(pid);
        }
    }
    bail!("no {DROVERD} runs on lab host {}", host.name)
}

/// The agent: `DROVERD`, or beside this program.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("DROVERD") {
        return Ok(path.into());
    }
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let places = program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(DROVERD));
    places
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "{DROVERD} is not beside {}; `make build` makes both",
                program.display()
            )
        })
}

fn configuration(lab: &Lab, host: &Host, encryption: Encryption, told: &AgentSettings) -> String {
    let addresses = |host: &Host| {
        let nics = 0..lab.settings().nics.len();
        let all: Vec<_> = nics
            .filter_map(|nic| network::address_of(lab.settings(), nic, host.number))
            .map(|address| format!("\"{}\"", SocketAddr::new(address, PORT)))
            .take(ADDRESSES)
            .collect();
        all.join(", ")
    };
    let mut text = String::new();
    let _ = writeln!(text, "# Written by `drover lab`; gone with it.");
    let _ = writeln!(text, "host = {:?}", host.name);
    let _ = writeln!(text, "definitions = {:?}", host.definitions());
    let _ = writeln!(text, "state = {:?}", host.state());
    let _ = writeln!(text, "runtime = {:?}", host.runtime());
    // Hosts of a lab that have none of their own share the machine's sockets, and would each list its domains.
    let libvirt = if libvirt::holder(host).is_some() {
        "auto"
    } else {
        "off"
    };
    let _ = writeln!(text, "\n[libvirt]\nuri = \"{libvirt}\"");
    if lab.settings().hosts == 2 {
        // Of two hosts none is left when one is emptied and the other is lost.
        let _ = writeln!(text, "\n[policy]\nkeep = {{ losses = 0, of = \"host\" }}");
    }
    let _ = writeln!(text, "\n[api]\nsocket = {:?}", host.api_socket());
    let _ = writeln!(text, "listen = [{}]", addresses(host));
    let _ = writeln!(text, "\n[migration]");
    if encryption == Encryption::Off {
        let _ = writeln!(text, "encryption = \"off\"");
    }
    let AgentSettings {
        reduction,
        shared_pages,
        checkpoints,
    } = told;
    if let Some(mode) = reduction {
        let _ = writeln!(text, "reduction = \"{mode}\"");
    }
    if let Some(memory) = shared_pages {
        let _ = writeln!(text, "shared_pages_memory = {}", memory.0);
    }
    // A guest that is slowed down would do less than beside other methods, which do not slow it down.
    let _ = writeln!(text, "\n[migration.convergence]\nthrottle = \"off\"");
    if let Some(size) = checkpoints {
        let _ = writeln!(text, "\n[checkpoints]\nsize = {}", size.0);
    }
    let guests = lab.state().guests.iter();
    let binaries: BTreeSet<_> = guests.map(|guest| &guest.qemu).collect();
    if !binaries.is_empty() {
        let _ = writeln!(text, "\n[qemu]\nbinaries = {:?}", Vec::from_iter(binaries));
    }
    text
}
