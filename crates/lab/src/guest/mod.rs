//! The guest: what it boots from, how it is defined, and what it tells.

mod assembler;
pub mod console;
pub mod contents;
mod corpus;
mod cpio;
pub mod definition;
pub mod heartbeats;
mod image;
mod kernel;

pub use image::{Image, find_probe};
