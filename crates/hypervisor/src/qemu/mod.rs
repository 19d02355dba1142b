//! The adapter for QEMU, versions 7.2 and later.
//!
//! Owns the layout of a guest's runtime directory (`qmp.sock`, `oob.sock`, `stderr.log`, `pid`)
//! and the part of QEMU's command line that makes a guest reachable there. Features are found by
//! asking this QEMU what it has, never by its version; but for postcopy beside multifd, which 7.2 does not refuse.

mod command;
mod inside;
mod launcher;
mod machine;
mod machine_types;
mod prepare;
mod processors;
mod settings;
mod status;
mod storage;

pub use launcher::QemuLauncher;
pub use machine::QemuMachine;
#[cfg(test)]
pub(crate) use status::progress;
