//! What is needed of a hypervisor, and its adapter for QEMU.
//!
//! [`Hypervisor`] starts guests and finds them again; [`Machine`] is one running guest of it. [`Movable`] is what a
//! migration needs of a guest, whoever started it, and [`Storage`] what its hypervisor does with its disks: another adapter, such as the agent's for libvirt's domains, can stand
//! behind that one. [`QemuLauncher`] and [`QemuMachine`] are QEMU's, over [`Qmp`].
//!
//! ```text
//!   agent ── dyn Hypervisor ── QemuLauncher ── starts, finds ──▶ QEMU process
//!     │                                                           │ qmp.sock  commands, events
//!     └────── dyn Machine ──── QemuMachine ── Qmp, Qmp (oob) ─────┤ oob.sock  yank, migrate-recover
//!                                         └── pidfd ──────────────┘ exit, stderr.log
//! ```
//!
//! # Invariant
//! Whatever a hypervisor sends or does (garbage, silence, an endless line, dying) becomes an error
//! or an event within a bound of [`limits`]. A guest is only ever run by [`Movable::resume`] or
//! [`Start::Run`]; nothing here decides to.

mod events;
mod guest;
mod hypervisor;
mod inside;
pub mod limits;
mod machine;
mod process;
mod progress;
mod qemu;
pub mod qmp;
mod settings;
mod storage;

pub use events::{MachineEvents, Teller};
pub use guest::Guest;
pub use hypervisor::{
    AdoptError, Hypervisor, InspectError, MachineType, ProcessorOffer, Processors, Start,
    StartError,
};
pub use inside::{Inside, NetworkCard};
pub use machine::{
    Answer, Boxed, Machine, MachineError, MachineEvent, MigrationAddress, Movable, UnixMicros,
};
pub use process::{Exit, ExitStatus, ProcessId};
pub use progress::{DiskProgress, MigrationProgress, MigrationStatus, RunState};
pub use qemu::{QemuLauncher, QemuMachine};
pub use qmp::{Qmp, QmpError};
pub use settings::{AppliedSettings, Compression, MigrationSettings, ZeroPages};
pub use storage::{Copied, CopyState, Drive, Export, Mirror, Storage};
