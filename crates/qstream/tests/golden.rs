//! What is found in streams of real QEMUs, of which neither pages nor devices are kept (`hypervisor/tests/qemu_golden.rs` makes
//! them anew).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod kept;
mod model;

use std::collections::BTreeMap;
use std::fmt::Write;

use drover_qstream::{Block, Found};
use kept::streams;
use model::{fed, glanced};

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
