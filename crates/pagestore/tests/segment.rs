//! Files of pages, filled and read at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::thread;

use drover_pagestore::{
    Added, DigestKey, Filler, NoSegment, SealKey, Segment, Shape, shape_within,
};

const PAGE: usize = 1024;

fn key() -> DigestKey {
    DigestKey::new([5; 32])
}

fn page(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(PAGE / 4)
}

fn pages(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(page).collect()
}

fn segment(places: u32) -> Segment {
    let page_bytes = PAGE as u32;
    Segment::in_memory(Shape { page_bytes, places }).unwrap()
}

/// Every page that is there, which has to be what its digest says.
fn read(segment: &Segment) -> Vec<Vec<u8>> {
    let count = segment.count().unwrap();
    let digests = segment.digests(0..count).unwrap();
    let each = (0..count).zip(digests).map(|(number, digest)| {
        let mut page = vec![0; PAGE];
        segment.read(number, &mut page).unwrap();
        assert_eq!(key().digest(&page), digest, "page {number}");
        page
    });
    each.collect()
}

#[test]
fn each_page_is_added_once_by_whomever_until_there_is_no_more_room() {
    let segment = segment(5);
    let mut one = Filler::new(segment.file(), key(), None).unwrap();
    let mut other = Filler::new(segment.file(), key(), None).unwrap();
    let added = |new, full| Added {
        new,
        left_out: 0,
        full,
    };
    assert_eq!(one.add(&pages([1, 2, 1])).unwrap(), added(2, false));
    assert_eq!(other.add(&pages([2, 3])).unwrap(), added(1, false));
    assert_eq!(one.add(&pages([3])).unwrap(), added(0, false));
    assert_eq!(one.add(&pages([4, 5, 6])).unwrap(), added(2, true));
    assert_eq!(other.add(&pages([7])).unwrap(), added(0, true));
    assert_eq!(read(&segment), [1, 2, 3, 4, 5].map(page));
    // A part of a page is none.
    assert_eq!(one.add(&page(9)[1..]).unwrap(), added(0, true));
}

#[test]
fn where_another_keeps_everybody_from_a_file_pages_are_left_out_and_nobody_waits_for_ever() {
    let segment = segment(5);
    let mut filler = Filler::new(segment.file(), key(), None).unwrap();
    filler.add(&page(1)).unwrap();
    let path = format!("/proc/self/fd/{}", segment.file().as_raw_fd());
    let stopped = File::options().write(true).open(path).unwrap();
    stopped.lock().unwrap();
    let left_out = Added {
        new: 0,
        left_out: 2,
        full: false,
    };
    // What is known to be there takes no file.
    assert_eq!(filler.add(&pages([1, 2, 3])).unwrap(), left_out);
    drop(stopped);
    assert_eq!(filler.add(&pages([2, 3])).unwrap().new, 2);
    assert_eq!(read(&segment), [1, 2, 3].map(page));
}

#[test]
fn a_reader_sees_whole_pages_while_several_add_them() {
    let segment = segment(4000);
    let fillers: Vec<_> = (0..4_u32)
        .map(|filler| {
            let mut own = Filler::new(segment.file(), key(), None).unwrap();
            thread::spawn(move || {
                for at in (0..900_u32).step_by(9) {
                    own.add(&pages((at..at + 9).map(|at| at * (filler + 1))))
                        .unwrap();
                }
            })
        })
        .collect();
    while !fillers.iter().all(thread::JoinHandle::is_finished) {
        read(&segment);
    }
    for filler in fillers {
        filler.join().unwrap();
    }
    let found = read(&segment);
    let expected: HashSet<_> = (0..4)
        .flat_map(|f| (0..900).map(move |at| page(at * (f + 1))))
        .collect();
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().collect::<HashSet<_>>(), expected);
}

#[test]
fn what_is_no_file_of_pages_is_refused_and_no_page_beyond_its_end_is_read() {
    let mut file = tempfile::tempfile().unwrap();
    assert!(matches!(
        Segment::open(file.try_clone().unwrap(), None),
        Err(NoSegment::Other)
    ));
    file.write_all(&[b"DROVERPG".to_vec(), vec![0, 0, 0, 2], vec![0xff; 60]].concat())
        .unwrap();
    let seal = SealKey::random().unwrap();
    let error = Segment::open(file, Some(&seal)).unwrap_err();
    assert!(matches!(error, NoSegment::Shape { .. }), "{error}");

    let segment = segment(2);
    let mut page = vec![0; PAGE];
    assert!(segment.read(2, &mut page).is_err());
    assert!(segment.read(0, &mut page[1..]).is_err());
    // Another process is broken: what it says is there at most, is.
    use std::os::unix::fs::FileExt;
    segment.file().write_all_at(&[0xff; 4], 64).unwrap();
    assert_eq!(segment.count().unwrap(), 2);
    assert_eq!(segment.digests(0..9).unwrap().len(), 2);
    // Nor does a shorter file make anybody panic.
    segment.file().set_len(5000).unwrap();
    assert!(segment.read(1, &mut page).is_err());
    assert!(
        Filler::new(segment.file(), key(), None)
            .unwrap()
            .add(&page)
            .is_ok()
    );
}

#[test]
fn pages_on_disk_are_sealed_and_those_that_were_damaged_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pages");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let seal = SealKey::random().unwrap();
    let shape = shape_within(1 << 20, 4096, true).unwrap();
    let segment = Segment::sealed(file, shape, &seal).unwrap();
    let mut filler = Filler::new(segment.file(), key(), Some(&seal)).unwrap();
    let pages = [[1; 4096], [2; 4096], [1; 4096]].concat();
    assert_eq!(filler.add(&pages).unwrap().new, 2);
    let more: Vec<u8> = (3..40).flat_map(|byte| [byte; 4096]).collect();
    assert_eq!(filler.add(&more).unwrap().new, 37);
    drop((segment, filler));

    let open = |seal| Segment::open(File::open(&path).unwrap(), seal);
    let again = open(Some(&seal)).unwrap();
    let digests = [[1; 4096], [2; 4096]].map(|page| key().digest(&page));
    assert_eq!(again.digests(0..2).unwrap(), digests);
    let mut page = [0; 4096];
    again.read(1, &mut page).unwrap();
    assert_eq!(page, [2; 4096]);
    let mut run = vec![0; more.len()];
    again.read(2, &mut run).unwrap();
    assert_eq!(run, more);

    assert!(matches!(
        open(None),
        Err(NoSegment::Sealed { sealed: true })
    ));
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(64).any(|bytes| bytes == [2; 64]));
    let other = open(Some(&SealKey::random().unwrap())).unwrap();
    let error = other.read(1, &mut page).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}
