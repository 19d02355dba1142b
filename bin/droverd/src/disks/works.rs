//! What is done with files of a migration's disks, in threads of its own: a file system may not answer for ever.
//!
//! # Invariant
//! One thing at a time for a migration: what was begun before, and hangs, is told to stop, and nothing is begun beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_types::MigrationId;
use tokio::time::timeout;

/// What is under way, by its migration.
#[derive(Debug, Clone, Default)]
pub struct Works(Arc<Mutex<BTreeMap<MigrationId, Stop>>>);

/// Whether nobody wants any more what is under way.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Before each step.
    ///
    /// # Errors
    /// None is to be done.
    pub fn check(&self) -> Result<(), String> {
        match self.0.load(Ordering::Relaxed) {
            true => Err("it is not wanted any more".to_owned()),
            false => Ok(()),
        }
    }
}

/// The right to do something, given back when dropped.
#[derive(Debug)]
struct Turn {
    all: Works,
    migration: MigrationId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.lock().remove(&self.migration);
    }
}

/// Stops what nobody waits for any more.
struct Waited(Stop);

impl Drop for Waited {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Works {
    /// Nothing in here panics while it holds the lock, so a poisoned one is as good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MigrationId, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what is under way end at its next step: whether anything is.
    pub fn stop(&self, migration: MigrationId) -> bool {
        self.lock().get(&migration).map(Stop::set).is_some()
    }

    /// Does this, for which so long is waited.
    ///
    /// # Errors
    /// Its own, or it has not ended yet, or something before it has not.
    pub async fn run<T: Send + 'static>(
        &self,
        migration: MigrationId,
        within: Duration,
        work: impl FnOnce(&Stop) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (turn, stop) = self.take(migration)?;
        let _waited = Waited(stop.clone());
        let work = tokio::task::spawn_blocking(move || {
            let done = work(&stop);
            drop(turn);
            done
        });
        match timeout(within, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                let seconds = within.as_secs();
                Err(format!(
                    "what is done with its disks' files has not ended within {seconds} s: see whether their file system answers"
                ))
            }
        }
    }

    fn take(&self, migration: MigrationId) -> Result<(Turn, Stop), String> {
        let mut all = self.lock();
        if let Some(before) = all.get(&migration) {
            before.set();
            return Err(
                "what was begun with its disks' files has not ended yet: see whether their file system answers"
                    .to_owned(),
            );
        }
        let stop = Stop::default();
        all.insert(migration, stop.clone());
        let all = self.clone();
        Ok((Turn { all, migration }, stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(7));
    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn what_hangs_is_not_waited_for_and_nothing_is_begun_beside_it_until_it_has_stopped() {
        let works = Works::default();
        assert!(!works.stop(ID));
        let (answer, hangs) = mpsc::channel::<()>();
        let (tell, told) = tokio::sync::oneshot::channel();
        let hung = works.run(ID, Duration::ZERO, move |stop| {
            let _ = hangs.recv();
            drop(tell.send(stop.check()));
            Ok(())
        });
        assert!(hung.await.unwrap_err().contains("has not ended within 0 s"));
        let second = works.run(ID, PATIENCE, |_| Ok(())).await.unwrap_err();
        assert!(second.contains("begun with its disks' files"), "{second}");
        let other = MigrationId(Uuid::from_u128(8));
        assert_eq!(
            works.run(other, PATIENCE, |stop| stop.check()).await,
            Ok(())
        );
        assert!(works.stop(ID));
        drop(answer);
        assert!(told.await.unwrap().is_err(), "it goes on");
        while works.stop(ID) {
            tokio::task::yield_now().await;
        }
        assert_eq!(works.run(ID, PATIENCE, |_| Ok(7)).await, Ok(7));
    }
}
