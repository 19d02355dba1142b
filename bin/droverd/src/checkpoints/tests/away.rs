//! A directory whose file system comes and goes.

use std::path::PathBuf;

use super::*;

/// Where the file system is mounted, and where its files are while it is not.
struct Disk {
    mount: PathBuf,
    aside: PathBuf,
}

impl Disk {
    fn of(directory: &TempDir) -> Self {
        Self {
            mount: directory.path().join("pages"),
            aside: directory.path().join("aside"),
        }
    }

    /// Leaves an empty folder.
    fn unmount(&self) {
        fs::rename(&self.mount, &self.aside).unwrap();
        fs::create_dir(&self.mount).unwrap();
    }

    fn mount(&self) {
        let _ = fs::remove_dir(&self.mount);
        fs::rename(&self.aside, &self.mount).unwrap();
    }

    fn mark(&self) -> PathBuf {
        self.mount.join(".drover-checkpoints")
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.mount).unwrap().count() == 0
    }
}

fn is_refused(all: &Checkpoints, name: &str) -> bool {
    let begun = all.begin(&vm(name), MEMORY, 4096);
    let recorded = all.begin_baseline(&vm(name), MEMORY, 4096);
    matches!(begun, Err(NoCheckpoint::Away(_))) && matches!(recorded, Err(NoCheckpoint::Away(_)))
}

#[test]
fn what_is_kept_on_a_disk_that_is_not_mounted_yet_is_used_once_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::of(&directory);
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 7).keep().unwrap();
    arrives(&all, "db", 8).keep().unwrap();
    assert_eq!(all.away(), None);
    drop(all);

    disk.unmount();
    let all = opened(&directory, 64 << 20);
    let why = all.away().unwrap();
    assert!(why.contains("is its file system mounted?"), "{why}");
    assert_eq!(all.view().away, Some(why));
    assert!(matches!(all.take(&vm("web")), Err(NoCheckpoint::Away(_))));
    assert!(matches!(
        all.baseline(&vm("db")),
        Err(NoCheckpoint::Away(_))
    ));
    assert!(is_refused(&all, "web") && is_refused(&all, "new"));
    all.tidy();
    assert!(disk.is_empty());
    drop(all);
    // Not even the folder is there.
    fs::remove_dir(&disk.mount).unwrap();
    let all = opened(&directory, 64 << 20);
    assert!(all.away().is_some() && !disk.mount.exists());
    assert_eq!(all.view().checkpoints.len(), 2);

    disk.mount();
    all.tidy();
    assert_eq!(all.away(), None);
    let kept = all.view().checkpoints;
    assert!(kept.len() == 2 && kept.iter().all(|kept| kept.bytes.0 >= 4096));
    assert!(all.baseline(&vm("db")).unwrap().is_some());
    let (_returning, file, stored) = all.take(&vm("web")).unwrap().unwrap();
    let seal = SealKey::new(stored.seal.unwrap());
    let mut page = [0; 4096];
    let segment = Segment::open(file, Some(&seal)).unwrap();
    segment.read(0, &mut page).unwrap();
    assert_eq!(page, [7; 4096]);
}

#[test]
fn a_disk_that_goes_while_the_agent_runs_is_told_and_nothing_is_written_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::of(&directory);
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 7).keep().unwrap();
    disk.unmount();
    assert!(matches!(all.take(&vm("web")), Err(NoCheckpoint::Away(_))));
    assert!(is_refused(&all, "new") && all.away().is_some());
    assert!(all.has(&vm("web")) && disk.is_empty());

    // It is broken, and another one takes its place.
    let mark = directory.path().join("state/checkpoints/mark");
    fs::copy(mark, disk.mark()).unwrap();
    all.tidy();
    assert_eq!(all.away(), None);
    assert!(all.view().checkpoints.is_empty());
    assert_eq!(there(&directory), (0, 0));
    leaves(&all, "web", 8).keep().unwrap();
    assert!(all.has(&vm("web")));
}

#[test]
fn keys_of_what_is_too_old_or_not_wanted_go_also_while_the_disk_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::of(&directory);
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 1).keep().unwrap();
    leaves(&all, "db", 2).keep().unwrap();
    disk.unmount();
    assert!(all.remove(&vm("db")).unwrap());
    assert_eq!(there(&directory), (1, 0));
    assert!(!opened(&directory, 0).is_on());
    assert_eq!(there(&directory), (0, 0));
    disk.mount();
    // Nobody can read them any more.
    assert_eq!(there(&directory), (0, 2));
    drop(opened(&directory, 64 << 20));
    assert_eq!(there(&directory), (0, 0));
}

#[test]
fn a_directory_that_was_given_to_two_agents_is_refused_at_the_start_of_the_second() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::of(&directory);
    fs::create_dir(&disk.mount).unwrap();
    fs::write(disk.mark(), "b 1234\n").unwrap();
    fs::write(disk.mount.join("web.pages"), "its own").unwrap();
    let config = config(&directory, 64 << 20);
    for refused in [
        Checkpoints::open(&config, false).map(drop),
        Checkpoints::check(&config).map(drop),
    ] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("another agent (b 1234)"), "{why}");
    }
    assert_eq!(there(&directory), (0, 1));
    // Who has guests to see to is started, and so is one whose own mark was lost; nothing is kept or removed.
    let away = |has_guests: bool| {
        let all = Checkpoints::open(&config, has_guests).unwrap();
        assert!(is_refused(&all, "web"));
        all.tidy();
        assert_eq!(there(&directory), (0, 1));
        all.away().unwrap()
    };
    assert!(away(true).contains("another agent (b 1234)"));
    fs::write(disk.mark(), "a 1234\n").unwrap();
    assert!(away(false).contains("another agent (a 1234), or of this one before"));
    let warned = Checkpoints::check(&config).unwrap();
    assert!(warned.unwrap().contains("(a 1234)"));
    // It is nobody's business where nothing is kept.
    assert!(!opened(&directory, 0).is_on());
    assert_eq!(there(&directory), (0, 1));

    fs::remove_file(disk.mark()).unwrap();
    assert_eq!(Checkpoints::check(&config).unwrap(), None);
    let all = opened(&directory, 64 << 20);
    assert_eq!(all.away(), None);
    leaves(&all, "web", 8).keep().unwrap();
    assert_eq!(Checkpoints::check(&config).unwrap(), None);
}

#[test]
fn of_two_agents_that_begin_with_a_directory_at_once_one_has_it() {
    for _ in 0..50 {
        let directory = tempfile::tempdir().unwrap();
        let shared = directory.path().join("pages");
        let begins = |name: &str| {
            let own = directory.path().join(name);
            let mut marks = Marks::open(&own, &name.parse().unwrap()).unwrap();
            let shared = shared.clone();
            std::thread::spawn(move || marks.look(&shared, || true))
        };
        let both = [begins("a"), begins("b")].map(|one| one.join().unwrap());
        let had = both.iter().filter(|looked| looked.is_ok()).count();
        let refused = |looked: &Result<(), Away>| matches!(looked, Err(Away::Another { .. }));
        assert!(had == 1 && both.iter().any(refused), "{both:?}");
    }
}

#[test]
fn what_another_agent_has_of_a_guest_of_the_same_name_is_never_removed() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::of(&directory);
    let all = opened(&directory, 64 << 20);
    leaves(&all, "web", 7).keep().unwrap();
    let growing = leaves(&all, "db", 8);
    // Its disk is taken out, and that of another host put in.
    disk.unmount();
    fs::write(disk.mark(), "b 1234\n").unwrap();
    for name in ["web.pages", "db.pages"] {
        fs::write(disk.mount.join(name), "its own").unwrap();
    }
    drop(growing);
    assert!(all.remove(&vm("web")).unwrap());
    assert_eq!(there(&directory), (0, 2));
    assert!(is_refused(&all, "web"));
    drop(all);
    // An agent that has had the directory is started all the same.
    let all = opened(&directory, 64 << 20);
    let why = all.away().unwrap();
    assert!(why.contains("(b 1234)"), "{why}");
    all.tidy();
    assert_eq!(there(&directory), (0, 2));
}
