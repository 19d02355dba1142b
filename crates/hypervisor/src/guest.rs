use std::path::PathBuf;

use drover_types::{Bytes, VmName};
use serde::{Deserialize, Serialize};

/// What a guest is started from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name, shown in the process list.
    pub name: VmName,
    /// Its memory.
    pub memory: Bytes,
    /// Its virtual CPUs.
    pub vcpus: u16,
    /// The hypervisor's program, an absolute path.
    pub binary: PathBuf,
    /// Its machine type, with options if any (`q35,accel=tcg`); `None` for the binary's default.
    pub machine: Option<String>,
    /// Further arguments, appended as they are. The process runs in `/`: paths must be absolute.
    pub args: Vec<String>,
}

impl Guest {
    /// The same guest with its machine type replaced by `machine_type`, options kept: an alias
    /// such as `q35` means another machine to another QEMU, so a guest travels with the type that
    /// [`Machine::machine_type`](crate::Machine::machine_type) told.
    #[must_use]
    pub fn with_machine_type(&self, machine_type: &str) -> Self {
        let is_option = |part: &str| part.split_once('=').is_some_and(|(key, _)| key != "type");
        let options = self.machine.iter().flat_map(|machine| machine.split(','));
        let options = options.filter(|part| is_option(part));
        let parts: Vec<&str> = std::iter::once(machine_type).chain(options).collect();
        Self {
            machine: Some(parts.join(",")),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(machine: Option<&str>) -> Guest {
        Guest {
            name: "a".parse().unwrap(),
            memory: Bytes(64 << 20),
            vcpus: 1,
            binary: "/usr/bin/qemu-system-x86_64".into(),
            machine: machine.map(str::to_owned),
            args: Vec::new(),
        }
    }

    #[test]
    fn a_travelling_guest_has_a_concrete_machine_type_and_keeps_its_options() {
        let cases = [
            (None, "pc-q35-10.0"),
            (Some("q35"), "pc-q35-10.0"),
            (Some("q35,accel=tcg"), "pc-q35-10.0,accel=tcg"),
            (
                Some("type=q35,accel=tcg,usb=off"),
                "pc-q35-10.0,accel=tcg,usb=off",
            ),
            (Some("accel=tcg,type=q35"), "pc-q35-10.0,accel=tcg"),
            (Some("accel=tcg"), "pc-q35-10.0,accel=tcg"),
        ];
        for (machine, expected) in cases {
            let travelling = guest(machine).with_machine_type("pc-q35-10.0");
            assert_eq!(travelling.machine.as_deref(), Some(expected), "{machine:?}");
        }
    }
}
