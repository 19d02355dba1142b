//! A guest that is defined on a host of a lab, for the doctor to look at. Nothing boots in it.

use std::fs;

use anyhow::{Context, Result};
use drover_api::{Client, DEFAULT_QEMU, StopRequest, VmDefinition};
use drover_types::{Bytes, VmName};

use crate::host::Host;

/// What of a definition is asked about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guest {
    /// Its memory.
    pub(super) memory: Bytes,
    /// Its processors.
    pub(super) vcpus: u32,
    /// Its machine, and what that is made of.
    pub(super) machine: &'static str,
    /// Further arguments of QEMU.
    pub(super) args: &'static [&'static str],
    /// It is started; of others only the definition is there.
    pub(super) runs: bool,
}

impl Guest {
    pub(super) fn definition(&self, name: &str) -> Result<VmDefinition> {
        let name: VmName = name.parse()?;
        Ok(VmDefinition {
            name,
            memory: self.memory,
            vcpus: self.vcpus,
            qemu: DEFAULT_QEMU.into(),
            machine: Some(self.machine.to_owned()),
            args: self.args.iter().map(|arg| (*arg).to_owned()).collect(),
            convergence: Default::default(),
            checkpoint: true,
            policy: Default::default(),
        })
    }

    /// Gives it to a host's agent, and has that start it if it is to run.
    ///
    /// # Errors
    /// The definition cannot be written, or what the agent says.
    pub(super) async fn define(&self, host: &Host, name: &str) -> Result<()> {
        let definition = self.definition(name)?;
        host.define(&definition)?;
        if self.runs {
            let agent = Client::unix(host.api_socket());
            let started = agent.start_vm(&definition.name).await;
            started
                .with_context(|| format!("guest {name} was not started on host {}", host.name))?;
        }
        Ok(())
    }

    /// Takes it back.
    ///
    /// # Errors
    /// What the agent says, or the definition cannot be removed.
    pub(super) async fn forget(&self, host: &Host, name: &str) -> Result<()> {
        let name: VmName = name.parse()?;
        if self.runs {
            let how = StopRequest {
                force: true,
                ..StopRequest::default()
            };
            let agent = Client::unix(host.api_socket());
            let ended = agent.stop_vm(&name, &how).await;
            ended.with_context(|| format!("guest {name} was not ended on host {}", host.name))?;
        }
        let file = host.definition_of(&name);
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
    }
}
