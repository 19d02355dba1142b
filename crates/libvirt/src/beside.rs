use crate::error::Refusal;
use crate::raw;

/// What libvirt has of a domain beside its definition, and does with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beside {
    /// Snapshots: it migrates no domain that has any (`qemuMigrationSrcIsAllowed`).
    pub snapshots: u32,
    /// Checkpoints, from which backups tell what changed since. It takes none along, and forgets them with the definition.
    pub checkpoints: u32,
    /// A backup is made of it.
    pub is_backed_up: bool,
}

/// That of one of them. Nothing of it waits for the domain's QEMU.
pub(crate) fn read(domain: &raw::Domain<'_>) -> Result<Beside, Refusal> {
    let backup = match domain.backup() {
        Err(refusal) if refusal.is_no_backup() => None,
        backup => Some(backup?),
    };
    Ok(Beside {
        snapshots: domain.snapshots()?,
        checkpoints: domain.checkpoints()?,
        is_backed_up: backup.is_some(),
    })
}
