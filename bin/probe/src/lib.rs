//! The program inside lab guests: fills memory, rewrites a part of it, verifies all of it, and
//! says every 10 ms that it lives.
//!
//! It is process 1 of a guest that has nothing else to do but to hold files, or documents in a
//! key-value store or a Python process, and to write to a disk of its own where it has one. The library holds what both the guest
//! and the host that reads its lines need to know; it does no I/O. The program around it is in
//! `main.rs`.
//!
//! ```text
//! kernel command line -> settings      serial in:  commands, one byte each
//! initramfs /corpus   -> content       serial out: lines (report)
//!                          |                          ^
//!                        arena <- work (rewrite, verify)
//! disk -> files                      |
//! documents -> store, Python  held <-+ (change, verify when asked)
//! disk <- pages (disk)          |        beside it, all the time: read, verify, rewrite
//!                             held
//! ```
//!
//! # Invariant
//! The same seed, settings and corpus give the same memory after the same number of rewrites.

pub mod arena;
pub mod content;
pub mod disk;
pub mod documents;
pub mod held;
pub mod pace;
mod random;
pub mod report;
pub mod settings;
pub mod sums;
mod turns;
pub mod work;
