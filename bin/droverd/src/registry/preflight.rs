//! What can be known of a guest that arrives before its QEMU is started.

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::InspectError;
use drover_types::with_sources;

use super::reservation::Reservation;

impl Reservation {
    /// The preconditions of a guest that arrives which do not need it to be started.
    pub(super) async fn check_incoming(&self, definition: &VmDefinition) -> Result<(), Refusal> {
        let (name, config) = (self.name(), &self.inner.config);
        let host = &config.host;
        definition.check().map_err(|error| {
            let message = format!("the definition of guest {name} cannot be used: {error}");
            Refusal::new(ErrorCode::DefinitionInvalid, message)
        })?;
        let binary = &definition.qemu;
        if !config.qemu_binaries.contains(binary) {
            let message = format!("{host} does not let peers start {}", binary.display());
            let next = format!("add it to `qemu.binaries` in droverd.toml on {host}");
            return Err(Refusal::new(ErrorCode::QemuNotAllowed, message).next(next));
        }
        let types = self.inner.hypervisor.machine_types(binary).await;
        let types = types.map_err(|error| {
            let code = match error {
                InspectError::Binary { .. } => ErrorCode::QemuMissing,
                _ => ErrorCode::QemuFailed,
            };
            Refusal::new(code, format!("on {host}: {}", with_sources(&error)))
                .next(format!("install the QEMU of guest {name} on {host}"))
        })?;
        let wanted = definition.machine.as_deref().and_then(machine_type_of);
        match wanted {
            Some(wanted) if !types.iter().any(|t| t.name == wanted) => {
                let message = format!(
                    "{} on {host} has no machine type {wanted}",
                    binary.display()
                );
                let next = format!("install a newer QEMU on {host}");
                Err(Refusal::new(ErrorCode::MachineTypeMissing, message).next(next))
            }
            _ => Ok(()),
        }
    }
}

/// The type in `-machine`'s value: `q35,accel=tcg`, `type=q35`, or none in `accel=tcg`.
fn machine_type_of(machine: &str) -> Option<&str> {
    machine
        .split(',')
        .find_map(|part| match part.split_once('=') {
            Some(("type", name)) => Some(name),
            Some(_) => None,
            None => Some(part),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_type_is_found_among_its_options() {
        assert_eq!(machine_type_of("q35,accel=tcg"), Some("q35"));
        assert_eq!(machine_type_of("accel=tcg,type=q35"), Some("q35"));
        assert_eq!(machine_type_of("accel=tcg"), None);
    }
}
