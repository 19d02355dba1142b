//! What guests hold beside the probe's pages, taken from this machine: files for a guest's disk,
//! programs and prose for its initramfs. Nothing from places where secrets are kept.

mod compressed;
mod disk;
mod files;
mod programs;
mod prose;

pub use disk::{path as disk_path, write as write_disk};
pub use files::list;
pub use programs::{Program, check, needed};
pub use prose::collect as prose;
