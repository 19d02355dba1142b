//! What is known of one guest between two requests.

use std::sync::Arc;

use drover_api::ExitView;
use drover_hypervisor::{Machine, ProcessId};
use drover_types::Bytes;

use super::Purpose;
use super::record::Record;

/// One guest that runs, ran, or is reserved.
#[derive(Debug, Default)]
pub struct Slot {
    /// Who may change it.
    pub reserved: Option<Purpose>,
    /// Memory that it will take once its process has started.
    pub claimed: Bytes,
    /// Its process.
    pub process: Option<Running>,
    /// How the last one ended.
    pub last_exit: Option<ExitView>,
}

impl Slot {
    /// Nothing is known that a definition file would not tell.
    pub fn is_empty(&self) -> bool {
        self.reserved.is_none() && self.process.is_none() && self.last_exit.is_none()
    }
}

/// A guest's process.
#[derive(Debug, Clone)]
pub struct Running {
    /// Which.
    pub process: ProcessId,
    /// The way to talk to it; `None` while its monitor does not answer.
    pub machine: Option<Arc<dyn Machine>>,
    /// What it was started from and is here for; `None` when the record was lost.
    pub record: Option<Record>,
    /// The concrete machine type, once asked.
    pub machine_type: Option<String>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// Its end was asked for.
    pub ending: bool,
}
