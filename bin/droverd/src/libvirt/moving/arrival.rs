//! What this host knows of a domain that comes: for this agent, and for the next one while the host is up.
//!
//! A domain is known by its id, and whoever has that id today may be another tomorrow: one that was started here, or moved here, by
//! hand. So it is noted which process it was that came, in a file of the runtime directory, where nothing outlives the host's restart
//! either. The same file says that it has run here, before anybody is told so: the journal may stand on the disk on which the domain's
//! own writes fail.
//!
//! # Invariant
//! Only the process that was noted is ever ended.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_hypervisor::ProcessId;
use drover_libvirt::{Before, Comes};
use drover_types::MigrationId;
use serde::{Deserialize, Serialize};

use crate::registry::files;

/// The folder below the runtime directory.
const FOLDER: &str = "domains";

/// What was seen of it, whichever connection showed it.
#[derive(Debug)]
pub struct Arrival {
    file: PathBuf,
    noted: Mutex<Noted>,
    /// This agent was there before anything of it was here.
    from_the_beginning: bool,
    /// The source may have asked its libvirt to begin.
    begun: AtomicBool,
    /// It was in memory.
    there: AtomicBool,
}

/// What the next agent has to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Noted {
    /// The hypervisor's process that came.
    process: Option<ProcessId>,
    /// All of it was here.
    whole: bool,
    /// It has run here, by the source's word.
    has_run: bool,
    /// It was seen to run, whoever had it run, or another process with its id was.
    ran: bool,
}

/// Which process has a domain that is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The one that came.
    Came,
    /// Another one, which this migration has nothing to do with.
    Another(ProcessId),
    /// It is not found, or which one came was never seen.
    NotKnown,
}

impl Arrival {
    /// Of one that is to come.
    pub fn new(runtime: &Path, migration: MigrationId) -> Self {
        Self {
            file: file(runtime, migration),
            noted: Mutex::default(),
            from_the_beginning: true,
            begun: AtomicBool::new(false),
            there: AtomicBool::new(false),
        }
    }

    /// Of one that an agent before this one had begun to take in.
    pub fn of_before(runtime: &Path, migration: MigrationId) -> Self {
        let file = file(runtime, migration);
        let noted = files::read_document(&file).unwrap_or_else(|error| {
            tracing::error!(file = %file.display(), %error, "not known which process came");
            None
        });
        let noted: Noted = noted.unwrap_or_default();
        Self {
            file,
            noted: Mutex::new(noted),
            from_the_beginning: false,
            begun: AtomicBool::new(true),
            there: AtomicBool::new(noted.process.is_some()),
        }
    }

    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source may ask its libvirt from now on.
    pub fn begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Whether the source may have asked its libvirt.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// What was seen of it so far.
    pub fn before(&self) -> Before {
        let whole = self.lock().whole;
        let there = self.there.load(Ordering::Relaxed);
        Before { there, whole }
    }

    /// It has run here, as far as was written down.
    pub fn has_run(&self) -> bool {
        self.lock().has_run
    }

    /// It may have written to its disks here, by whoever's word.
    pub fn may_have_written(&self) -> bool {
        let noted = self.lock();
        noted.has_run || noted.ran
    }

    /// It is in memory: whose it is, with this process. The first that is seen is the one that came.
    pub fn see(&self, comes: Comes, process: Option<ProcessId>) -> Whose {
        let mut noted = self.lock();
        let whose = whose(&noted, self.from_the_beginning, comes, process);
        let is_another = matches!(whose, Whose::Another(_));
        let mut known = Noted {
            ran: noted.ran || is_another || comes == Comes::Runs,
            ..*noted
        };
        if !is_another {
            self.there.store(true, Ordering::Relaxed);
            known.whole |= matches!(comes, Comes::Whole | Comes::Runs);
            known.process = noted.process.or(process.filter(|_| whose == Whose::Came));
        }
        if known != *noted {
            *noted = known;
            if let Err(error) = self.write(known) {
                tracing::error!(file = %self.file.display(), %error, "not noted for the next agent");
            }
        }
        whose
    }

    /// It has been told to run, and does.
    ///
    /// # Errors
    /// That cannot be written down.
    pub fn runs(&self) -> io::Result<()> {
        let mut noted = self.lock();
        noted.has_run = true;
        self.write(*noted)
    }

    /// Nothing is to be known of it any more.
    pub fn forget(&self) {
        if let Err(error) = files::remove(&self.file) {
            tracing::warn!(file = %self.file.display(), %error, "not removed");
        }
    }

    fn write(&self, noted: Noted) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        files::write_whole(&self.file, &serde_json::to_vec(&noted)?)
    }
}

/// Removes what was noted of migrations other than these, which are over.
pub fn forget_all_but(runtime: &Path, kept: &BTreeSet<MigrationId>) {
    let Ok(found) = std::fs::read_dir(runtime.join(FOLDER)) else {
        // There are none.
        return;
    };
    let kept: BTreeSet<PathBuf> = kept.iter().map(|id| file(runtime, *id)).collect();
    for path in found.flatten().map(|entry| entry.path()) {
        if !kept.contains(&path)
            && let Err(error) = files::remove(&path)
        {
            tracing::warn!(file = %path.display(), %error, "not removed");
        }
    }
}

fn file(runtime: &Path, migration: MigrationId) -> PathBuf {
    runtime.join(FOLDER).join(format!("{migration}.json"))
}

/// An agent that was there from the beginning has seen that nothing was here before. One that was not takes only what still comes for
/// what is to come.
fn whose(
    noted: &Noted,
    from_the_beginning: bool,
    comes: Comes,
    process: Option<ProcessId>,
) -> Whose {
    match (noted.process, process) {
        (Some(came), Some(now)) if came == now => Whose::Came,
        (Some(_), Some(now)) => Whose::Another(now),
        (None, Some(_)) if from_the_beginning || comes == Comes::Receives => Whose::Came,
        (None, Some(_)) | (_, None) => Whose::NotKnown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(7));

    fn process(pid: u32) -> Option<ProcessId> {
        let start_time = 1;
        Some(ProcessId { pid, start_time })
    }

    #[test]
    fn the_process_that_came_is_known_to_the_next_agent_and_a_later_one_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let first = Arrival::new(folder.path(), ID);
        first.begins();
        assert_eq!(first.see(Comes::Receives, process(1)), Whose::Came);
        assert_eq!(first.see(Comes::Whole, process(1)), Whose::Came);
        for known in [first, Arrival::of_before(folder.path(), ID)] {
            let before = known.before();
            assert!(before.there && before.whole && known.has_begun());
            assert_eq!(known.see(Comes::Whole, process(1)), Whose::Came);
            let another = known.see(Comes::Whole, process(2));
            assert_eq!(another, Whose::Another(process(2).unwrap()));
            assert_eq!(known.see(Comes::Whole, None), Whose::NotKnown);
        }
    }

    #[test]
    fn an_agent_that_knows_of_no_process_takes_only_what_still_comes_for_what_is_to_come() {
        let folder = tempfile::tempdir().unwrap();
        for comes in [Comes::Whole, Comes::Runs] {
            let next = Arrival::of_before(folder.path(), ID);
            assert_eq!(next.see(comes, process(1)), Whose::NotKnown, "{comes:?}");
        }
        let next = Arrival::of_before(folder.path(), ID);
        assert_eq!(next.see(Comes::Receives, process(1)), Whose::Came);
        let begun_here = Arrival::new(folder.path(), ID);
        assert_eq!(begun_here.see(Comes::Whole, process(1)), Whose::Came);
    }

    #[test]
    fn that_it_has_run_is_written_down_and_nothing_is_left_of_it_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let arrival = Arrival::new(folder.path(), ID);
        arrival.see(Comes::Whole, process(1));
        assert!(!Arrival::of_before(folder.path(), ID).has_run());
        arrival.runs().unwrap();
        let next = Arrival::of_before(folder.path(), ID);
        assert!(next.has_run());
        assert_eq!(next.see(Comes::Whole, process(1)), Whose::Came);
        next.forget();
        next.forget();
        assert!(!Arrival::of_before(folder.path(), ID).has_run());
    }

    #[test]
    fn one_that_somebody_had_run_may_have_written_to_its_disks_and_one_that_only_came_has_not() {
        let folder = tempfile::tempdir().unwrap();
        let wrote = || Arrival::of_before(folder.path(), ID).may_have_written();
        let arrival = Arrival::new(folder.path(), ID);
        arrival.see(Comes::Receives, process(1));
        arrival.see(Comes::Whole, process(1));
        assert!(!wrote());
        // Neither is to be forgotten when it stands still, or is gone, at the next look.
        arrival.see(Comes::Runs, process(1));
        assert!(wrote() && !arrival.has_run());
        arrival.forget();
        let arrival = Arrival::new(folder.path(), ID);
        arrival.see(Comes::Whole, process(1));
        arrival.see(Comes::Whole, process(2));
        assert!(wrote());
    }

    #[test]
    fn what_was_noted_of_migrations_that_are_over_goes() {
        let folder = tempfile::tempdir().unwrap();
        forget_all_but(folder.path(), &BTreeSet::new());
        let other = MigrationId(Uuid::from_u128(8));
        for id in [ID, other] {
            Arrival::new(folder.path(), id).runs().unwrap();
        }
        forget_all_but(folder.path(), &[ID].into());
        assert!(Arrival::of_before(folder.path(), ID).has_run());
        assert!(!Arrival::of_before(folder.path(), other).has_run());
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        Arrival::new(folder.path(), ID).runs().unwrap();
        std::fs::write(file(folder.path(), ID), "{").unwrap();
        let next = Arrival::of_before(folder.path(), ID);
        assert!(!next.has_run());
        assert_eq!(next.see(Comes::Whole, process(1)), Whose::NotKnown);
    }
}
