//! What it takes to find pages in streams of real QEMUs, on one core.
//!
//! `cargo bench -p drover-qstream`. The packets of a channel of multifd come again and again; a main channel is as it was.
//! *Shown*: every byte of each read, as where bytes are copied. *Glanced at*: only those that say how it goes on, as where the
//! others stay in the kernel.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

#[path = "../tests/kept/mod.rs"]
mod kept;
#[path = "../tests/model/mod.rs"]
mod model;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drover_qstream::{Channel, Kind, Next};

/// What a channel's thread reads at once: a chunk.
const READ: usize = 256 << 10;

/// What comes before the packets of a channel of multifd.
const BEGINNING: usize = 64;

/// How often packets come again, so that they are some 16 MiB.
const AGAIN: usize = 16;

/// The largest channel of multifd of either version, and the main channel of a guest that has no other.
const STREAMS: [(&str, bool); 4] = [
    ("10.0-multifd-2", true),
    ("7.2-multifd-1", true),
    ("10.0-one-channel", false),
    ("10.0-postcopy", false),
];

/// Shows all; how much was found.
fn shown(bytes: &[u8]) -> (Channel, u64) {
    let (mut channel, mut count) = (Channel::new(model::PAGE as u32), 0);
    for piece in bytes.chunks(READ) {
        channel.feed(piece, &mut |found| {
            black_box(found);
            count += 1;
        });
    }
    (channel, count)
}

/// Shows no more than it has to.
fn glanced(bytes: &[u8]) -> (Channel, u64) {
    let (mut channel, mut count) = (Channel::new(model::PAGE as u32), 0);
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = match channel.next() {
            Next::Skip(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Next::Show(count) => count,
        };
        let (now, left) = rest.split_at(most.min(rest.len()));
        match channel.next() {
            Next::Skip(_) => channel.skip(now.len() as u64),
            Next::Show(_) => channel.feed(now, &mut |found| {
                black_box(found);
                count += 1;
            }),
        }
        rest = left;
    }
    (channel, count)
}

fn find(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("find");
    group.sample_size(20);
    for (name, is_multifd) in STREAMS {
        let mut bytes = kept::stream(name);
        if is_multifd {
            let packets = bytes[BEGINNING..].to_vec();
            for _ in 1..AGAIN {
                bytes.extend_from_slice(&packets);
            }
        }
        let ((channel, found), (_, other)) = (shown(&bytes), glanced(&bytes));
        assert_eq!(found, other, "{name}");
        if is_multifd {
            assert_eq!(channel.kind(), Kind::Multifd, "{name}");
        }
        println!("{name}: {} bytes, {found} pages", bytes.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("shown", name), |bench| {
            bench.iter(|| shown(&bytes));
        });
        group.bench_function(BenchmarkId::new("glanced at", name), |bench| {
            bench.iter(|| glanced(&bytes));
        });
    }
    group.finish();
}

criterion_group!(benches, find);
criterion_main!(benches);
