//! What each stage does in a second on one core, beside `memcpy`. Codecs alone are in `alone`.
//!
//! `cargo bench -p drover-reduce --bench stages`. The pages are those of the programs that are installed here, as a guest has them in
//! its page cache.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

mod content;

use std::hint::black_box;

use content::programs;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drover_reduce::kept::{destination, source};
use drover_reduce::{Choice, Class, Codec, Decoder, Encoder, Level, PageId, Span};

const PAGE: usize = 4096;
/// Of a chunk as sessions have them.
const CHUNK: usize = 30 * PAGE;
const WINDOW_LOG: u32 = 22;

fn level(level: i8) -> Codec {
    Codec::Zstd(Level::new(level).unwrap())
}

fn choice(codec: Codec) -> Choice {
    Choice {
        ordinary: codec,
        dense: Codec::None,
    }
}

fn spans(chunk: &[u8], first: u64) -> Vec<Span> {
    let pages = (chunk.len() / PAGE) as u64;
    (first..first + pages)
        .map(|n| Span::Page(PageId(n)))
        .collect()
}

/// Describes a chunk by what is in it alone.
fn alone(encoder: &mut Encoder, chunk: &[u8], first: u64) {
    encoder.look(chunk, &spans(chunk, first));
    encoder.write(chunk, &mut ());
}

/// What chunks become, one after the other.
fn expand(decoder: &mut Decoder, packed: &[Vec<u8>], kept: &mut destination::Kept) {
    let mut raw = Vec::new();
    for chunk in packed {
        let unpacked = decoder.unpack(chunk).unwrap();
        let fetched = unpacked.fetch(&()).unwrap();
        let expanded = fetched.expand(kept, &mut raw).unwrap();
        black_box(expanded.check().unwrap());
    }
}

/// Chunks of pages that both ends keep by then, with the destination's end.
fn kept_by_both(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Decoder, destination::Kept) {
    let mut encoder = Encoder::new(0, PAGE, WINDOW_LOG);
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let mut here = source::Kept::new(PAGE, 1 << 16);
    let mut there = destination::Kept::new(PAGE, 1 << 16);
    let mut round = |begins: u64| {
        let pack = |(number, chunk): (u64, &&[u8])| {
            let mut packed = Vec::new();
            let spans = spans(chunk, number * 30);
            encoder.describe(begins + number, chunk, &spans, &mut here, &mut ());
            let none = choice(Codec::None);
            encoder.pack(chunk, none, &mut packed).unwrap();
            packed
        };
        let packed: Vec<_> = (0..).zip(chunks).map(pack).collect();
        expand(&mut decoder, &packed, &mut there);
        packed
    };
    round(0);
    let packed = round(chunks.len() as u64);
    (packed, decoder, there)
}

fn stages(criterion: &mut Criterion) {
    let content = programs(24 * CHUNK);
    let chunks: Vec<&[u8]> = content.chunks_exact(CHUNK).collect();
    let all = (chunks.len() * CHUNK) as u64;
    let mut group = criterion.benchmark_group("stages");
    group.throughput(Throughput::Bytes(all)).sample_size(20);

    let mut to = vec![0; CHUNK];
    group.bench_function("memcpy", |bench| {
        bench.iter(|| {
            for chunk in &chunks {
                to.copy_from_slice(black_box(chunk));
                black_box(&mut to);
            }
        });
    });
    group.bench_function("class", |bench| {
        bench.iter(|| {
            let dense = |chunk: &&[u8]| {
                chunk
                    .chunks(PAGE)
                    .filter(|page| Class::of(page) == Class::Dense)
                    .count()
            };
            chunks.iter().map(dense).sum::<usize>()
        });
    });
    group.bench_function("describe, nothing kept", |bench| {
        let encode = |encoder: &mut Encoder| {
            for (number, chunk) in (0..).zip(&chunks) {
                alone(encoder, chunk, number * 30);
            }
        };
        let new = || Encoder::new(0, PAGE, WINDOW_LOG);
        bench.iter_batched_ref(new, encode, criterion::BatchSize::LargeInput);
    });
    group.bench_function("describe", |bench| {
        bench.iter_batched_ref(
            || {
                (
                    Encoder::new(0, PAGE, WINDOW_LOG),
                    source::Kept::new(PAGE, 1 << 16),
                )
            },
            |(encoder, kept)| {
                for (number, chunk) in (0..).zip(&chunks) {
                    let spans = spans(chunk, number * 30);
                    encoder.describe(number, chunk, &spans, kept, &mut ());
                }
            },
            criterion::BatchSize::LargeInput,
        );
    });
    group.bench_function("describe again", |bench| {
        let mut encoder = Encoder::new(0, PAGE, WINDOW_LOG);
        let mut kept = source::Kept::new(PAGE, 1 << 16);
        bench.iter(|| {
            for (number, chunk) in (0..).zip(&chunks) {
                let spans = spans(chunk, number * 30);
                encoder.describe(number, chunk, &spans, &mut kept, &mut ());
            }
        });
    });
    group.bench_function("expand again", |bench| {
        let (packed, mut decoder, mut kept) = kept_by_both(&chunks);
        let wire: usize = packed.iter().map(Vec::len).sum();
        assert!(
            wire as u64 * 20 < all,
            "{wire} of {all}: pages are not kept"
        );
        bench.iter(|| expand(&mut decoder, &packed, &mut kept));
    });
    group.finish();
}

fn codecs(criterion: &mut Criterion) {
    let content = programs(24 * CHUNK);
    let chunks: Vec<&[u8]> = content.chunks_exact(CHUNK).collect();
    let all = (chunks.len() * CHUNK) as u64;
    let mut group = criterion.benchmark_group("codecs");
    group.throughput(Throughput::Bytes(all)).sample_size(10);
    for (name, codec) in [
        ("none", Codec::None),
        ("lz4", Codec::Lz4),
        ("zstd:-5", level(-5)),
        ("zstd:-1", level(-1)),
        ("zstd:1", level(1)),
        ("zstd:3", level(3)),
    ] {
        let encode = |encoder: &mut Encoder| {
            let pack = |chunk: &&[u8]| {
                let mut packed = Vec::new();
                alone(encoder, chunk, 0);
                encoder.pack(chunk, choice(codec), &mut packed).unwrap();
                packed
            };
            chunks.iter().map(pack).collect::<Vec<_>>()
        };
        let new = || Encoder::new(0, PAGE, WINDOW_LOG);
        let packed = encode(&mut new());
        let wire: usize = packed.iter().map(Vec::len).sum();
        println!("{name}: {} of 1000 bytes", wire as u64 * 1000 / all);
        group.bench_function(BenchmarkId::new("pack", name), |bench| {
            bench.iter_batched_ref(new, encode, criterion::BatchSize::LargeInput);
        });
        group.bench_function(BenchmarkId::new("read", name), |bench| {
            let new = || Decoder::new(CHUNK, PAGE, WINDOW_LOG);
            let mut kept = destination::Kept::new(PAGE, 0);
            let mut decode = |decoder: &mut Decoder| expand(decoder, &packed, &mut kept);
            bench.iter_batched_ref(new, &mut decode, criterion::BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, stages, codecs);
criterion_main!(benches);
