//! The folders of changes, one each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use drover_api::{ErrorCode, Refusal};
use drover_change::{Account, Alone, Journal, JournalError, named};
use drover_tune::Step;
use drover_types::{ChangeId, with_sources};

use crate::limits::{CHANGES_KEPT, CHANGES_LISTED};

/// Where they are.
#[derive(Debug)]
pub struct Folders {
    directory: PathBuf,
}

impl Folders {
    /// Those below this directory.
    pub fn below(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The folder of one, whether it is there or not.
    pub fn of(&self, id: ChangeId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// Has nobody change this host until it is dropped.
    ///
    /// # Errors
    /// Somebody does, or it is not known.
    pub fn alone(&self) -> Result<Alone, JournalError> {
        Alone::below(&self.directory)
    }

    /// The folder of one that is there.
    ///
    /// # Errors
    /// It is not.
    pub fn existing(&self, id: ChangeId) -> Result<PathBuf, Refusal> {
        let folder = self.of(id);
        if folder.is_dir() {
            return Ok(folder);
        }
        let message = format!("there is no change {id} of this host");
        let next = "`drover doctor changes` lists those that are remembered";
        Err(Refusal::new(ErrorCode::NoSuchChange, message).next(next))
    }

    /// All that there are, the oldest first. What has another name than an id, such as the lock, is none.
    pub fn ids(&self) -> Vec<ChangeId> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let named = entries.flatten().take(CHANGES_LISTED);
        let mut ids: Vec<ChangeId> = named
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The same, with what each tells: read when its turn comes, so that one is in memory at a time.
    pub fn all(
        &self,
    ) -> impl DoubleEndedIterator<Item = (ChangeId, Result<Account, JournalError>)> {
        let ids = self.ids().into_iter();
        ids.map(|id| (id, Account::read(&self.of(id))))
    }

    /// Which are to be forgotten so that there is room for this one: the oldest ones, as far as nothing of them can be undone; and then those
    /// of which nothing can be undone unless later ones are.
    ///
    /// # Errors
    /// There are too many others.
    pub fn in_the_way(&self, of: ChangeId, boot: &str) -> Result<Vec<ChangeId>, Refusal> {
        let others = self.ids().into_iter().filter(|id| *id != of).count();
        let too_many = (others + 1).saturating_sub(CHANGES_KEPT);
        if too_many == 0 {
            return Ok(Vec::new());
        }
        let is_over = |read: &Result<Account, JournalError>| {
            let account = read.as_ref();
            account
                .is_ok_and(|account| account.standing.has_ended() && !can_be_undone(account, boot))
        };
        let over = self.all().filter(|(id, read)| *id != of && is_over(read));
        let mut found: Vec<ChangeId> = over.map(|(id, _)| id).take(too_many).collect();
        if found.len() < too_many {
            let more = too_many - found.len();
            found.extend(self.superseded(boot).into_iter().take(more));
        }
        if found.len() == too_many {
            return Ok(found);
        }
        let message = format!(
            "{CHANGES_KEPT} changes of this host are remembered, and can be undone: there is no room for more"
        );
        let next = "undo one with `drover doctor undo ID`, or leave what it has set as it is with `drover doctor forget ID`: it cannot be \
                    undone any more then. `drover doctor changes` lists them; a restart of the host ends those that do not last";
        Err(Refusal::new(ErrorCode::ChangeUnderWay, message).next(next))
    }

    /// Forgets those, by who has the lock of changes. What cannot be removed is in the way of the next one.
    pub fn forget(&self, those: &[ChangeId], lock: &OwnedFd) {
        for id in those {
            match Journal::forget_beside(&self.of(*id), lock) {
                Ok(()) => tracing::info!(
                    %id,
                    "a change is forgotten, as there is no room for more: what it has set is gone, or later ones have set it as well"
                ),
                Err(error) => {
                    let error = with_sources(&error);
                    tracing::warn!(%id, error, "a change cannot be forgotten");
                }
            }
        }
    }

    /// Interrupts that changes since this start of the host have passed by, as the kernel spreads them by itself, and which processors might
    /// take each: with a driver that is started anew its number may be another one's.
    pub fn passed_by(&self, boot: &str) -> BTreeMap<u32, String> {
        let mut passed = BTreeMap::new();
        for account in self.all().filter_map(|(_, read)| read.ok()) {
            let standing = &account.standing;
            if standing.boot.as_deref() != Some(boot) {
                continue;
            }
            for (number, step) in account.steps.iter().enumerate() {
                if standing.passed_by(number).is_some()
                    && let Step::File { path, from, .. } = step
                    && let Some(interrupt) = interrupt(path)
                {
                    passed.insert(interrupt, from.clone());
                }
            }
        }
        passed
    }

    /// Those older than this one that can be undone, and have changed something that it has changed as well: they find it otherwise than
    /// they left it. The oldest first.
    pub fn held_up_by(&self, id: ChangeId, account: &Account, boot: &str) -> Vec<ChangeId> {
        if !can_be_undone(account, boot) {
            return Vec::new();
        }
        let own = touched(account, boot);
        let is_held_up =
            |older: &Account| can_be_undone(older, boot) && !touched(older, boot).is_disjoint(&own);
        let older = self.all().take_while(|(other, _)| *other < id);
        let found = older.filter(|(_, read)| read.as_ref().is_ok_and(is_held_up));
        found.map(|(other, _)| other).collect()
    }

    /// Those that can be undone, and whose settings and files later ones have changed as well, all of them; the oldest first. These
    /// have to be undone before.
    fn superseded(&self, boot: &str) -> Vec<ChangeId> {
        let mut later = BTreeSet::new();
        let mut superseded = Vec::new();
        for (id, read) in self.all().rev() {
            let Some(account) = read.ok().filter(|account| can_be_undone(account, boot)) else {
                continue;
            };
            let own = touched(&account, boot);
            if own.is_subset(&later) {
                superseded.push(id);
            }
            later.extend(own);
        }
        superseded.reverse();
        superseded
    }
}

/// Whose file that is.
fn interrupt(path: &str) -> Option<u32> {
    let number = path.strip_prefix("proc/irq/")?;
    number.strip_suffix("/smp_affinity_list")?.parse().ok()
}

/// Whether something of it may be there, and can be taken back.
fn can_be_undone(account: &Account, boot: &str) -> bool {
    let standing = &account.standing;
    standing.can_be_undone() && standing.may_be_there(boot)
}

/// The settings that it changed and the files that it wrote, and has not taken back; without those that a restart has made void.
fn touched(account: &Account, boot: &str) -> BTreeSet<String> {
    let (steps, files) = (&account.steps, account.order.files());
    let touched = account.standing.touched();
    let name = |number: usize| match steps.get(number) {
        Some(step) if account.is_void(step, boot) => None,
        Some(step) => Some(named(step)),
        None => Some(files.get(number - steps.len())?.path.clone()),
    };
    touched.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::show::tests::lasting;
    use super::*;
    use drover_change::{Journal, Order, Outcome, Plan, Planned, Record};
    use drover_tune::Disruption;
    use jiff::Timestamp;
    use uuid::Uuid;

    /// A change that was applied as the host had this boot id, of a setting of its own.
    fn applied(folders: &Folders, number: u128, boot: &str) -> ChangeId {
        set(folders, number, boot, number)
    }

    /// The same of this interrupt.
    fn set(folders: &Folders, number: u128, boot: &str, irq: u128) -> ChangeId {
        let id = ChangeId(Uuid::from_u128(number));
        let at = Timestamp::UNIX_EPOCH;
        let plan = Plan {
            host: "a".parse().unwrap(),
            boot: boot.into(),
            made_at: at,
            version: "1".into(),
            changes: vec![Planned {
                rule: "a-rule".into(),
                nic: None,
                disruption: Disruption::Safe,
                why: "because".into(),
                steps: vec![Step::File {
                    path: format!("proc/irq/{irq}/smp_affinity_list"),
                    from: "0".into(),
                    to: "1".into(),
                }],
            }],
            lasting: None,
        };
        let paths = Vec::new();
        let order = Order {
            plan,
            paths,
            links: Vec::new(),
            moving: 0,
            lasting: None,
        };
        let mut journal = Journal::make(&folders.of(id), &order).unwrap();
        let outcome = Outcome::Applied { proven: 0 };
        for record in [
            Record::Began {
                at,
                boot: boot.into(),
                paths: Vec::new(),
                opened: Vec::new(),
                unopened: Vec::new(),
                carriers: Vec::new(),
                sizes: Vec::new(),
                untold: Vec::new(),
            },
            Record::AboutTo { step: 0 },
            Record::Done { step: 0 },
            Record::Ended { at, outcome },
        ] {
            journal.append(record).unwrap();
        }
        id
    }

    /// As a change makes it that is begun.
    fn make_room(folders: &Folders, boot: &str) -> Result<(), Refusal> {
        let newest = folders.ids().pop().unwrap();
        let lock = Journal::open(&folders.of(newest)).unwrap().into_lock();
        let next = ChangeId(Uuid::from_u128(u128::MAX));
        let found = folders.in_the_way(next, boot)?;
        folders.forget(&found, &lock);
        Ok(())
    }

    #[test]
    fn the_oldest_are_forgotten_that_cannot_be_undone_and_without_such_there_is_no_room() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::below(root.path().to_owned());
        let there = applied(&folders, 1, "now");
        let gone = applied(&folders, 2, "before");
        for number in 3..=CHANGES_KEPT as u128 {
            applied(&folders, number, "now");
        }
        make_room(&folders, "now").unwrap();
        let ids = folders.ids();
        assert!(ids.contains(&there) && !ids.contains(&gone), "{ids:?}");
        make_room(&folders, "now").unwrap();
        applied(&folders, 1000, "now");
        let refusal = make_room(&folders, "now").unwrap_err();
        assert_eq!(refusal.code, ErrorCode::ChangeUnderWay);
        assert!(refusal.next.unwrap().contains("`drover doctor forget ID`"));
        assert_eq!(folders.ids().len(), CHANGES_KEPT);
        make_room(&folders, "after a restart").unwrap();
        assert_eq!(folders.ids().len(), CHANGES_KEPT - 1);
    }

    #[test]
    fn without_other_room_those_are_forgotten_whose_settings_later_ones_have_set() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::below(root.path().to_owned());
        for number in 1..=CHANGES_KEPT as u128 {
            // The second and the third set the same as the last two.
            let irq = match number {
                2 => CHANGES_KEPT as u128 - 1,
                3 => CHANGES_KEPT as u128,
                other => other,
            };
            set(&folders, number, "now", irq);
        }
        make_room(&folders, "now").unwrap();
        let left = |number: u128| folders.ids().contains(&ChangeId(Uuid::from_u128(number)));
        assert!(left(1) && !left(2) && left(3) && left(4));
        applied(&folders, 1000, "now");
        make_room(&folders, "now").unwrap();
        assert!(left(1) && !left(3) && left(4) && left(CHANGES_KEPT as u128));
        applied(&folders, 1001, "now");
        make_room(&folders, "now").unwrap_err();
    }

    #[test]
    fn those_are_named_that_cannot_be_undone_once_a_later_one_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::below(root.path().to_owned());
        let first = set(&folders, 1, "now", 7);
        set(&folders, 2, "now", 8);
        set(&folders, 3, "before", 7);
        let last = set(&folders, 4, "now", 7);
        let newer = set(&folders, 5, "now", 7);
        let held_up = |id: ChangeId, boot: &str| {
            let account = Account::read(&folders.of(id)).unwrap();
            folders.held_up_by(id, &account, boot)
        };
        assert_eq!(held_up(last, "now"), [first]);
        assert_eq!(held_up(newer, "now"), [first, last]);
        assert_eq!(held_up(first, "now"), []);
        assert_eq!(held_up(newer, "after a restart"), []);
    }

    #[test]
    fn an_interrupt_that_a_restart_has_given_back_is_shared_with_no_later_change() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::below(root.path().to_owned());
        let lasts = ChangeId(Uuid::from_u128(1));
        lasting(&folders.of(lasts));
        for (number, boot, held_up) in [(2, "second", vec![]), (3, "first", vec![lasts])] {
            let id = set(&folders, number, boot, 7);
            let account = Account::read(&folders.of(id)).unwrap();
            assert_eq!(folders.held_up_by(id, &account, boot), held_up, "{boot}");
        }
    }

    #[test]
    fn interrupts_that_a_change_passed_by_are_known_until_the_host_is_restarted() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::below(root.path().to_owned());
        set(&folders, 1, "now", 6);
        let plan = |irq: u32| Step::File {
            path: format!("proc/irq/{irq}/smp_affinity_list"),
            from: "4-7".into(),
            to: "0-3".into(),
        };
        let at = Timestamp::UNIX_EPOCH;
        let order = Order {
            plan: Plan {
                host: "a".parse().unwrap(),
                boot: "now".into(),
                made_at: at,
                version: "1".into(),
                changes: vec![Planned {
                    rule: "nic-interrupts".into(),
                    nic: Some("ens1f0".into()),
                    disruption: Disruption::Safe,
                    why: "because".into(),
                    steps: vec![plan(7), plan(8)],
                }],
                lasting: None,
            },
            paths: Vec::new(),
            links: Vec::new(),
            moving: 0,
            lasting: None,
        };
        let id = ChangeId(Uuid::from_u128(2));
        let mut journal = Journal::make(&folders.of(id), &order).unwrap();
        for record in [
            Record::Began {
                at,
                boot: "now".into(),
                paths: Vec::new(),
                opened: Vec::new(),
                unopened: Vec::new(),
                carriers: Vec::new(),
                sizes: Vec::new(),
                untold: Vec::new(),
            },
            Record::AboutTo { step: 0 },
            Record::PassedBy {
                step: 0,
                why: "the kernel spreads it by itself".into(),
            },
            Record::AboutTo { step: 1 },
            Record::Done { step: 1 },
            Record::Ended {
                at,
                outcome: Outcome::Applied { proven: 0 },
            },
        ] {
            journal.append(record).unwrap();
        }
        assert_eq!(folders.passed_by("now"), [(7, "4-7".to_owned())].into());
        assert_eq!(folders.passed_by("after a restart"), BTreeMap::new());
    }
}
