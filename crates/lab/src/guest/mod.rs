//! The guest: what it boots from, how it is defined, and what it tells.

pub(crate) mod assembler;
pub mod console;
pub mod contents;
mod corpus;
pub(crate) mod cpio;
pub mod definition;
pub mod heartbeats;
mod image;
pub(crate) mod kernel;

pub(crate) use image::static_program;
pub use image::{Image, find_probe};
