//! What is found in streams of real QEMUs, of which neither pages nor devices are kept (`hypervisor/tests/qemu_golden.rs` makes
//! them anew).

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod model;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use drover_qstream::{Block, Found};
use model::{fed, glanced};

/// What stands for a byte of a page or a device: it looks like the end of a section.
const BLANK: u8 = 0x7e;

/// Streams by their names.
fn streams() -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let named = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, whole(&fs::read(entry.path()).unwrap()))
    });
    named.collect()
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

/// Blocks of the guests here by their number.
fn name(block: Block) -> &'static str {
    let names = [
        "pc.ram",
        "pc.bios",
        "pc.rom",
        "system.flash0",
        "/rom@etc/acpi/tables",
        "/rom@etc/table-loader",
        "/rom@etc/acpi/rsdp",
        "huge",
    ];
    let named = |name: &&str| Block::named(name.as_bytes()) == block;
    names.into_iter().find(named).unwrap_or("another block")
}

#[test]
fn in_streams_of_each_version_it_is_found_what_was_there() {
    let mut all = String::new();
    for (stream, bytes) in streams() {
        let (channel, found) = fed([&bytes[..]]);
        writeln!(all, "{stream}: {} bytes, {:?}", bytes.len(), channel.kind()).unwrap();
        let mut blocks = BTreeMap::<_, [(u32, u64); 2]>::new();
        for found in &found {
            let (block, offset, which) = match found {
                Found::Page(page) => (page.block, page.offset, 0),
                Found::Filled { block, offset } => (*block, *offset, 1),
            };
            let (count, offsets) = &mut blocks.entry(name(block)).or_default()[which];
            *count += 1;
            *offsets = offsets.wrapping_mul(31) ^ offset;
        }
        for (block, [pages, filled]) in blocks {
            writeln!(
                all,
                "  {block}: {} pages ({:x}), {} filled ({:x})",
                pages.0, pages.1, filled.0, filled.1
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn how_their_bytes_are_divided_makes_no_difference() {
    for (stream, bytes) in streams() {
        let (channel, found) = fed([&bytes[..]]);
        for (other, others) in [
            fed(bytes.chunks(1)),
            fed(bytes.chunks(10_007)),
            glanced(bytes.chunks(10_007)),
            glanced([&bytes[..]]),
        ] {
            assert_eq!(channel.kind(), other.kind(), "{stream}");
            assert!(found == others, "{stream}");
        }
    }
}
