//! Looks at files, of which one may hang for ever: at a file system of a machine that is gone.
//!
//! # Invariant
//! A look that hangs keeps one thread, and nobody waits for it longer than for others. No second one is begun on a mount where one hangs,
//! so that what is on others is looked at all the same: links are followed to the mount that they lead to, and looked at in its turn.
//! What was found before one hangs is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{OwnedMutexGuard, Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use super::super::limits;
use super::found::{Found, Sight};
use super::mounts::Mounts;
use super::way::Way;

/// What was found at each path, or why that is not known.
pub type Looked = BTreeMap<PathBuf, Result<Found, Hang>>;

/// Paths, each with the processes that are to have open what is there.
pub type Held = BTreeMap<PathBuf, BTreeSet<u32>>;

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
    /// What is at these paths; each is waited for so long.
    pub async fn at(&self, paths: impl IntoIterator<Item = PathBuf>, within: Duration) -> Looked {
        let ways = paths.into_iter().map(Way::to).collect();
        let bound = Bound::from_now(within);
        self.on_all(Arc::new(Mounts::now()), ways, bound).await
    }

    /// The same, and whether these processes have it open.
    pub async fn held(&self, paths: Held, within: Duration) -> Looked {
        let ways = paths.into_iter().map(Way::of).collect();
        let bound = Bound::from_now(within);
        self.on_all(Arc::new(Mounts::now()), ways, bound).await
    }

    /// Something else that is looked at on the mount of a path, in its turn there; it is waited for so long.
    ///
    /// # Errors
    /// It hangs, or another look there does.
    pub async fn on_mount_of<T: Send + 'static>(
        &self,
        path: PathBuf,
        within: Duration,
        look: impl FnOnce(&dyn Fn(&Path) -> bool) -> T + Send + 'static,
    ) -> Result<T, Hang> {
        let mounts = Mounts::now();
        let mount = mounts.point_of(&path).to_owned();
        let here = mount.clone();
        let look = move || look(&|other| mounts.point_of(other) == here);
        self.one(mount, Bound::from_now(within), look).await
    }

    /// Each mount by itself: where one hangs, nobody waits who has not come there.
    fn on_all(&self, mounts: Arc<Mounts>, ways: Vec<Way>, bound: Bound) -> BoxFuture<'_, Looked> {
        let mut on: BTreeMap<PathBuf, Vec<Way>> = BTreeMap::new();
        for way in ways {
            on.entry(way.mount(&mounts)).or_default().push(way);
        }
        let looks = on.into_iter();
        let looks =
            looks.map(move |(mount, ways)| self.on_one(Arc::clone(&mounts), mount, ways, bound));
        let looks: Vec<_> = looks.collect();
        async move { join_all(looks).await.into_iter().flatten().collect() }.boxed()
    }

    /// What is on this mount, and then what is where links and mounts lead from there.
    async fn on_one(
        &self,
        mounts: Arc<Mounts>,
        mount: PathBuf,
        ways: Vec<Way>,
        bound: Bound,
    ) -> Looked {
        let (mut sight, at) = (Sight::new(Arc::clone(&mounts)), mount.clone());
        let look = move |way: &mut Way| sight.at_end_of(way, &at);
        let (mut looked, further) = self.each(mount, ways, bound, look).await;
        if !further.is_empty() {
            looked.extend(self.on_all(mounts, further, bound).await);
        }
        looked
    }

    /// What is at the end of each of these, as far as that is found in time, and those that lead on to another mount.
    async fn each(
        &self,
        mount: PathBuf,
        ways: Vec<Way>,
        bound: Bound,
        mut look: impl FnMut(&mut Way) -> Option<Found> + Send + 'static,
    ) -> (Looked, Vec<Way>) {
        let asked: Vec<_> = ways.iter().map(|way| way.asked.clone()).collect();
        // There is room for all, so that nobody waits who tells.
        let (tell, mut told) = mpsc::channel(ways.len().max(1));
        let all = move || {
            for mut way in ways {
                let found = look(&mut way);
                // Nobody wants the rest any more.
                if tell.try_send((way, found)).is_err() {
                    return;
                }
            }
        };
        let hang = self.one(mount, bound, all).await.err();
        told.close();
        // None is left where nothing hung.
        let hang = hang.unwrap_or(Hang::Before);
        let mut looked: Looked = asked.into_iter().map(|path| (path, Err(hang))).collect();
        let mut further = Vec::new();
        while let Ok((way, found)) = told.try_recv() {
            match found {
                Some(found) => drop(looked.insert(way.asked, Ok(found))),
                None => further.push(way),
            }
        }
        (looked, further)
    }

    /// One look, in a thread of its own, that is waited for so long with its turn.
    async fn one<T: Send + 'static>(
        &self,
        mount: PathBuf,
        bound: Bound,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hang> {
        let turns = async {
            let mount = self.turn_on(mount).await;
            let turn = Arc::clone(&self.turns).acquire_owned().await;
            // It is never closed.
            turn.ok().map(|turn| (mount, turn))
        };
        let turns = timeout_at(bound.until, turns).await;
        let turns = turns.ok().flatten().ok_or(Hang::Before)?;
        let looked = tokio::task::spawn_blocking(move || {
            let found = look();
            drop(turns);
            found
        });
        let looked = timeout_at(bound.until, looked).await;
        looked
            .ok()
            .and_then(Result::ok)
            .ok_or(Hang::This(bound.within))
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

/// Until when is waited.
#[derive(Debug, Clone, Copy)]
struct Bound {
    within: Duration,
    until: Instant,
}

impl Bound {
    fn from_now(within: Duration) -> Self {
        let until = Instant::now() + within;
        Self { within, until }
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
    use std::path::Path;
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
            let mut looked =
                Box::pin(looks.one(mount, Bound::from_now(SHOW), move || ended.recv().is_err()));
            assert!(futures_util::poll!(looked.as_mut()).is_pending());
            // Whoever wanted it waits no longer from here on, and its thread goes on.
        }
        assert_eq!(looks.turns.available_permits(), 0);
        let mut next = std::pin::pin!(looks.one("/next".into(), Bound::from_now(SHOW), || 7));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        drop(hanging);
        assert_eq!(next.await, Ok(7));
    }

    #[tokio::test]
    async fn where_one_look_hangs_no_second_is_begun_and_other_mounts_are_looked_at() {
        let looks = Looks::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let short = Bound::from_now(Duration::ZERO);
        let hangs = looks.one("/gone".into(), Bound::from_now(SHOW), move || {
            ended.recv().is_err()
        });
        let mut hangs = Box::pin(hangs);
        assert!(futures_util::poll!(hangs.as_mut()).is_pending());
        let second = looks.one("/gone".into(), short, || 7).await;
        assert_eq!(second, Err(Hang::Before));
        assert_eq!(looks.turns.available_permits(), limits::LOOKS - 1);
        assert_eq!(
            looks
                .one("/there".into(), Bound::from_now(SHOW), || 7)
                .await,
            Ok(7)
        );
        drop(end);
        assert_eq!(hangs.await, Ok(true));
        assert_eq!(
            looks.one("/gone".into(), Bound::from_now(SHOW), || 7).await,
            Ok(7)
        );
        assert_eq!(
            looks.mounts.lock().unwrap().len(),
            1,
            "others are forgotten"
        );
    }

    #[tokio::test]
    async fn where_a_link_leads_to_a_mount_that_hangs_what_is_beside_the_link_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("nas")).unwrap();
        std::os::unix::fs::symlink("nas", at("images")).unwrap();
        let list = format!(
            "1 0 0:1 / / rw - x x rw\n2 1 0:2 / {} rw - y y rw\n",
            at("nas").display()
        );
        let mounts = Arc::new(Mounts::listed(list));
        let looks = Looks::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let bound = Bound::from_now(SHOW);
        let mut hangs = Box::pin(looks.one(at("nas"), bound, move || ended.recv().is_err()));
        assert!(futures_util::poll!(hangs.as_mut()).is_pending());
        let ways = || {
            [at("images/web.img"), at("gone"), at("nas")]
                .map(Way::to)
                .into()
        };
        let looked = looks
            .on_all(Arc::clone(&mounts), ways(), Bound::from_now(SHOW))
            .await;
        assert_eq!(looked[&at("images/web.img")], Err(Hang::Before));
        assert_eq!(looked[&at("nas")], Err(Hang::Before));
        assert_eq!(looked[&at("gone")], Ok(Found::Nothing));
        drop((hangs, end));
        let looked = looks.on_all(mounts, ways(), Bound::from_now(SHOW)).await;
        assert_eq!(looked[&at("images/web.img")], Ok(Found::Nothing));
        assert_eq!(looked[&at("nas")], Ok(Found::Other("a folder")));
    }

    #[tokio::test]
    async fn what_was_found_before_a_look_hangs_is_known_and_the_rest_is_not_begun() {
        let looks = Looks::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (tell, mut found) = mpsc::channel(3);
        let look = move |way: &mut Way| {
            tell.try_send(way.asked.clone()).unwrap();
            if way.asked.ends_with("b") {
                let _ = ended.recv();
            }
            Some(Found::Nothing)
        };
        let ways: Vec<_> = ["/a", "/b", "/c"].map(PathBuf::from).map(Way::to).into();
        let bound = Bound::from_now(SHOW);
        let (looked, further) = looks.each("/".into(), ways, bound, look).await;
        assert_eq!(looked[Path::new("/a")], Ok(Found::Nothing));
        for missed in ["/b", "/c"] {
            assert_eq!(looked[Path::new(missed)], Err(Hang::This(SHOW)), "{missed}");
        }
        assert!(further.is_empty());
        drop(end);
        // Once the thread has ended nothing more is begun.
        let mut begun = Vec::new();
        while let Some(path) = found.recv().await {
            begun.push(path);
        }
        assert_eq!(begun, [PathBuf::from("/a"), PathBuf::from("/b")]);
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
        let looked = looks.one("/mnt".into(), Bound::from_now(Duration::ZERO), move || {
            std::fs::metadata(file)
        });
        assert_eq!(looked.await.map(drop), Err(Hang::This(Duration::ZERO)));
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        let looked = looks.at([here.clone()], SHOW).await;
        assert_eq!(looked[&here], Ok(Found::Other("a folder")));
        // Its thread ends with the file system.
        drop(silent);
        assert_eq!(
            looks.one("/mnt".into(), Bound::from_now(SHOW), || 7).await,
            Ok(7)
        );
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
