use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_types::MigrationId;
use uuid::Uuid;

/// Which domains have a migration. One domain has one at a time on this host, from here or to here.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<BTreeMap<Uuid, MigrationId>>>);

/// The turn of one migration, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    all: Turns,
    domain: Uuid,
}

impl Turns {
    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, MigrationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn for this migration.
    ///
    /// # Errors
    /// The one that has it.
    pub fn take(&self, domain: Uuid, migration: MigrationId) -> Result<Turn, MigrationId> {
        let mut all = self.lock();
        if let Some(other) = all.get(&domain) {
            return Err(*other);
        }
        all.insert(domain, migration);
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
        let id = |number| MigrationId(Uuid::from_u128(number));
        let first = turns.take(web, id(7)).unwrap();
        assert_eq!(turns.take(web, id(8)).map(drop), Err(id(7)));
        let _other = turns.take(db, id(8)).unwrap();
        drop(first);
        assert!(turns.take(web, id(9)).is_ok());
    }
}
