use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_types::MigrationId;
use uuid::Uuid;

/// Which domains have a migration. One domain has one at a time on this host, from here or to here.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<BTreeMap<Uuid, Taken>>>);

/// What a domain's turn is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It moves by this migration.
    Moves(MigrationId),
    /// What is left to do after this one is done, which takes some calls to libvirt.
    Settles(MigrationId),
}

/// In words that follow the domain.
impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moves(id) => write!(f, "is migrating already (migration {id})"),
            Self::Settles(id) => write!(f, "is being put in order after migration {id}"),
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn, for this.
    ///
    /// # Errors
    /// What it is taken for already.
    pub fn take(&self, domain: Uuid, taken: Taken) -> Result<Turn, Taken> {
        let mut all = self.lock();
        if let Some(other) = all.get(&domain) {
            return Err(*other);
        }
        all.insert(domain, taken);
        let all = self.clone();
        Ok(Turn { all, domain })
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
        let moves = |number| Taken::Moves(MigrationId(Uuid::from_u128(number)));
        let first = turns.take(web, moves(7)).unwrap();
        assert_eq!(turns.take(web, moves(8)).map(drop), Err(moves(7)));
        let _other = turns.take(db, moves(8)).unwrap();
        drop(first);
        let settles = Taken::Settles(MigrationId(Uuid::from_u128(7)));
        let after = turns.take(web, settles).unwrap();
        let refused = turns.take(web, moves(9)).map(drop).unwrap_err();
        assert_eq!(refused, settles);
        assert!(refused.to_string().contains("in order after migration"));
        drop(after);
        assert!(turns.take(web, moves(9)).is_ok());
    }
}
