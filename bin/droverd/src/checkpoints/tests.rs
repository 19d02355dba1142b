mod away;

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Instant;

use drover_pagestore::{Baseline, Filler, Recorder, SealKey, Segment};
use jiff::Timestamp;
use tempfile::TempDir;

use super::beginning::checkpoint_bytes;
use super::files::{named, pages};
use super::*;
use crate::config::Config;
use crate::limits::CHECKPOINT_BESIDE;
use crate::registry::files as documents;

const MEMORY: Bytes = Bytes(1 << 20);

fn config(directory: &TempDir, size: u64) -> Config {
    let root = directory.path().display();
    let text = format!(
        "host = \"a\"\nstate = \"{root}/state\"\nruntime = \"/run/drover-test\"\n\
         [checkpoints]\ndirectory = \"{root}/pages\"\nsize = {size}\n"
    );
    Config::parse(&text, Path::new("droverd.toml")).unwrap()
}

pub(super) fn opened(directory: &TempDir, size: u64) -> Checkpoints {
    Checkpoints::open(&config(directory, size), false).unwrap()
}

fn vm(name: &str) -> VmName {
    name.parse().unwrap()
}

/// A guest leaves with one page of this byte.
fn leaves(all: &Checkpoints, name: &str, byte: u8) -> Growing {
    let (growing, file, stored) = all.begin(&vm(name), MEMORY, 4096).unwrap();
    assert!(stored.fill);
    let seal = SealKey::new(stored.seal.unwrap());
    let mut filler = Filler::new(&file, DigestKey::new(stored.key), Some(&seal)).unwrap();
    filler.add(&[byte; 4096]).unwrap();
    growing
}

/// A guest arrives with one page of this byte.
fn arrives(all: &Checkpoints, name: &str, byte: u8) -> Growing {
    let (growing, file, baseline) = all.begin_baseline(&vm(name), MEMORY, 4096).unwrap();
    let mut recorder = Recorder::new(file, &SealKey::new(baseline.seal)).unwrap();
    recorder.record(&[1 << 40], &[byte; 4096]).unwrap();
    growing
}

/// Far more than anything here takes.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Waits until what was removed has given its room back.
fn is_let_go_of(all: &Checkpoints) -> bool {
    all.0.letting_go.wait(Duration::from_secs(20))
}

/// Keeps this one busy until what comes back is dropped.
fn busy(queue: &Queue) -> Sender<()> {
    let (begin, begun) = channel();
    let (end, takes_long) = channel();
    let added = queue.add(move || {
        begin.send(()).unwrap();
        let _ = takes_long.recv();
    });
    assert!(added.is_ok());
    begun.recv().unwrap();
    end
}

const CHECKPOINT: CheckpointKind = CheckpointKind::Checkpoint;
const BASELINE: CheckpointKind = CheckpointKind::Baseline;

/// Files that there are of a kind, by which it is told, and with pages.
fn there_of(directory: &TempDir, kind: CheckpointKind) -> (usize, usize) {
    let root = directory.path();
    let state = named(&root.join("state/checkpoints"), told(kind)).unwrap();
    let pages = named(&root.join("pages"), pages(kind)).unwrap();
    (state.len(), pages.len())
}

fn there(directory: &TempDir) -> (usize, usize) {
    there_of(directory, CHECKPOINT)
}

#[test]
fn what_left_is_found_at_its_return_also_by_another_agent_and_then_removed() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    let mut growing = leaves(&all, "web", 7);
    growing.lacks(3);
    growing.keep().unwrap();
    assert!(all.has(&vm("web")) && !all.has(&vm("db")));
    let key = all.key().clone();
    drop(all);

    let all = opened(&directory, 64 << 20);
    assert_eq!(*all.key(), key);
    let view = all.view();
    assert_eq!(view.checkpoints.len(), 1);
    assert_eq!(view.checkpoints[0].left_out, 3);
    assert!(view.taken.0 >= 4096 && view.taken.0 < MEMORY.0, "{view:?}");
    let (returning, file, stored) = all.take(&vm("web")).unwrap().unwrap();
    assert!(!stored.fill);
    let seal = SealKey::new(stored.seal.unwrap());
    let segment = Segment::open(file, Some(&seal)).unwrap();
    let mut page = [0; 4096];
    segment.read(0, &mut page).unwrap();
    assert_eq!(page, [7; 4096]);
    // It does not come after all, and then does.
    drop(returning);
    assert_eq!(there(&directory), (1, 1));
    let (returning, ..) = all.take(&vm("web")).unwrap().unwrap();
    returning.remove();
    assert!(!all.has(&vm("web")));
    assert_eq!(there(&directory), (0, 0));
    assert!(all.take(&vm("web")).unwrap().is_none());
}

#[test]
fn what_is_removed_while_it_grows_or_whose_guest_is_back_by_then_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    let growing = leaves(&all, "web", 1);
    assert!(all.remove(&vm("web")).unwrap());
    growing.keep().unwrap();
    let growing = leaves(&all, "web", 2);
    assert!(all.spent(&vm("web")).is_none());
    growing.keep().unwrap();
    assert!(is_let_go_of(&all));
    assert!(!all.has(&vm("web")) && all.view().taken.0 == 0);
    assert_eq!(there(&directory), (0, 0));
    leaves(&all, "web", 3).keep().unwrap();
    all.spent(&vm("web")).unwrap().remove();
    assert!(!all.has(&vm("web")));
}

#[test]
fn what_is_given_up_too_old_replaced_or_not_wanted_any_more_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    drop(leaves(&all, "web", 1));
    assert_eq!(there(&directory), (0, 0));

    leaves(&all, "web", 2).keep().unwrap();
    let (first, ..) = all.take(&vm("web")).unwrap().unwrap();
    let again = leaves(&all, "web", 3);
    assert!(matches!(
        all.begin(&vm("web"), MEMORY, 4096),
        Err(NoCheckpoint::Growing)
    ));
    again.keep().unwrap();
    // It used the one before.
    first.remove();
    assert!(all.has(&vm("web")));
    assert!(all.remove(&vm("web")).unwrap() && !all.remove(&vm("web")).unwrap());
    assert_eq!(there(&directory), (0, 0));

    leaves(&all, "db", 4).keep().unwrap();
    let told = place(&all.0.own, &vm("db"), told(CHECKPOINT));
    let mut old: Told = documents::read_document(&told).unwrap().unwrap();
    old.until = Timestamp::now();
    let mut entries = all.lock();
    let takes = Bytes(1);
    let key = (vm("db"), CHECKPOINT);
    entries.insert(key, Checkpoint::Kept { told: old, takes });
    drop(entries);
    assert!(!all.has(&vm("db")) && all.take(&vm("db")).unwrap().is_none());
    leaves(&all, "db", 5).keep().unwrap();
    all.remove_old();
    assert!(all.has(&vm("db")));

    // An agent that ends while a guest leaves, and one that is to keep none.
    std::mem::forget(leaves(&all, "web", 6));
    assert_eq!(there(&directory), (1, 2));
    drop(opened(&directory, 64 << 20));
    assert_eq!(there(&directory), (1, 1));
    assert!(!opened(&directory, 0).is_on());
    assert_eq!(there(&directory), (0, 0));
}

#[test]
fn no_more_is_taken_than_there_is_room_and_what_cannot_be_read_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let size = 2 * (MEMORY.0 + CHECKPOINT_BESIDE.0);
    let all = opened(&directory, size);
    let first = leaves(&all, "a", 1);
    let second = leaves(&all, "b", 2);
    assert_eq!(all.view().taken, Bytes(size));
    let refused = all.begin(&vm("c"), MEMORY, 4096).unwrap_err();
    assert!(
        refused.to_string().contains("`drover checkpoints`"),
        "{refused}"
    );
    first.keep().unwrap();
    drop(second);
    drop(leaves(&all, "c", 3));
    fs::write(place(&all.0.own, &vm("d"), told(CHECKPOINT)), "{").unwrap();
    fs::remove_file(place(&all.0.directory, &vm("a"), pages(CHECKPOINT))).unwrap();
    assert!(matches!(all.take(&vm("a")), Err(NoCheckpoint::Io(_))));
    assert_eq!(there(&directory), (1, 0));
    let all = opened(&directory, size);
    assert_eq!(there(&directory), (0, 0));
    assert!(all.view().checkpoints.is_empty());
}

#[test]
fn where_less_is_wanted_than_there_is_baselines_go_and_then_the_oldest() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 1 << 30);
    leaves(&all, "b", 1).keep().unwrap();
    leaves(&all, "a", 2).keep().unwrap();
    arrives(&all, "c", 3).keep().unwrap();
    let view = all.view();
    let takes = |kind| {
        let one = view.checkpoints.iter().find(|one| one.kind == kind);
        one.unwrap().bytes.0
    };
    assert!(view.checkpoints.len() == 3 && takes(BASELINE) > 0);
    drop(all);
    let left = |size| {
        let all = opened(&directory, size);
        let named = |one: &CheckpointView| (one.vm.to_string(), one.kind);
        all.view().checkpoints.iter().map(named).collect::<Vec<_>>()
    };
    let one = takes(CHECKPOINT);
    assert_eq!(left(view.taken.0).len(), 3);
    let both = [("a".to_owned(), CHECKPOINT), ("b".to_owned(), CHECKPOINT)];
    assert_eq!(left(view.taken.0 - 1), both);
    assert_eq!(left(2 * one - 1), both[..1]);
    assert_eq!(left(one), both[..1]);
    assert_eq!(left(one - 1), []);
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
    assert_eq!(there(&directory), (0, 0));
}

#[test]
fn a_baseline_is_there_until_its_guest_has_left_also_for_another_agent() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    drop(arrives(&all, "web", 1));
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
    arrives(&all, "web", 7).keep().unwrap();
    assert!(!all.has(&vm("web")));
    drop(all);

    let all = opened(&directory, 64 << 20);
    let kinds: Vec<_> = all
        .view()
        .checkpoints
        .iter()
        .map(|kept| kept.kind)
        .collect();
    assert_eq!(kinds, [BASELINE]);
    // It leaves, fails to, and leaves again.
    for _ in 0..2 {
        let growing = leaves(&all, "web", 8);
        let (file, given) = all.baseline(&vm("web")).unwrap().unwrap();
        let baseline = Baseline::open(file, &SealKey::new(given.seal)).unwrap();
        let mut page = [0; 4096];
        assert!(baseline.read(1 << 40, &mut page, &mut Vec::new()).unwrap());
        assert_eq!(page, [7; 4096]);
        drop(growing);
    }
    leaves(&all, "web", 8).keep().unwrap();
    all.remove_baseline(&vm("web"));
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
    assert!(all.has(&vm("web")) && all.baseline(&vm("web")).unwrap().is_none());

    // All that is kept of a guest is removed at once, and what an agent left half.
    arrives(&all, "web", 9).keep().unwrap();
    assert!(all.remove(&vm("web")).unwrap() && !all.remove(&vm("web")).unwrap());
    std::mem::forget(arrives(&all, "db", 1));
    assert_eq!(there_of(&directory, BASELINE), (0, 1));
    drop(opened(&directory, 64 << 20));
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_and_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    // No guest has pages of that size.
    let refused = all.begin(&vm("web"), MEMORY, 512).unwrap_err();
    assert!(matches!(refused, NoCheckpoint::Segment(_)), "{refused}");
    let refused = all.begin_baseline(&vm("web"), MEMORY, 512).unwrap_err();
    assert!(matches!(refused, NoCheckpoint::Segment(_)), "{refused}");
    assert!(is_let_go_of(&all));
    assert_eq!(all.view().taken, Bytes(0));
    let (kept, recorded) = (there(&directory), there_of(&directory, BASELINE));
    assert_eq!((kept, recorded), ((0, 0), (0, 0)));
    // Whatever a peer says of a guest's memory.
    let much = all.begin_baseline(&vm("web"), Bytes(u64::MAX), 4096);
    assert!(matches!(much, Err(NoCheckpoint::NoRoom { .. })));
}

#[test]
fn no_checkpoint_is_missing_because_of_a_baseline() {
    let directory = tempfile::tempdir().unwrap();
    let one = checkpoint_bytes(MEMORY).0;
    // Not even that of its own guest.
    let all = opened(&directory, 2 * one - (MEMORY.0 / 2));
    let refused = all.begin_baseline(&vm("web"), MEMORY, 4096).unwrap_err();
    assert!(matches!(refused, NoCheckpoint::NoRoom { .. }), "{refused}");

    let all = opened(&directory, 2 * one);
    arrives(&all, "old", 1).keep().unwrap();
    arrives(&all, "new", 2).keep().unwrap();
    let first = leaves(&all, "a", 3);
    assert_eq!(there_of(&directory, BASELINE), (2, 2));
    // For the second there is room only without them.
    let (_file, _) = all.baseline(&vm("old")).unwrap().unwrap();
    let second = leaves(&all, "b", 4);
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
    drop((first, second));

    // Nothing is removed for one that does not fit all the same.
    arrives(&all, "old", 1).keep().unwrap();
    let refused = all.begin(&vm("large"), Bytes(10 * one), 4096).unwrap_err();
    assert!(matches!(refused, NoCheckpoint::NoRoom { .. }), "{refused}");
    assert_eq!(there_of(&directory, BASELINE), (1, 1));
}

#[test]
fn who_asks_what_is_kept_waits_for_no_disk() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 1).keep().unwrap();
    leaves(&all, "db", 2).keep().unwrap();
    // Whoever has it waits for the disk.
    let disk = all.disk();
    let (busy, removed) = (all.clone(), all.clone());
    let begins = std::thread::spawn(move || drop(leaves(&busy, "db", 3)));
    let removes = std::thread::spawn(move || removed.remove(&vm("web")).unwrap());
    for _ in 0..1000 {
        assert!(all.has(&vm("web")));
        assert_eq!(all.view().checkpoints.len(), 2);
        std::thread::yield_now();
    }
    drop(disk);
    begins.join().unwrap();
    assert!(removes.join().unwrap());
    assert!(all.view().checkpoints.is_empty());
}

#[test]
fn a_disk_that_does_not_answer_holds_no_guest_up_and_what_comes_of_it_later_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    leaves(&all, "db", 1).keep().unwrap();
    // Whoever has it waits for the disk.
    let disk = all.disk();
    let (tell, told) = channel();
    let late = all.patiently(Duration::ZERO, move |this| {
        let begun = this.begin_checkpoint(&vm("web"), MEMORY, 4096, soon());
        tell.send(begun.is_ok()).unwrap();
        begun
    });
    let why = late.unwrap_err();
    assert!(matches!(why, NoCheckpoint::Stalled(_)), "{why}");
    // Nor does anybody else wait for it meanwhile.
    for _ in 0..100 {
        let why = all.begin(&vm("web"), MEMORY, 4096).unwrap_err();
        assert!(matches!(why, NoCheckpoint::Hangs), "{why}");
    }
    drop(disk);
    assert!(told.recv().unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while all.begin(&vm("web"), MEMORY, 4096).is_err() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert_eq!(there(&directory), (1, 1));
}

#[test]
fn a_large_file_that_is_removed_is_let_go_of_where_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 1).keep().unwrap();
    leaves(&all, "db", 1).keep().unwrap();
    arrives(&all, "web", 1).keep().unwrap();
    let place = fs::canonicalize(&all.0.directory).unwrap();
    let of = |name: &str, kind| place.join(format!("{name}.{}", pages(kind)));
    let files = [
        of("web", CHECKPOINT),
        of("web", BASELINE),
        of("db", CHECKPOINT),
    ];
    let before = all.view().taken;
    // Neither waits for what guests that left have written to the disk.
    let _writes = busy(&all.0.deferred);
    let lets_go = busy(&all.0.letting_go);

    assert!(all.remove(&vm("web")).unwrap());
    // One takes the place of another, and there is room for it.
    drop(leaves(&all, "db", 2));
    assert_eq!(there(&directory), (0, 0));
    assert_eq!(there_of(&directory, BASELINE), (0, 0));
    assert!(all.view().checkpoints.is_empty() && all.take(&vm("web")).unwrap().is_none());
    assert!(files.iter().all(|file| is_held(file)));
    assert!(all.view().taken >= before);
    drop(lets_go);
    assert!(is_let_go_of(&all));
    assert!(!files.iter().any(|file| is_held(file)));
    assert_eq!(all.view().taken, Bytes(0));
}

#[test]
fn what_is_given_up_is_let_go_of_by_no_guests_thread_however_soon_that_is() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    let growing = leaves(&all, "web", 1);
    let file = place(&all.0.directory, &vm("web"), pages(CHECKPOINT));
    let file = fs::canonicalize(file).unwrap();
    // Who gives it up stands still behind that it had it removed.
    let entries = all.lock();
    let gives_up = std::thread::spawn(move || drop(growing));
    let until = Instant::now() + Duration::from_secs(20);
    while file.exists() || is_held(&file) {
        assert!(Instant::now() < until && !gives_up.is_finished());
        std::thread::yield_now();
    }
    drop(entries);
    gives_up.join().unwrap();
    assert!(is_let_go_of(&all));
    assert_eq!(all.view().taken, Bytes(0));
}

/// Whether this process has a file open that is not found there any more.
fn is_held(file: &Path) -> bool {
    let gone = format!("{} (deleted)", file.display());
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| link == Path::new(&gone))
}

#[test]
fn where_room_is_short_that_of_removed_files_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, checkpoint_bytes(MEMORY).0);
    leaves(&all, "web", 1).keep().unwrap();
    let lets_go = busy(&all.0.letting_go);
    assert!(all.remove(&vm("web")).unwrap());
    let begins = all.clone();
    let begins = std::thread::spawn(move || {
        let begun = begins.begin_checkpoint(&vm("db"), MEMORY, 4096, soon());
        (begun.is_ok(), begins.held())
    });
    let grows = || all.lock().contains_key(&(vm("db"), CHECKPOINT));
    let until = Instant::now() + Duration::from_secs(20);
    while !grows() {
        assert!(Instant::now() < until && !begins.is_finished());
        std::thread::yield_now();
    }
    // Not for ever.
    let late = all.wait_for_room(Instant::now());
    assert!(
        matches!(late, Err(NoCheckpoint::NotGivenBack { .. })),
        "{late:?}"
    );
    drop(lets_go);
    let (begun, held) = begins.join().unwrap();
    assert!(begun && held == Bytes(0));
}

#[test]
fn no_more_is_waited_for_than_the_room_that_is_needed_and_what_is_not_there_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    let [first, second] = ["a", "b"].map(|name| {
        leaves(&all, name, 1).keep().unwrap();
        let view = all.view();
        let one = view.checkpoints.iter().find(|one| one.vm == vm(name));
        one.unwrap().bytes.0
    });
    drop(all);
    // For the next one there is room beside one of them.
    let size = checkpoint_bytes(MEMORY).0 + second + first / 2;
    let all = opened(&directory, size);
    let lets_go = busy(&all.0.letting_go);
    assert!(all.remove(&vm("a")).unwrap());
    let of_first = all.held();
    let (end, hangs) = channel::<()>();
    let added = all.0.letting_go.add(move || {
        let _ = hangs.recv();
    });
    assert!(added.is_ok());
    assert!(all.remove(&vm("b")).unwrap());

    let begin = |until| all.begin_checkpoint(&vm("c"), MEMORY, 4096, until);
    let late = begin(Instant::now()).unwrap_err().to_string();
    let held = all.held();
    let short = Bytes(held.0 + checkpoint_bytes(MEMORY).0 - size);
    assert!(late.contains(&format!("{held} of removed files")), "{late}");
    assert!(late.contains(&format!("needs {short}")), "{late}");
    drop(lets_go);
    let _growing = begin(soon()).unwrap();
    assert_eq!(all.held().0, held.0 - of_first.0);
    drop(end);
}

#[test]
fn what_is_too_much_to_wait_for_a_disk_that_hangs_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    let hangs = busy(&all.0.deferred);
    while all.0.deferred.add(|| ()).is_ok() {}
    let (tell, told) = channel::<()>();
    all.defer(move || drop(tell));
    drop(hangs);
    assert!(all.0.deferred.wait(Duration::from_secs(20)));
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn what_is_too_much_to_wait_is_let_go_of_by_who_removes_it() {
    let directory = tempfile::tempdir().unwrap();
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 1).keep().unwrap();
    let file = place(&all.0.directory, &vm("web"), pages(CHECKPOINT));
    let file = fs::canonicalize(file).unwrap();
    let lets_go = busy(&all.0.letting_go);
    while all.0.letting_go.add(|| ()).is_ok() {}
    assert!(all.remove(&vm("web")).unwrap());
    assert!(!is_held(&file));
    assert_eq!(all.view().taken, Bytes(0));
    drop(lets_go);
}
