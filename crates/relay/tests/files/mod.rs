//! Files of stored pages, as agents give them to relays.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each of the tests' programs uses its part"
)]

use std::fs::File;

use drover_pagestore::{Baseline, Segment, shape_within};
use drover_relay::{BaselineFile, DigestKey, SealKey, StoredFile};

use crate::streams::PAGE;

pub fn seal() -> SealKey {
    SealKey::new([3; 32])
}

/// A file for a guest's checkpoint.
pub fn checkpoint() -> Segment {
    let file = tempfile::tempfile().unwrap();
    let shape = shape_within(16 << 20, PAGE as u32, true).unwrap();
    Segment::sealed(file, shape, &seal()).unwrap()
}

/// A checkpoint that a relay is to read or to fill.
pub fn sealed(checkpoint: &Segment, fill: bool) -> StoredFile {
    StoredFile {
        file: checkpoint.file().try_clone().unwrap(),
        key: DigestKey::new([7; 32]),
        seal: Some(seal()),
        fill,
        waiting_bytes: 0,
    }
}

/// A file for a guest's baseline.
pub fn baseline() -> File {
    let file = tempfile::tempfile().unwrap();
    let shape = Baseline::shape_within(16 << 20, PAGE as u32).unwrap();
    Baseline::make(&file, shape).unwrap();
    file
}

/// A baseline that a relay is to read or to record.
pub fn given(file: &File) -> BaselineFile {
    BaselineFile {
        file: file.try_clone().unwrap(),
        seal: seal(),
        waiting_bytes: 0,
    }
}
