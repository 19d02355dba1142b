//! What it takes to know, to seal and to store pages, on one core.
//!
//! `cargo bench -p drover-pagestore --bench pages`. The pages are those of the programs that are installed here.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

#[path = "../../reduce/benches/content/mod.rs"]
mod content;

use std::fs::File;
use std::hint::black_box;

use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use content::programs;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use drover_pagestore::{
    Baseline, DigestKey, Filler, KEY_BYTES, Recorder, SEAL_KEY_BYTES, SealKey, Segment, Shape,
};
use rustix::fs::{MemfdFlags, memfd_create};

const PAGE: usize = 4096;
const PAGES: u32 = 2048;
/// Pages that are offered at once: those of a chunk.
const AT_ONCE: usize = 60;

const SHAPE: Shape = Shape {
    page_bytes: PAGE as u32,
    places: PAGES,
};

fn seal() -> SealKey {
    SealKey::new([3; SEAL_KEY_BYTES])
}

fn memory() -> File {
    File::from(memfd_create("bench", MemfdFlags::CLOEXEC).unwrap())
}

/// An empty file of pages, sealed or not.
fn segment(sealed: Option<&SealKey>) -> Segment {
    match sealed {
        Some(key) => Segment::sealed(memory(), SHAPE, key).unwrap(),
        None => Segment::in_memory(SHAPE).unwrap(),
    }
}

fn filler(segment: &Segment, sealed: Option<&SealKey>) -> Filler {
    Filler::new(segment.file(), DigestKey::new([7; KEY_BYTES]), sealed).unwrap()
}

fn pages(criterion: &mut Criterion) {
    let content = programs(PAGES as usize * PAGE);
    let mut group = criterion.benchmark_group("pages");
    group.throughput(Throughput::Bytes(content.len() as u64));
    group.sample_size(20);

    let key = DigestKey::new([7; KEY_BYTES]);
    group.bench_function("digest", |bench| {
        bench.iter(|| {
            for page in content.chunks_exact(PAGE) {
                black_box(key.digest(page));
            }
        });
    });
    let aead = RandomizedNonceKey::new(&AES_256_GCM, &[3; SEAL_KEY_BYTES]).unwrap();
    let mut page = vec![0; PAGE];
    group.bench_function("seal alone", |bench| {
        bench.iter(|| {
            for from in content.chunks_exact(PAGE) {
                page.copy_from_slice(from);
                let sealed = aead.seal_in_place_separate_tag(Aad::empty(), &mut page);
                let _ = black_box(sealed.unwrap());
            }
        });
    });
    for (name, sealed) in [("", None), (", sealed", Some(&seal()))] {
        group.bench_function(format!("add{name}"), |bench| {
            let add = |(_, filler): &mut (Segment, Filler)| {
                for pages in content.chunks(AT_ONCE * PAGE) {
                    filler.add(pages).unwrap();
                }
            };
            let empty = || {
                let segment = segment(sealed);
                let filler = filler(&segment, sealed);
                (segment, filler)
            };
            bench.iter_batched_ref(empty, add, BatchSize::PerIteration);
        });
        let full = segment(sealed);
        filler(&full, sealed).add(&content).unwrap();
        // Pages that are there twice were added once.
        let count = full.count().unwrap();
        group.throughput(Throughput::Bytes(u64::from(count) * PAGE as u64));
        group.bench_function(format!("read{name}"), |bench| {
            bench.iter(|| {
                for number in 0..count {
                    full.read(number, &mut page).unwrap();
                    black_box(&page);
                }
            });
        });
        group.throughput(Throughput::Bytes(content.len() as u64));
    }
    group.bench_function("record", |bench| {
        let addresses: Vec<u64> = (0..u64::from(PAGES)).collect();
        let record = |recorder: &mut Recorder| {
            let batches = addresses.chunks(AT_ONCE);
            for (addresses, pages) in batches.zip(content.chunks(AT_ONCE * PAGE)) {
                recorder.record(addresses, pages).unwrap();
            }
        };
        let empty = || {
            let file = memory();
            Baseline::make(&file, SHAPE).unwrap();
            Recorder::new(file, &seal()).unwrap()
        };
        bench.iter_batched_ref(empty, record, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, pages);
criterion_main!(benches);
