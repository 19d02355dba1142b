//! Looks at files, of which one may hang for ever: at a file system of a machine that is gone.
//!
//! # Invariant
//! A look that hangs keeps one thread, and nobody waits for it longer than for others. No second one is begun on a mount where one hangs,
//! so that what is on others is looked at all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::super::limits;
use super::found::{Found, look};
use super::mounts::{self, LIST};

/// What was found at each path, or why that is not known.
pub type Looked = BTreeMap<PathBuf, Result<Found, Hang>>;

/// Looks that are taken for what domains need on this host. The agent has threads for other things.
#[derive(Debug)]
pub struct Looks {
    turns: Arc<Semaphore>,
    mounts: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(limits::LOOKS)),
            mounts: Mutex::default(),
        }
    }
}

impl Looks {
    /// What is at these paths; each mount is waited for so long.
    pub async fn at(&self, paths: impl IntoIterator<Item = PathBuf>, within: Duration) -> Looked {
        let list = std::fs::read(LIST).unwrap_or_default();
        let list = String::from_utf8_lossy(&list);
        let mut on: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for path in paths {
            on.entry(mounts::point_of(&list, &path))
                .or_default()
                .push(path);
        }
        let looks = on.into_iter().map(async |(mount, paths)| {
            let all = paths.clone();
            let look = move || all.iter().map(|path| look(path)).collect();
            let found: Result<Vec<Found>, Hang> = self.one(mount, within, look).await;
            match found {
                Ok(found) => paths.into_iter().zip(found.into_iter().map(Ok)).collect(),
                Err(hang) => paths.into_iter().map(|path| (path, Err(hang))).collect(),
            }
        });
        let looked: Vec<Looked> = join_all(looks).await;
        looked.into_iter().flatten().collect()
    }

    /// One look, in a thread of its own, that is waited for so long with its turn.
    async fn one<T: Send + 'static>(
        &self,
        mount: PathBuf,
        within: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hang> {
        let until = Instant::now() + within;
        let turns = async {
            let mount = self.turn_on(mount).await;
            let turn = Arc::clone(&self.turns).acquire_owned().await;
            // It is never closed.
            turn.ok().map(|turn| (mount, turn))
        };
        let turns = timeout_at(until, turns).await;
        let turns = turns.ok().flatten().ok_or(Hang::Before)?;
        let looked = tokio::task::spawn_blocking(move || {
            let found = look();
            drop(turns);
            found
        });
        let looked = timeout_at(until, looked).await;
        looked.ok().and_then(Result::ok).ok_or(Hang::This(within))
    }

    /// The turn to look there. Those that nobody has or wants are forgotten.
    async fn turn_on(&self, mount: PathBuf) -> OwnedMutexGuard<()> {
        let turn = {
            // Nothing in here panics while it holds the lock, so a poisoned one is as good.
            let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
            mounts.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(mounts.entry(mount).or_default())
        };
        turn.lock_owned().await
    }
}

/// What does not end within its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// This look, for which so long was waited.
    This(Duration),
    /// A look there that was begun before, or as many elsewhere as there may be.
    Before,
}

/// In words that follow what was looked for.
impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::This(within) => {
                write!(f, "files cannot be looked at within {} s", within.as_secs())?;
            }
            Self::Before => f.write_str("a look at files that was begun before has not ended")?,
        }
        f.write_str(": `df` there hangs, too, where a file system of another machine does")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SHOW;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    #[tokio::test]
    async fn what_is_at_paths_is_told_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let (here, gone) = (folder.path().to_owned(), folder.path().join("gone"));
        let looks = Looks::default();
        let looked = looks.at([here.clone(), gone.clone()], SHOW).await;
        assert_eq!(looked[&here], Ok(Found::Other("a folder")));
        assert_eq!(looked[&gone], Ok(Found::Nothing));
    }

    #[tokio::test]
    async fn looks_that_hang_are_bounded_and_the_next_waits_for_one_that_ends() {
        let looks = Looks::default();
        let mut hanging = Vec::new();
        for number in 0..limits::LOOKS {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            hanging.push(end);
            let mount = PathBuf::from(format!("/{number}"));
            let mut looked = Box::pin(looks.one(mount, SHOW, move || ended.recv().is_err()));
            assert!(futures_util::poll!(looked.as_mut()).is_pending());
            // Whoever wanted it waits no longer from here on, and its thread goes on.
        }
        assert_eq!(looks.turns.available_permits(), 0);
        let mut next = std::pin::pin!(looks.one("/next".into(), SHOW, || 7));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        drop(hanging);
        assert_eq!(next.await, Ok(7));
    }

    #[tokio::test]
    async fn where_one_look_hangs_no_second_is_begun_and_other_mounts_are_looked_at() {
        let looks = Looks::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let short = Duration::ZERO;
        let hangs = looks.one("/gone".into(), SHOW, move || ended.recv().is_err());
        let mut hangs = Box::pin(hangs);
        assert!(futures_util::poll!(hangs.as_mut()).is_pending());
        let second = looks.one("/gone".into(), short, || 7).await;
        assert_eq!(second, Err(Hang::Before));
        assert_eq!(looks.turns.available_permits(), limits::LOOKS - 1);
        assert_eq!(looks.one("/there".into(), SHOW, || 7).await, Ok(7));
        drop(end);
        assert_eq!(hangs.await, Ok(true));
        assert_eq!(looks.one("/gone".into(), SHOW, || 7).await, Ok(7));
        assert_eq!(
            looks.mounts.lock().unwrap().len(),
            1,
            "others are forgotten"
        );
    }

    /// A file system in a namespace of its own whose server never answers, until it is dropped.
    struct Silent(Child);

    impl Silent {
        fn mounted() -> Option<Self> {
            let script = "exec 3<>/dev/fuse; mount -i -t fuse.silent \
                          -o fd=3,rootmode=40000,user_id=0,group_id=0 nas:/images /mnt && echo mounted; read line";
            let child = Command::new("unshare")
                .args(["--mount", "sh", "-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut silent = Self(child.ok()?);
            let mut said = String::new();
            let output = silent.0.stdout.take()?;
            BufReader::new(output).read_line(&mut said).ok()?;
            (said == "mounted\n").then_some(silent)
        }
    }

    impl Drop for Silent {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test]
    async fn a_file_system_whose_server_does_not_answer_keeps_nobody_from_others() {
        let Some(silent) = Silent::mounted() else {
            eprintln!("skipped, because no FUSE can be mounted in a namespace of its own here");
            return;
        };
        let looks = Looks::default();
        let file = PathBuf::from(format!("/proc/{}/root/mnt/web.img", silent.0.id()));
        let looked = looks.one("/mnt".into(), Duration::ZERO, move || {
            std::fs::metadata(file)
        });
        assert_eq!(looked.await.map(drop), Err(Hang::This(Duration::ZERO)));
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        let looked = looks.at([here.clone()], SHOW).await;
        assert_eq!(looked[&here], Ok(Found::Other("a folder")));
        // Its thread ends with the file system.
        drop(silent);
        assert_eq!(looks.one("/mnt".into(), SHOW, || 7).await, Ok(7));
    }

    #[test]
    fn a_look_that_hangs_says_so_and_what_to_look_at() {
        let before = Hang::Before.to_string();
        assert!(before.ends_with(
            "has not ended: `df` there hangs, too, where a file system of another machine does"
        ));
        assert!(Hang::This(SHOW).to_string().contains("within 2 s"));
    }
}
