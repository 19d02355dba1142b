//! A guest that runs on one of the lab's hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_api::{StopRequest, VmDefinition};
use drover_types::VmName;
use serde_json::Value;
use tokio::process::Child;

use crate::agent::Agent;
use crate::command::log_end;
use crate::guest::Image;
use crate::guest::console::Console;
use crate::guest::definition::{define, monitor_socket, serial_socket};
use crate::host::Host;
use crate::lab::Lab;
use crate::libvirt;
use crate::limits;
use crate::monitor::{Monitor, named};
use crate::settings::GuestSettings;

/// Who started the guest's QEMU.
#[derive(Debug)]
pub enum Keeper {
    /// The lab.
    Lab(Child),
    /// The host's agent.
    Agent,
    /// The host's libvirt.
    Libvirt,
}

/// A guest and where it is.
#[derive(Debug)]
pub struct Resident {
    /// Its definition.
    pub definition: VmDefinition,
    /// What it says.
    pub console: Console,
    /// Its QEMU, watched.
    pub monitor: Monitor,
    /// Its QEMU's process id.
    pub pid: u32,
    /// The number of the host that it is on.
    pub host: usize,
    /// Who started its QEMU.
    pub keeper: Keeper,
}

/// Starts a QEMU for this definition on a host, by the lab itself, with the arguments that an
/// agent would give it.
///
/// # Errors
/// It cannot be started, or does not answer; with the end of its stderr.
pub async fn start_qemu(
    host: &Host,
    definition: &VmDefinition,
    incoming: bool,
) -> Result<(Child, Monitor)> {
    let socket = host.socket(&monitor_socket(&definition.name));
    let mut child = launch_qemu(host, definition, incoming)?;
    let answer = Monitor::connect(&socket, limits::QEMU_START);
    tokio::pin!(answer);
    tokio::select! {
        connected = &mut answer => Ok((child, connected?)),
        status = child.wait() => bail!(
            "QEMU on host {} ended at its start ({}): {}",
            host.name,
            status.context("cannot watch QEMU")?,
            log_end(&host.log(&log_of(definition)))
        ),
    }
}

/// The same, without a look at its monitor.
pub(crate) fn launch_qemu(host: &Host, definition: &VmDefinition, incoming: bool) -> Result<Child> {
    // Left by a QEMU that was killed: what connects to it would wait for nobody.
    let _ = fs::remove_file(host.socket(&monitor_socket(&definition.name)));
    let arguments = arguments(definition, incoming);
    host.start(&log_of(definition), &definition.qemu, &arguments)
}

fn log_of(definition: &VmDefinition) -> String {
    format!("qemu-{}", definition.name)
}

fn arguments(definition: &VmDefinition, incoming: bool) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut option = |key: &str, value: String| arguments.extend([key.to_owned(), value]);
    option("-name", format!("{},debug-threads=on", definition.name));
    option("-m", format!("{}M", definition.memory.0 >> 20));
    option("-smp", definition.vcpus.to_string());
    option(
        "-machine",
        definition
            .machine
            .clone()
            .unwrap_or_else(|| "q35".to_owned()),
    );
    if incoming {
        option("-incoming", "defer".to_owned());
        arguments.push("-S".to_owned());
    }
    arguments.extend(definition.args.iter().cloned());
    arguments
}

/// What both ways of booting a guest need.
pub struct Boot<'a> {
    /// Where.
    pub lab: &'a Lab,
    /// The host's number.
    pub host: usize,
    /// The guest's name.
    pub name: VmName,
    /// What it is.
    pub settings: &'a GuestSettings,
    /// What it boots from.
    pub image: &'a Image,
}

impl Boot<'_> {
    fn definition(&self) -> Result<VmDefinition> {
        define(&self.name, self.settings, self.image, &self.lab.here())
    }

    /// Boots it without any agent, and waits until its memory is filled.
    ///
    /// # Errors
    /// What QEMU or the guest say.
    pub async fn by_lab(&self) -> Result<Resident> {
        let definition = self.definition()?;
        let host = self.lab.host(self.host);
        let (child, monitor) = start_qemu(&host, &definition, false).await?;
        let pid = child.id().context("QEMU ended at once")?;
        let keeper = Keeper::Lab(child);
        Resident::meet(&host, definition, monitor, pid, keeper).await
    }

    /// Gives it to a host's agent, has that start it, and waits until its memory is filled.
    ///
    /// # Errors
    /// What the agent or the guest say.
    pub async fn by_agent(&self, agent: &Agent) -> Result<Resident> {
        let definition = self.definition()?;
        agent.host.define(&definition)?;
        let view = agent.client.start_vm(&self.name).await?;
        let pid = view
            .pid
            .context("the agent tells no process of the guest")?;
        let socket = agent.host.socket(&monitor_socket(&self.name));
        let monitor = Monitor::connect(&socket, limits::QEMU_START).await?;
        Resident::meet(&agent.host, definition, monitor, pid, Keeper::Agent).await
    }

    /// Has the libvirt of its host define and start it, and waits until its memory is filled.
    ///
    /// # Errors
    /// What libvirt or the guest say.
    pub async fn by_libvirt(&self) -> Result<Resident> {
        let definition = self.definition()?;
        let (lab, host) = (self.lab, self.lab.host(self.host));
        let folders = [lab.folder(), &lab.here()];
        libvirt::boot(&host, &self.name, self.settings, self.image, folders).await?;
        let pid = libvirt::pid_of(&host, &self.name).await?;
        let socket = host.socket(&monitor_socket(&self.name));
        let monitor = Monitor::connect(&socket, limits::QEMU_START).await?;
        Resident::meet(&host, definition, monitor, pid, Keeper::Libvirt).await
    }
}

impl Resident {
    async fn meet(
        host: &Host,
        definition: VmDefinition,
        monitor: Monitor,
        pid: u32,
        keeper: Keeper,
    ) -> Result<Self> {
        let console = Console::default();
        let serial = host.socket(&serial_socket(&definition.name));
        console.attach(&serial, limits::QEMU_START).await?;
        console.wait_ready().await?;
        Ok(Self {
            definition,
            console,
            monitor,
            pid,
            host: host.number,
            keeper,
        })
    }

    /// Finds the guest that an agent runs, for a command that did not start it.
    ///
    /// # Errors
    /// Its sockets do not answer.
    pub async fn find(host: &Host, definition: VmDefinition, pid: u32) -> Result<Self> {
        let socket = host.socket(&monitor_socket(&definition.name));
        let monitor = Monitor::connect(&socket, limits::QEMU_START).await?;
        Self::meet(host, definition, monitor, pid, Keeper::Agent).await
    }

    /// Holds the guest's CPUs, so that it costs nothing while another guest is measured.
    ///
    /// # Errors
    /// QEMU's.
    pub async fn pause(&self) -> Result<()> {
        self.monitor.run("stop", Value::Null).await.map(drop)
    }

    /// Lets the guest run again, and waits until it does.
    ///
    /// # Errors
    /// QEMU's, or it is silent.
    pub async fn resume(&self) -> Result<()> {
        self.monitor.run("cont", Value::Null).await?;
        self.console.wait_sequence(2, limits::FIRST_HEARTBEAT).await
    }

    /// Its sockets on another host, with what an earlier QEMU left of them removed.
    pub(crate) fn sockets_on(&self, host: &Host) -> [PathBuf; 2] {
        let name = &self.definition.name;
        let sockets = [
            host.socket(&serial_socket(name)),
            host.socket(&monitor_socket(name)),
        ];
        for socket in &sockets {
            let _ = fs::remove_file(socket);
        }
        sockets
    }

    /// Waits until it runs on another host, at these sockets of it ([`sockets_on`](Self::sockets_on)), once `moved`
    /// has ended well. Its QEMU there, and what `moved` gave.
    ///
    /// # Errors
    /// `moved` fails, or the guest is not heard from there in time.
    pub(crate) async fn arrive<T>(
        &self,
        [serial, socket]: &[PathBuf; 2],
        moved: impl Future<Output = Result<T>>,
    ) -> Result<(Monitor, T)> {
        // The destination's QEMU appears in the middle of the move; a move that fails ends the waiting.
        let appears = async {
            self.console.attach(serial, limits::MOVE).await?;
            Monitor::connect(socket, limits::QEMU_START).await
        };
        tokio::pin!(appears, moved);
        let (monitor, given) = tokio::select! {
            monitor = &mut appears => (monitor?, moved.await?),
            given = &mut moved => {
                let given = given?;
                (appears.await?, given)
            }
        };
        monitor
            .wait(0, limits::QEMU_START, "resume", named("RESUME"))
            .await?;
        let heard = limits::FIRST_HEARTBEAT;
        self.console.wait_heartbeat(heard).await?;
        self.console.wait_sequence(3, heard).await?;
        Ok((monitor, given))
    }

    /// Ends the guest.
    ///
    /// # Errors
    /// It does not end.
    pub async fn end(self, lab: &Lab, agents: &[Agent]) -> Result<()> {
        match self.keeper {
            Keeper::Lab(mut child) => child.kill().await.context("cannot end QEMU"),
            Keeper::Libvirt => libvirt::end(&lab.host(self.host), &self.definition.name).await,
            Keeper::Agent => {
                let agent = agents.iter().find(|agent| agent.host.number == self.host);
                let agent = agent.context("the guest's agent is not there")?;
                let name = &self.definition.name;
                agent
                    .client
                    .stop_vm(
                        name,
                        &StopRequest {
                            force: true,
                            ..StopRequest::default()
                        },
                    )
                    .await?;
                Ok(())
            }
        }
    }
}

/// Waits until a process has ended.
pub(crate) async fn wait_gone(pid: u32, within: Duration) -> Result<()> {
    let deadline = Instant::now() + within;
    while Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > deadline {
            bail!("process {pid} does not end within {} s", within.as_secs());
        }
        tokio::time::sleep(limits::POLL).await;
    }
    Ok(())
}
