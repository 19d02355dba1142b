//! Pages by their address, recorded by one process and read by another.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use drover_pagestore::{Baseline, NoSegment, Recorder, SealKey, Shape};
use proptest::prelude::*;

const PAGE: usize = 1024;

fn key() -> SealKey {
    SealKey::new([7; 32])
}

fn file(places: u32) -> File {
    let file = tempfile::tempfile().unwrap();
    let page_bytes = PAGE as u32;
    Baseline::make(&file, Shape { page_bytes, places }).unwrap();
    file
}

fn recorder(file: &File) -> Recorder {
    Recorder::new(file.try_clone().unwrap(), &key()).unwrap()
}

fn opened(file: &File) -> Baseline {
    Baseline::open(file.try_clone().unwrap(), &key()).unwrap()
}

fn page(baseline: &Baseline, address: u64) -> Option<Vec<u8>> {
    let mut page = vec![0; PAGE];
    let found = baseline.read(address, &mut page, &mut Vec::new());
    found.unwrap().then_some(page)
}

proptest! {
    #[test]
    fn each_address_has_what_was_recorded_last_of_it_as_far_as_there_was_room(
        batches in prop::collection::vec(prop::collection::vec((0..12_u64, any::<u8>()), 0..9), 0..9),
    ) {
        let file = file(8);
        let mut recorder = recorder(&file);
        let mut model = HashMap::new();
        for batch in &batches {
            let addresses: Vec<u64> = batch.iter().map(|(address, _)| address << 40).collect();
            let pages: Vec<u8> = batch.iter().flat_map(|(_, byte)| [*byte; PAGE]).collect();
            let mut left_out = 0;
            for (address, (_, byte)) in addresses.iter().zip(batch) {
                if model.len() < 8 || model.contains_key(address) {
                    model.insert(*address, *byte);
                } else {
                    left_out += 1;
                }
            }
            prop_assert_eq!(recorder.record(&addresses, &pages).unwrap(), left_out);
        }
        let baseline = opened(&file);
        prop_assert_eq!(baseline.count(), model.len());
        for address in (0..12).map(|address| address << 40) {
            let wanted = model.get(&address).map(|byte| vec![*byte; PAGE]);
            prop_assert_eq!(page(&baseline, address), wanted);
        }
    }
}

#[test]
fn a_page_that_was_half_written_is_none_and_the_others_are_there() {
    let file = file(4);
    recorder(&file).record(&[1, 2], &[5; 2 * PAGE]).unwrap();
    let end = file.metadata().unwrap().len();
    let record = PAGE as u64 + 28;
    // Of four places the last two are empty.
    file.write_all_at(&[0; 100], end - 3 * record + 500)
        .unwrap();
    let baseline = opened(&file);
    assert_eq!(page(&baseline, 1), Some(vec![5; PAGE]));
    assert_eq!(page(&baseline, 2), None);
    let wrong = baseline.read(1, &mut [0; 10], &mut Vec::new());
    assert_eq!(wrong.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn pages_on_a_tmpfs_are_read_as_those_on_a_disk() {
    let file = match tempfile::tempfile_in("/dev/shm") {
        Ok(file) => file,
        Err(error) => {
            println!("skipped, because /dev/shm takes no file: {error}");
            return;
        }
    };
    let (page_bytes, places) = (PAGE as u32, 4);
    Baseline::make(&file, Shape { page_bytes, places }).unwrap();
    recorder(&file).record(&[1, 2], &[5; 2 * PAGE]).unwrap();
    let baseline = opened(&file);
    baseline.warm().unwrap();
    assert_eq!(page(&baseline, 2), Some(vec![5; PAGE]));
    assert_eq!(page(&baseline, 3), None);
}

#[test]
fn a_file_of_another_kind_is_refused_and_one_of_another_key_has_no_page() {
    let segment = tempfile::tempfile().unwrap();
    let page_bytes = PAGE as u32;
    let shape = Shape {
        page_bytes,
        places: 4,
    };
    drover_pagestore::Segment::sealed(segment.try_clone().unwrap(), shape, &key()).unwrap();
    let opened = Baseline::open(segment, &key());
    assert!(matches!(opened, Err(NoSegment::Other)));
    assert!(matches!(
        Recorder::new(tempfile::tempfile().unwrap(), &key()),
        Err(NoSegment::Other)
    ));
    let file = file(4);
    recorder(&file).record(&[1], &[5; PAGE]).unwrap();
    let other = Baseline::open(file, &SealKey::new([8; 32])).unwrap();
    assert_eq!(page(&other, 1), None);
}

#[test]
fn a_count_beyond_the_file_is_an_error_and_not_a_guess() {
    let file = file(4);
    file.set_len(4096 + 10).unwrap();
    file.write_all_at(&3_u32.to_be_bytes(), 64).unwrap();
    let opened = Baseline::open(file.try_clone().unwrap(), &key());
    assert!(matches!(opened, Err(NoSegment::Io(_))));
    // As many as a file can have, for which its addresses would take 4 GiB.
    for at in [16, 64] {
        file.write_all_at(&((1_u32 << 28) - 1).to_be_bytes(), at)
            .unwrap();
    }
    let opened = Baseline::open(file, &key());
    assert!(matches!(opened, Err(NoSegment::Io(_))));
}
