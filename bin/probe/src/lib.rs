//! The program inside lab guests: fills memory, rewrites a part of it, verifies all of it, and
//! says every 10 ms that it lives.
//!
//! It is process 1 of a guest that has nothing else to do. The library holds what both the guest
//! and the host that reads its lines need to know; it does no I/O. The program around it is in
//! `main.rs`.
//!
//! ```text
//! kernel command line -> settings      serial in:  commands, one byte each
//! initramfs /corpus   -> content       serial out: lines (report)
//!                          |                          ^
//!                        arena <- work (rewrite, verify)
//! ```
//!
//! # Invariant
//! The same seed, settings and corpus give the same memory after the same number of rewrites.

pub mod arena;
pub mod content;
mod random;
pub mod report;
pub mod settings;
pub mod work;
