//! Streams of real QEMUs as they are kept: without the bytes of pages and devices, which something else stands for.

#![allow(dead_code, reason = "each program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands for a byte of a page or a device: it looks like the end of a section.
const BLANK: u8 = 0x7e;

/// All of them by their names.
pub fn streams() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder()).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let bytes = stream(&name);
        (name, bytes)
    });
    named.collect()
}

/// The one of that name.
pub fn stream(name: &str) -> Vec<u8> {
    whole(&fs::read(folder().join(name)).unwrap())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// As it was, with something in place of what was not kept.
fn whole(mut golden: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((lengths, rest)) = golden.split_first_chunk::<8>() {
        let [kept, blank] = [&lengths[..4], &lengths[4..]]
            .map(|length| u32::from_be_bytes(length.try_into().unwrap()) as usize);
        bytes.extend_from_slice(&rest[..kept]);
        bytes.resize(bytes.len() + blank, BLANK);
        golden = &rest[kept..];
    }
    bytes
}
