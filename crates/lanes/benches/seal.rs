//! What the ciphers of lanes take alone in a second on one core: bytes in records, as many as are encrypted at once.
//!
//! `cargo bench -p drover-lanes`. What TLS and the kernel add is in `cargo bench -p drover-relay`.

#![allow(clippy::unwrap_used)] // a bench stops where it cannot go on

#[path = "../../reduce/benches/content/mod.rs"]
mod content;

use std::hint::black_box;

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use content::programs;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drover_lanes::limits::SEAL_BYTES;

/// Bytes of a record of TLS 1.3 (RFC 8446, 5.1), and what comes behind them: the kind of content.
const RECORD: usize = 1 << 14;
const KIND: [u8; 1] = [23];

/// The header of a record, which is not encrypted.
const HEADER: [u8; 5] = [23, 3, 3, 0x40, 0x11];

fn key(algorithm: &'static Algorithm) -> LessSafeKey {
    let bytes = vec![5; algorithm.key_len()];
    LessSafeKey::new(UnboundKey::new(algorithm, &bytes).unwrap())
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Puts records with these bytes there.
fn seal(key: &LessSafeKey, bytes: &[u8], records: &mut [Vec<u8>]) {
    for ((part, record), number) in bytes.chunks(RECORD).zip(records).zip(0..) {
        record.clear();
        record.extend_from_slice(part);
        record.extend(KIND);
        key.seal_in_place_append_tag(nonce(number), Aad::from(HEADER), record)
            .unwrap();
    }
}

fn ciphers(criterion: &mut Criterion) {
    let content = programs(64 * SEAL_BYTES);
    let mut group = criterion.benchmark_group("ciphers");
    group.throughput(Throughput::Bytes(content.len() as u64));
    group.sample_size(20);
    let mut to = vec![0; SEAL_BYTES];
    group.bench_function("memcpy", |bench| {
        bench.iter(|| {
            for bytes in content.chunks_exact(SEAL_BYTES) {
                to.copy_from_slice(black_box(bytes));
                black_box(&mut to);
            }
        });
    });
    for (name, algorithm) in [
        ("AES-128-GCM", &AES_128_GCM),
        ("ChaCha20-Poly1305", &CHACHA20_POLY1305),
    ] {
        let key = key(algorithm);
        let empty = || -> Vec<Vec<u8>> {
            let records = 0..SEAL_BYTES / RECORD;
            records.map(|_| Vec::with_capacity(RECORD + 64)).collect()
        };
        let mut records = empty();
        group.bench_function(BenchmarkId::new("seal", name), |bench| {
            bench.iter(|| {
                for bytes in content.chunks_exact(SEAL_BYTES) {
                    seal(&key, bytes, &mut records);
                    black_box(&records);
                }
            });
        });
        let sealed: Vec<_> = content
            .chunks_exact(SEAL_BYTES)
            .map(|bytes| {
                let mut records = empty();
                seal(&key, bytes, &mut records);
                records
            })
            .collect();
        let mut record = Vec::with_capacity(RECORD + 64);
        group.bench_function(BenchmarkId::new("copy and open", name), |bench| {
            bench.iter(|| {
                for records in &sealed {
                    for (sealed, number) in records.iter().zip(0..) {
                        record.clear();
                        record.extend_from_slice(sealed);
                        let opened =
                            key.open_in_place(nonce(number), Aad::from(HEADER), &mut record);
                        black_box(opened.unwrap());
                    }
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, ciphers);
criterion_main!(benches);
