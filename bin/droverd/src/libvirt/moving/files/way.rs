//! The way to a file by links and mounts, as the kernel goes it (path_resolution(7)), but not onto a mount before one may.
//!
//! # Invariant
//! What is followed on a mount is on that one: what a link leads to is looked at where it is, and never from where the link is.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::found::is_of_a_process;
use super::mounts::Mounts;

/// As many as the kernel follows on one way (MAXSYMLINKS).
const LINKS: usize = 40;

/// How far somebody has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The path that was asked for.
    pub asked: PathBuf,
    /// Those that are to have open what is at its end.
    pub processes: BTreeSet<u32>,
    /// What was gone of it: no link is in it.
    gone: PathBuf,
    /// What is still to be gone from there.
    rest: PathBuf,
    links: usize,
}

/// Where a way leads on one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// To its end: what is still to be gone is not there, or cannot be gone.
    Here,
    /// On to another mount.
    On,
    /// Round in a circle.
    Round,
}

impl Way {
    /// That to this path, from its beginning.
    pub fn to(asked: PathBuf) -> Self {
        Self::of((asked, BTreeSet::new()))
    }

    /// The same, for these processes.
    pub fn of((asked, processes): (PathBuf, BTreeSet<u32>)) -> Self {
        Self {
            gone: PathBuf::from("/"),
            rest: asked.clone(),
            asked,
            processes,
            links: 0,
        }
    }

    /// The path without the links that were followed.
    pub fn path(&self) -> PathBuf {
        let parts = self.gone.components().chain(self.rest.components());
        parts.collect()
    }

    /// On which mount its next step is.
    pub fn mount(&self, mounts: &Mounts) -> PathBuf {
        let next = self.next().map(|(next, _)| next);
        let next = next.as_ref().unwrap_or(&self.gone);
        mounts.point_of(next).to_owned()
    }

    /// Goes as far as it leads on this mount.
    pub fn follow(&mut self, mounts: &Mounts, mount: &Path) -> Leads {
        while let Some((next, rest)) = self.next() {
            if is_of_a_process(&next) {
                return Leads::Here;
            }
            if mounts.point_of(&next) != mount {
                return Leads::On;
            }
            match fs::read_link(&next) {
                Ok(_) if self.links == LINKS => return Leads::Round,
                Ok(target) => {
                    self.links += 1;
                    self.rest = target.join(rest);
                }
                // It is no link.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    (self.gone, self.rest) = (next, rest);
                }
                Err(_) => return Leads::Here,
            }
        }
        Leads::Here
    }

    /// The next step, and what is to be gone after it.
    fn next(&self) -> Option<(PathBuf, PathBuf)> {
        let mut parts = self.rest.components();
        let next = match parts.next()? {
            Component::RootDir | Component::Prefix(_) => PathBuf::from("/"),
            Component::CurDir => self.gone.clone(),
            Component::ParentDir => self.gone.parent().unwrap_or(&self.gone).to_owned(),
            Component::Normal(name) => self.gone.join(name),
        };
        Some((next, parts.as_path().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The root, and these.
    fn listed(points: &[&Path]) -> Mounts {
        let points = [Path::new("/")].into_iter().chain(points.iter().copied());
        let line = |point: &Path| format!("1 0 0:1 / {} rw - x x rw\n", point.display());
        Mounts::listed(points.map(line).collect())
    }

    #[test]
    fn a_link_is_followed_to_the_mount_that_it_leads_to_and_not_onto_it() {
        let folder = tempfile::tempdir().unwrap();
        let (nas, images) = (folder.path().join("nas"), folder.path().join("images"));
        fs::create_dir_all(nas.join("below")).unwrap();
        symlink("nas/./below/..", &images).unwrap();
        let (mounts, root) = (listed(&[&nas]), Path::new("/"));
        let mut way = Way::to(images.join("web.img"));
        assert_eq!(way.mount(&mounts), root);
        assert_eq!(way.follow(&mounts, root), Leads::On);
        assert_eq!(way.mount(&mounts), nas);
        assert_eq!(way.path(), nas.join("below/../web.img"));
        // What is not there is the way's end, too.
        assert_eq!(way.follow(&mounts, &nas), Leads::Here);
        assert_eq!(way.path(), nas.join("web.img"));
        assert_eq!(way.asked, images.join("web.img"));
        let mut back = Way::to(nas.join("../nas/below"));
        assert_eq!(back.follow(&mounts, root), Leads::On);
        assert_eq!(back.follow(&mounts, &nas), Leads::On, "out of it");
        assert_eq!(back.follow(&mounts, root), Leads::On, "into it");
        assert_eq!(back.follow(&mounts, &nas), Leads::Here);
        assert_eq!(back.path(), nas.join("below"));
    }

    #[test]
    fn links_that_lead_round_end_and_what_a_process_has_open_is_not_gone_into() {
        let folder = tempfile::tempdir().unwrap();
        let (round, own) = (folder.path().join("round"), folder.path().join("own"));
        symlink("round", &round).unwrap();
        symlink("/dev/fd/0", &own).unwrap();
        let (mounts, root) = (listed(&[]), Path::new("/"));
        assert_eq!(Way::to(round).follow(&mounts, root), Leads::Round);
        let mut own = Way::to(own);
        assert_eq!(own.follow(&mounts, root), Leads::Here);
        assert_eq!(own.path(), Path::new("/dev/fd/0"));
    }
}
