//! Disks that are copied to here: exported by the guest's QEMU until it runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use drover_api::NewDisk;
use drover_hypervisor::{Drive, Export, Machine, MachineError};
use drover_types::{HostName, MigrationId};

use super::name;

/// Those of one guest.
#[derive(Debug)]
pub struct Arriving {
    /// Where it comes from.
    pub source: HostName,
    pub new: Vec<NewDisk>,
    /// Where their files are made.
    pub paths: Vec<PathBuf>,
    /// Its source may have begun to copy: what becomes of the files is its word.
    begun: AtomicBool,
    /// What is to be told of how their files were made.
    pub made: std::sync::Mutex<Option<String>>,
}

impl Arriving {
    pub fn new(source: &HostName, new: Vec<NewDisk>) -> Self {
        Self {
            source: source.clone(),
            paths: new.iter().map(|disk| disk.path.clone()).collect(),
            new,
            begun: AtomicBool::new(false),
            made: std::sync::Mutex::default(),
        }
    }

    /// Those of which an earlier agent made the files.
    pub fn taken_up(source: &HostName, paths: Vec<PathBuf>) -> Self {
        Self {
            begun: AtomicBool::new(true),
            paths,
            ..Self::new(source, Vec::new())
        }
    }

    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Has QEMU let the source's write to them.
    ///
    /// # Errors
    /// QEMU does not, or has none of its drives in such a file.
    pub async fn export(
        &self,
        machine: &dyn Machine,
        migration: MigrationId,
        socket: &Path,
    ) -> Result<(), MachineError> {
        let drives = machine.drives().await?;
        let exports = exports(&self.new, &drives, migration)?;
        self.begun.store(true, Ordering::Release);
        machine.export(socket, &exports).await
    }
}

/// What is exported by which name: the guest is defined as it is at its source, so that its disks are by the same paths.
fn exports(
    new: &[NewDisk],
    drives: &[Drive],
    migration: MigrationId,
) -> Result<Vec<Export>, MachineError> {
    let numbered = new.iter().enumerate();
    let each = numbered.map(|(number, disk)| {
        let is_in = |drive: &&Drive| drive.path() == disk.path;
        let drive = drives.iter().find(is_in);
        let drive = drive.ok_or_else(|| MachineError::Invalid {
            operation: "export its disks",
            problem: format!(
                "it has none in {}, where its disk {} is made",
                disk.path.display(),
                disk.target
            ),
        })?;
        Ok(Export {
            name: name(migration, number),
            node: drive.node.clone(),
        })
    });
    each.collect()
}
