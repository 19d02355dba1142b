//! What it takes to look digests up, beside a `HashMap`.
//!
//! `cargo bench -p drover-pagestore`. As many as the source has place for with 256 MiB of `migration.reduction_memory`.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

use std::collections::HashMap;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drover_pagestore::{Digest, DigestKey, KEY_BYTES, KnownDigests};

const COUNT: u32 = 1_458_000;
/// Looked up in one round.
const LOOKED: u32 = 100_000;

fn digests(first: u32, count: u32) -> Vec<Digest> {
    let key = DigestKey::new([9; KEY_BYTES]);
    let each = first..first + count;
    each.map(|number| key.digest(&number.to_be_bytes()))
        .collect()
}

fn known(digests: &[Digest]) -> KnownDigests {
    let mut known = KnownDigests::new(COUNT);
    for digest in digests {
        known.add(*digest);
    }
    known
}

fn model(digests: &[Digest]) -> HashMap<Digest, u32> {
    let mut map = HashMap::new();
    for (digest, number) in digests.iter().zip(0..) {
        map.entry(*digest).or_insert(number);
    }
    map
}

/// Every so many, so that none is near the one before.
fn spread(digests: &[Digest]) -> Vec<Digest> {
    let step = digests.len() / LOOKED as usize;
    digests.iter().step_by(step.max(1)).copied().collect()
}

fn lookups(criterion: &mut Criterion) {
    let all = digests(0, COUNT);
    let (known, map) = (known(&all), model(&all));
    let others = digests(COUNT, LOOKED);
    let mut group = criterion.benchmark_group("lookups");
    for (name, wanted) in [("there", spread(&all)), ("not there", others)] {
        group.throughput(Throughput::Elements(wanted.len() as u64));
        group.bench_function(format!("KnownDigests, {name}"), |bench| {
            bench.iter(|| {
                wanted
                    .iter()
                    .filter_map(|at| known.find(at))
                    .map(black_box)
                    .count()
            });
        });
        group.bench_function(format!("HashMap, {name}"), |bench| {
            bench.iter(|| {
                wanted
                    .iter()
                    .filter_map(|at| map.get(at))
                    .map(black_box)
                    .count()
            });
        });
    }
    group.finish();
}

fn additions(criterion: &mut Criterion) {
    let all = digests(0, COUNT);
    let mut group = criterion.benchmark_group("additions");
    group.throughput(Throughput::Elements(u64::from(COUNT)));
    group.sample_size(10);
    group.bench_function("KnownDigests", |bench| bench.iter(|| known(&all)));
    group.bench_function("HashMap", |bench| bench.iter(|| model(&all)));
    group.finish();
}

criterion_group!(benches, lookups, additions);
criterion_main!(benches);
