use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_types::{HostName, MigrationId, StorageMoveId};
use uuid::Uuid;

/// Which domains have a migration, or a disk that moves. One domain has one at a time on this host, from here or to here.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<BTreeMap<Uuid, Entry>>>);

#[derive(Debug)]
struct Entry {
    taken: Taken,
    way: Option<Way>,
}

/// Between which hosts a domain moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// From here.
    pub source: HostName,
    /// To here.
    pub destination: HostName,
}

/// What a domain's turn is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It moves by this migration.
    Moves(MigrationId),
    /// What is left to do after this one is done, which takes some calls to libvirt.
    Settles(MigrationId),
    /// A disk of it moves to another file of this host by this move.
    MovesDisk(StorageMoveId),
}

/// In words that follow the domain.
impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moves(id) => write!(f, "is migrating already (migration {id})"),
            Self::Settles(id) => write!(f, "is being put in order after migration {id}"),
            Self::MovesDisk(id) => write!(f, "is having a disk moved (storage move {id})"),
        }
    }
}

/// The turn of one migration, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    all: Turns,
    domain: Uuid,
}

impl Turns {
    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a domain that moves so.
    ///
    /// # Errors
    /// What it is taken for already.
    pub fn move_it(&self, domain: Uuid, id: MigrationId, way: Way) -> Result<Turn, Taken> {
        let taken = Taken::Moves(id);
        let way = Some(way);
        self.enter(domain, Entry { taken, way })
    }

    /// The turn to put a domain in order.
    ///
    /// # Errors
    /// As [`Turns::move_it`].
    pub fn settle_it(&self, domain: Uuid, after: MigrationId) -> Result<Turn, Taken> {
        let taken = Taken::Settles(after);
        self.enter(domain, Entry { taken, way: None })
    }

    /// The turn of a domain of which a disk moves.
    ///
    /// # Errors
    /// As [`Turns::move_it`].
    pub fn move_its_disk(&self, domain: Uuid, id: StorageMoveId) -> Result<Turn, Taken> {
        let taken = Taken::MovesDisk(id);
        self.enter(domain, Entry { taken, way: None })
    }

    fn enter(&self, domain: Uuid, entry: Entry) -> Result<Turn, Taken> {
        let mut all = self.lock();
        if let Some(other) = all.get(&domain) {
            return Err(other.taken);
        }
        all.insert(domain, entry);
        let all = self.clone();
        Ok(Turn { all, domain })
    }

    /// Between which hosts domains move now.
    pub fn ways(&self) -> BTreeMap<Uuid, Way> {
        let all = self.lock();
        let moving = all
            .iter()
            .filter_map(|(domain, entry)| Some((*domain, entry.way.clone()?)));
        moving.collect()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.lock().remove(&self.domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_one_migration_at_a_time() {
        let turns = Turns::default();
        let (web, db) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let id = |number| MigrationId(Uuid::from_u128(number));
        let way = || Way {
            source: "a".parse().unwrap(),
            destination: "b".parse().unwrap(),
        };
        let moves = |domain, number| turns.move_it(domain, id(number), way());
        let first = moves(web, 7).unwrap();
        assert_eq!(moves(web, 8).map(drop), Err(Taken::Moves(id(7))));
        let other = moves(db, 8).unwrap();
        assert_eq!(turns.ways(), [(web, way()), (db, way())].into());
        drop((first, other));
        let after = turns.settle_it(web, id(7)).unwrap();
        assert_eq!(turns.ways(), [].into(), "it moves no more");
        let refused = moves(web, 9).map(drop).unwrap_err();
        assert_eq!(refused, Taken::Settles(id(7)));
        assert!(refused.to_string().contains("in order after migration"));
        drop(after);
        let id = StorageMoveId(Uuid::from_u128(3));
        let disk = turns.move_its_disk(web, id).unwrap();
        assert_eq!(moves(web, 9).map(drop), Err(Taken::MovesDisk(id)));
        drop(disk);
        assert!(moves(web, 9).is_ok());
    }
}
