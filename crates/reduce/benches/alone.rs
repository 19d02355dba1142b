//! What codecs and changes take alone in a second on one core, without pages being found or described: what `stages` adds
//! to them is our own.
//!
//! `cargo bench -p drover-reduce --bench alone`. The same bytes as in `stages`.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

mod content;

use std::hint::black_box;

use content::programs;
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use drover_reduce::delta;
use drover_reduce::limits::DELTA_PART;
use zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer};

const PAGE: usize = 4096;
/// Of a chunk as sessions have them.
const CHUNK: usize = 30 * PAGE;
const CHUNKS: usize = 24;
const WINDOW_LOG: u32 = 22;

/// Chunks that went through a codec, in turn.
type Packed = Vec<Vec<u8>>;

fn codecs(criterion: &mut Criterion) {
    let content = programs(CHUNKS * CHUNK);
    let chunks: Vec<&[u8]> = content.chunks_exact(CHUNK).collect();
    let mut group = criterion.benchmark_group("codecs alone");
    group.throughput(Throughput::Bytes((chunks.len() * CHUNK) as u64));
    group.sample_size(10);
    memcpy(&mut group, &chunks);
    lz4(&mut group, &chunks);
    for level in [-5, -1, 1, 3] {
        zstd(&mut group, &chunks, level);
    }
    group.finish();
}

fn memcpy(group: &mut BenchmarkGroup<'_, WallTime>, chunks: &[&[u8]]) {
    let mut to = vec![0; CHUNK];
    group.bench_function("memcpy", |bench| {
        bench.iter(|| {
            for chunk in chunks {
                to.copy_from_slice(black_box(chunk));
                black_box(&mut to);
            }
        });
    });
}

/// Each chunk by itself, as it is used.
fn lz4(group: &mut BenchmarkGroup<'_, WallTime>, chunks: &[&[u8]]) {
    let mut to = vec![0; lz4_flex::block::get_maximum_output_size(CHUNK)];
    let packed: Packed = chunks
        .iter()
        .map(|chunk| lz4_flex::block::compress(chunk))
        .collect();
    tell("lz4", &packed);
    group.bench_function(BenchmarkId::new("pack", "lz4"), |bench| {
        bench.iter(|| {
            for chunk in chunks {
                black_box(lz4_flex::block::compress_into(chunk, &mut to).unwrap());
            }
        });
    });
    group.bench_function(BenchmarkId::new("read", "lz4"), |bench| {
        bench.iter(|| {
            for chunk in &packed {
                black_box(lz4_flex::block::decompress_into(chunk, &mut to).unwrap());
            }
        });
    });
}

/// With what went before, and each chunk ended by a flush, as it is used.
fn zstd(group: &mut BenchmarkGroup<'_, WallTime>, chunks: &[&[u8]], level: i32) {
    let name = format!("zstd:{level}");
    let packer = || {
        let mut context = CCtx::create();
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .unwrap();
        context
            .set_parameter(CParameter::WindowLog(WINDOW_LOG))
            .unwrap();
        context
    };
    let reader = || {
        let mut context = DCtx::create();
        let window = DParameter::WindowLogMax(WINDOW_LOG);
        context.set_parameter(window).unwrap();
        context
    };
    let mut to = Vec::with_capacity(2 * CHUNK);
    let mut pack = |context: &mut CCtx<'_>, chunk: &[u8]| {
        to.clear();
        let mut input = InBuffer::around(chunk);
        let mut output = OutBuffer::around(&mut to);
        let left = context.compress_stream2(&mut output, &mut input, ZSTD_e_flush);
        assert_eq!(left.unwrap(), 0, "twice a chunk is room enough");
        output.pos()
    };
    let mut context = packer();
    let packed: Packed = chunks
        .iter()
        .map(|chunk| packs(&mut context, chunk))
        .collect();
    tell(&name, &packed);
    group.bench_function(BenchmarkId::new("pack", &name), |bench| {
        let all = |context: &mut CCtx<'static>| {
            chunks
                .iter()
                .map(|chunk| pack(context, chunk))
                .sum::<usize>()
        };
        bench.iter_batched_ref(packer, all, BatchSize::LargeInput);
    });
    let mut raw = vec![0; CHUNK];
    group.bench_function(BenchmarkId::new("read", &name), |bench| {
        let all = |context: &mut DCtx<'static>| {
            for chunk in &packed {
                let mut input = InBuffer::around(chunk);
                let mut output = OutBuffer::around(&mut raw[..]);
                context.decompress_stream(&mut output, &mut input).unwrap();
                assert_eq!(output.pos(), CHUNK);
                black_box(&raw);
            }
        };
        bench.iter_batched_ref(reader, all, BatchSize::LargeInput);
    });
}

/// What a context makes of the next chunk.
fn packs(context: &mut CCtx<'_>, chunk: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(2 * CHUNK);
    let mut input = InBuffer::around(chunk);
    let mut output = OutBuffer::around(&mut to);
    context
        .compress_stream2(&mut output, &mut input, ZSTD_e_flush)
        .unwrap();
    to
}

fn tell(name: &str, packed: &Packed) {
    let wire: usize = packed.iter().map(Vec::len).sum();
    let all = packed.len() * CHUNK;
    println!("{name}: {} of 1000 bytes", wire * 1000 / all);
}

/// The page after a guest has written to it: so many places of so many bytes each, evenly spread.
fn written(page: &[u8], places: usize, bytes: usize) -> Vec<u8> {
    let mut page = page.to_vec();
    let apart = page.len() / places;
    for place in page.chunks_mut(apart).take(places) {
        for byte in &mut place[..bytes] {
            *byte = !*byte;
        }
    }
    page
}

fn deltas(criterion: &mut Criterion) {
    let content = programs(CHUNKS * CHUNK);
    let pages: Vec<&[u8]> = content.chunks_exact(PAGE).collect();
    let mut group = criterion.benchmark_group("deltas");
    group.throughput(Throughput::Bytes((pages.len() * PAGE) as u64));
    for (name, places, bytes) in [("128 bytes", 1, 128), ("nearly half, in 30 places", 30, 64)] {
        let changed: Vec<_> = pages
            .iter()
            .map(|page| written(page, places, bytes))
            .collect();
        let put = |old: &[u8], new: &[u8], to: &mut Vec<u8>| {
            to.clear();
            assert!(delta::put(old, new, PAGE / DELTA_PART, to));
        };
        let changes: Vec<_> = pages
            .iter()
            .zip(&changed)
            .map(|(old, new)| {
                let mut change = Vec::new();
                put(old, new, &mut change);
                change
            })
            .collect();
        let mut to = Vec::with_capacity(PAGE);
        group.bench_function(BenchmarkId::new("find", name), |bench| {
            bench.iter(|| {
                for (old, new) in pages.iter().zip(&changed) {
                    put(old, new, &mut to);
                    black_box(&to);
                }
            });
        });
        let mut page = vec![0; PAGE];
        group.bench_function(BenchmarkId::new("copy and apply", name), |bench| {
            bench.iter(|| {
                for (old, change) in pages.iter().zip(&changes) {
                    page.copy_from_slice(old);
                    delta::apply(change, &mut page).unwrap();
                    black_box(&page);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, codecs, deltas);
criterion_main!(benches);
