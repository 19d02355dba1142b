//! Files as a disk may give them back: as they were written, and changed, cut or mixed up.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{Read, Seek, Write};

use drover_corpus::Document;
use drover_corpus::limits::CHANGES;
use drover_pagestore::{Baseline, DigestKey, Filler, Recorder, SealKey, Segment, Shape};

const PAGE: usize = 1024;

/// Digests that are read at once.
const AT_ONCE: u32 = 4096;

fn seal() -> SealKey {
    SealKey::new([7; 32])
}

fn shape(places: u32) -> Shape {
    let page_bytes = PAGE as u32;
    Shape { page_bytes, places }
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn document(name: &str, mut file: &File) -> Document {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    (name.to_owned(), bytes)
}

/// A file with so many of four pages, each filled with one letter.
fn segment(pages: u8, sealed: bool) -> File {
    let key = sealed.then(seal);
    let segment = if sealed {
        Segment::sealed(tempfile::tempfile().unwrap(), shape(4), &seal())
    } else {
        Segment::in_memory(shape(4))
    };
    let segment = segment.unwrap();
    let mut filler = Filler::new(segment.file(), DigestKey::new([1; 32]), key.as_ref()).unwrap();
    for page in 0..pages {
        filler.add(&[b'a' + page; PAGE]).unwrap();
    }
    segment.file().try_clone().unwrap()
}

fn baseline(pages: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    Baseline::make(&file, shape(4)).unwrap();
    let mut recorder = Recorder::new(file.try_clone().unwrap(), &seal()).unwrap();
    for address in 0..pages {
        let page = [b'a' + address as u8; PAGE];
        recorder.record(&[address << 40], &page).unwrap();
    }
    file
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// One that was sealed.
fn is_one_of_them(page: &[u8]) {
    let letter = page.first().copied();
    assert!(letter.is_some_and(|letter| (b'a'..b'e').contains(&letter)));
    assert!(page.iter().all(|byte| Some(*byte) == letter));
}

/// Reads all digests, and the first and the last page.
fn read_segment(bytes: &[u8], key: Option<&SealKey>) -> Result<(), String> {
    let segment = Segment::open(file_of(bytes), key).map_err(words)?;
    let count = segment.count().map_err(words)?;
    assert!(count <= segment.shape().places);
    let mut seen = 0;
    while seen < count {
        let end = count.min(seen + AT_ONCE);
        let digests = segment.digests(seen..end).map_err(words)?;
        assert_eq!(digests.len() as u32, end - seen);
        seen = end;
    }
    let mut page = vec![0; segment.shape().page_bytes as usize];
    for number in [0, count.saturating_sub(1)]
        .into_iter()
        .filter(|_| count > 0)
    {
        segment.read(number, &mut page).map_err(words)?;
        if key.is_some() {
            is_one_of_them(&page);
        }
    }
    Ok(())
}

/// Reads all of it, and the page of each address that may be there.
fn read_baseline(bytes: &[u8]) -> Result<(), String> {
    let baseline = Baseline::open(file_of(bytes), &seal()).map_err(words)?;
    assert!(baseline.count() <= baseline.shape().places as usize);
    baseline.warm().map_err(words)?;
    let mut page = vec![0; baseline.shape().page_bytes as usize];
    for address in 0..4 {
        let found = baseline.read(address << 40, &mut page, &mut Vec::new());
        if found.map_err(words)? {
            is_one_of_them(&page);
        }
    }
    Ok(())
}

/// Files of all kinds, under the names that they have for who wants those of one kind.
fn files(kind: &str) -> Vec<Document> {
    let all = [
        ("plain", "one", segment(1, false)),
        ("plain", "three", segment(3, false)),
        ("plain", "full", segment(4, false)),
        ("sealed", "one", segment(1, true)),
        ("sealed", "three", segment(3, true)),
        ("sealed", "full", segment(4, true)),
        ("baseline", "one", baseline(1)),
        ("baseline", "three", baseline(3)),
        ("baseline", "full", baseline(4)),
    ];
    let named = |(of, name, file): (&str, &str, File)| {
        let known = if of == kind { "ok" } else { "bad" };
        document(&format!("{known}-{of}-{name}"), &file)
    };
    let mut files: Vec<_> = all.into_iter().map(named).collect();
    files.push(("bad-short".to_owned(), b"DROVERPG\0\0\0\x02".to_vec()));
    files
}

#[test]
fn files_of_pages_and_changes_of_them_are_read_or_refused() {
    drover_corpus::replay_binary(files("plain"), CHANGES, |bytes| read_segment(bytes, None));
}

#[test]
fn sealed_files_and_changes_of_them_give_what_was_sealed_or_are_refused() {
    let key = seal();
    drover_corpus::replay_binary(files("sealed"), CHANGES, |bytes| {
        read_segment(bytes, Some(&key))
    });
}

#[test]
fn baselines_and_changes_of_them_give_what_was_recorded_or_are_refused() {
    drover_corpus::replay_binary(files("baseline"), CHANGES, read_baseline);
}
