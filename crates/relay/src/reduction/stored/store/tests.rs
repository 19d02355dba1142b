use drover_pagestore::{
    DIGEST_BYTES, Filler, KEY_BYTES, SEAL_KEY_BYTES, SealKey, Shape, shape_within,
};
use drover_reduce::Told;
use rustix::fs::{Advice, fadvise};

use super::super::Known;
use super::*;

const PAGE: usize = 1024;

fn key() -> DigestKey {
    DigestKey::new([9; KEY_BYTES])
}

/// A file with pages filled with these bytes.
fn stored(bytes: &[u8]) -> (Segment, Filler) {
    let segment = Segment::in_memory(Shape {
        page_bytes: PAGE as u32,
        places: 64,
    })
    .unwrap();
    let mut filler = Filler::new(segment.file(), key(), None).unwrap();
    for byte in bytes {
        filler.add(&[*byte; PAGE]).unwrap();
    }
    (segment, filler)
}

fn again(segment: &Segment) -> Segment {
    Segment::open(segment.file().try_clone().unwrap(), None).unwrap()
}

/// What the page is whose number the source would give for one filled with that byte.
fn found(known: &Known, store: &Store, byte: u8) -> Option<Vec<u8>> {
    let id = known.asking(None).find(&[byte; PAGE])?;
    let mut page = vec![0; PAGE];
    store.reading().read(id, &mut page).unwrap();
    Some(page)
}

#[test]
fn pages_of_several_files_are_told_as_they_come_and_read_by_their_numbers() {
    let (first, mut more) = stored(&[1, 2, 3]);
    let (second, _) = stored(&[4, 2]);
    let store = Arc::new(Store::new(100));
    store.add(again(&first), key()).unwrap();
    store.add(again(&second), key()).unwrap();
    let known = Arc::new(Known::new(100));
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (telling, hearing) = (store.clone(), known.clone());
    let teller = std::thread::spawn(move || telling.tell(ours));
    let listener = std::thread::spawn(move || hearing.listen(theirs));
    more.add(&[5; PAGE]).unwrap();
    while known.report().told < 6 {
        std::thread::yield_now();
    }
    for byte in [1, 2, 3, 4, 5] {
        assert_eq!(found(&known, &store, byte), Some(vec![byte; PAGE]));
    }
    // Over the end of one file, and of what was told at once.
    let mut run = vec![0; 4 * PAGE];
    store.reading().read(StoredId(2), &mut run).unwrap();
    for (page, number) in run.chunks(PAGE).zip(2..) {
        let mut alone = [0; PAGE];
        store.reading().read(StoredId(number), &mut alone).unwrap();
        assert_eq!(page, alone, "{number}");
    }
    let over = store.reading().read(StoredId(5), &mut run);
    assert_eq!(over, Err(Wrong::NotStored(StoredId(6))));
    assert_eq!(found(&known, &store, 6), None);
    let beyond = store.reading().read(StoredId(6), &mut [0; PAGE]);
    assert_eq!(beyond, Err(Wrong::NotStored(StoredId(6))));
    // One for each byte, four in a run and one each, and two before the end was found.
    let report = store.report();
    assert_eq!((report.read, report.read_sealed), (5 + 8 + 1, 0));
    store.stop();
    teller.join().unwrap();
    listener.join().unwrap();
}

#[test]
fn who_reads_pages_keeps_nobody_from_adding_a_file_or_telling_of_it() {
    let (first, _) = stored(&[1]);
    let (second, _) = stored(&[2]);
    let store = Store::new(100);
    store.add(again(&first), key()).unwrap();
    let reading = store.reading();
    store.add(again(&second), key()).unwrap();
    store.stop();
    store.tell_all(&mut Vec::new()).unwrap();
    let mut page = [0; PAGE];
    reading.read(StoredId(0), &mut page).unwrap();
    assert_eq!(page, [1; PAGE]);
}

#[test]
fn no_more_pages_are_told_than_agreed_on_and_a_file_of_another_key_is_refused() {
    let (segment, mut more) = stored(&[1, 2, 3, 4]);
    let store = Store::new(3);
    store.add(again(&segment), key()).unwrap();
    store.stop();
    let mut told = Vec::new();
    store.tell_all(&mut told).unwrap();
    assert_eq!(told.len(), KEY_BYTES + 3 * DIGEST_BYTES);
    // Those that come later are counted as well.
    for untold in [1, 2] {
        store.tell_all(&mut told).unwrap();
        let report = store.report();
        assert_eq!((report.told, report.untold), (3, untold));
        let why = report.trouble.unwrap();
        assert!(why.contains("has room for 3 of them"), "{why}");
        more.add(&[9; PAGE]).unwrap();
    }
    assert_eq!(told.len(), KEY_BYTES + 3 * DIGEST_BYTES);

    let other = store.add(again(&segment), DigestKey::new([1; KEY_BYTES]));
    assert!(matches!(other, Err(NotAdded::Key)));
}

#[test]
fn a_file_that_grows_is_told_in_one_piece_and_pieces_are_bounded() {
    let (first, mut more) = stored(&[1]);
    let store = Store::new(100);
    store.add(again(&first), key()).unwrap();
    store.stop();
    for byte in 2..6 {
        store.tell_all(&mut Vec::new()).unwrap();
        more.add(&[byte; PAGE]).unwrap();
    }
    let pieces = |store: &Store| store.files().runs.len();
    assert_eq!(pieces(&store), 1);
    let (second, _) = stored(&[7, 8]);
    store.add(again(&second), key()).unwrap();
    (0..2).for_each(|_| store.tell_all(&mut Vec::new()).unwrap());
    assert_eq!((pieces(&store), store.report().told), (2, 7));
    more.add(&[6; PAGE]).unwrap();
    store.tell_all(&mut Vec::new()).unwrap();
    assert_eq!(pieces(&store), 3);
    for (number, byte) in [1, 2, 3, 4, 5, 7, 8, 6].into_iter().enumerate() {
        let mut page = [0; PAGE];
        let id = StoredId(number as u32);
        store.reading().read(id, &mut page).unwrap();
        assert_eq!(page, [byte; PAGE], "{number}");
    }

    let run = store.files().runs[0];
    store.write().runs.resize(STORED_RUNS, run);
    more.add(&[9; PAGE]).unwrap();
    store.tell_all(&mut Vec::new()).unwrap();
    let report = store.report();
    assert_eq!((report.told, report.untold), (8, 1));
    assert!(report.trouble.unwrap().contains("pieces"));
}

#[test]
fn a_page_whose_disk_does_not_answer_in_time_is_not_given_and_not_waited_for_again() {
    let file = tempfile::tempfile().unwrap();
    let seal = SealKey::new([8; SEAL_KEY_BYTES]);
    let shape = shape_within(4 << 20, PAGE as u32, true).unwrap();
    let segment = Segment::sealed(file.try_clone().unwrap(), shape, &seal).unwrap();
    let mut filler = Filler::new(&file, key(), Some(&seal)).unwrap();
    filler.add(&[3; PAGE]).unwrap();
    let store = Store {
        patient: Patient::new(0),
        ..Store::new(100)
    };
    store.add(segment, key()).unwrap();
    store.stop();
    store.tell_all(&mut Vec::new()).unwrap();
    let mut page = [0; PAGE];
    // What the kernel has in memory waits for no disk.
    store.reading().read(StoredId(0), &mut page).unwrap();
    assert_eq!(page, [3; PAGE]);

    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    for _ in 0..2 {
        let wrong = store.reading().read(StoredId(0), &mut page);
        if wrong.is_ok() {
            eprintln!(
                "skipped, because the kernel has all files of the temporary folder in memory"
            );
            return;
        }
        let id = StoredId(0);
        assert_eq!(wrong, Err(Wrong::NotGiven { id, waited_s: 10 }));
    }
    let report = store.report();
    assert_eq!(report.read_sealed, 1);
    assert!(
        report
            .trouble
            .unwrap()
            .contains("has not answered for 10 s")
    );
}

#[test]
fn a_file_that_was_cut_short_is_told_of_as_trouble_and_its_pages_are_not_guessed() {
    let (segment, _) = stored(&[1, 2]);
    let store = Store::new(100);
    store.add(again(&segment), key()).unwrap();
    store.stop();
    store.tell_all(&mut Vec::new()).unwrap();
    segment.file().set_len(100).unwrap();
    let lost = store.reading().read(StoredId(1), &mut [0; PAGE]);
    let id = StoredId(1);
    let of = "the memory of pages that guests share";
    assert_eq!(lost, Err(Wrong::Damaged { id, of }));
    let (cut, _) = stored(&[7]);
    cut.file().set_len(66).unwrap();
    store.add(again(&cut), key()).unwrap();
    store.tell_all(&mut Vec::new()).unwrap();
    assert!(store.report().trouble.unwrap().contains("cannot be read"));
}
