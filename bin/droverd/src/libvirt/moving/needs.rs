//! What a domain needs of the host that it goes to, as far as it can be looked for before libvirt is asked.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::{DomainMachine, DomainNeed};
use drover_libvirt::{Machine, Secret};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::limits;
use crate::libvirt::preflight::Need;
use crate::limits::SHOW;

/// Which folders hosts share, as somebody may tell libvirt (`shared_filesystems`, which newer versions know), whatever file systems they
/// are on.
const QEMU_CONF: &str = "/etc/libvirt/qemu.conf";

/// What another host can look for, and what is to be known of the rest of it. All else libvirt finds out itself.
pub fn told(needs: &[Need]) -> (Vec<DomainNeed>, Option<String>) {
    let needs = needs.iter().filter_map(|need| {
        Some(match need.clone() {
            Need::File(path) | Need::Storage(path) => DomainNeed::Path { path },
            Need::Bridge(name) | Need::Interface(name) => DomainNeed::Interface { name },
            Need::Network(name) => DomainNeed::Network { name },
            Need::Volume { pool, volume } => DomainNeed::Volume { pool, volume },
            Need::Secret(Secret::Id(id)) => DomainNeed::Secret { id },
            Need::Secret(Secret::Of { kind, usage }) => DomainNeed::SecretFor {
                usage_type: kind,
                usage,
            },
            Need::Machine(of) => DomainNeed::Machine {
                machine: machine(of),
            },
            Need::Processor {
                machine: of,
                processor,
            } => DomainNeed::Processor {
                machine: machine(of),
                model: processor.model,
                xml: processor.xml,
            },
            Need::Protocol(_) => return None,
        })
    });
    let mut all: Vec<_> = needs.collect();
    let (count, most) = (all.len(), limits::DOMAIN_NEEDS);
    all.truncate(most);
    let note = (count > most).then(|| {
        format!("it needs {count} things of another host, of which {most} are looked for before it moves")
    });
    (all, note)
}

fn machine(of: Machine) -> DomainMachine {
    DomainMachine {
        machine: of.name,
        domain_type: of.kind,
        emulator: of.emulator,
        arch: of.arch,
    }
}

/// Looks that are taken for what domains need on this host. One at a file system of a machine that is gone keeps its thread for ever,
/// and the agent has threads for other things.
#[derive(Debug, Clone)]
pub struct Looks(Arc<Semaphore>);

impl Default for Looks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::LOOKS)))
    }
}

impl Looks {
    /// Which of these paths are there.
    ///
    /// # Errors
    /// That does not end within its time, or looks that were taken before hang.
    pub async fn there(&self, paths: Vec<PathBuf>) -> Result<Vec<bool>, Hang> {
        let look = move || paths.iter().map(|path| path.exists()).collect();
        self.one(limits::LOOK_FOR_FILES, look).await
    }

    /// Which of these are on a file system that no other host has, and its name. None where libvirt was told what hosts share.
    ///
    /// # Errors
    /// As [`Looks::there`].
    pub async fn local(&self, paths: Vec<PathBuf>) -> Result<Vec<Option<&'static str>>, Hang> {
        let look = move || {
            let is_told = tells_what_is_shared(Path::new(QEMU_CONF));
            let on = |path: &PathBuf| local(path).filter(|_| !is_told);
            paths.iter().map(on).collect()
        };
        self.one(SHOW, look).await
    }

    /// One look, in a thread of its own, that is waited for so long with its turn.
    async fn one<T: Send + 'static>(
        &self,
        within: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hang> {
        let until = Instant::now() + within;
        let turn = timeout_at(until, Arc::clone(&self.0).acquire_owned()).await;
        // It is never closed.
        let turn = turn.ok().and_then(Result::ok).ok_or(Hang::Before)?;
        let looked = tokio::task::spawn_blocking(move || {
            let found = look();
            drop(turn);
            found
        });
        let looked = timeout_at(until, looked).await;
        looked.ok().and_then(Result::ok).ok_or(Hang::This(within))
    }
}

/// What does not end within its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// This look, for which so long was waited.
    This(Duration),
    /// As many looks before as there may be.
    Before,
}

/// In words that follow what was looked for.
impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::This(within) => {
                write!(f, "files cannot be looked at within {} s", within.as_secs())?;
            }
            Self::Before => write!(f, "{} looks at files before have not ended", limits::LOOKS)?,
        }
        f.write_str(": `df` there hangs, too, where a file system of another machine does")
    }
}

/// Those that one host has for itself, by their magic numbers (statfs(2)). Others may be shared, or stand upon one that is.
fn local(path: &Path) -> Option<&'static str> {
    match rustix::fs::statfs(path).ok()?.f_type {
        0xef53 => Some("ext4"),
        0x5846_5342 => Some("xfs"),
        0x9123_683e => Some("btrfs"),
        0x2fc1_2fc1 => Some("zfs"),
        0x0102_1994 => Some("tmpfs"),
        0x794c_7630 => Some("overlay"),
        _ => None,
    }
}

/// Whether somebody told libvirt by this file which folders hosts share. What it makes of that is its own to say.
fn tells_what_is_shared(conf: &Path) -> bool {
    let mut text = String::new();
    let file = File::open(conf).map(|file| file.take(limits::CONF_BYTES));
    let read = file.and_then(|mut file| file.read_to_string(&mut text));
    let tells = |line: &str| line.trim_start().starts_with("shared_filesystems");
    read.is_ok() && text.lines().any(tells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_another_host_can_look_for_is_told_to_it_and_the_rest_is_left_to_libvirt() {
        let machine = Machine {
            name: "pc-q35-10.0".to_owned(),
            emulator: None,
            arch: None,
            kind: "kvm".to_owned(),
        };
        let needs = [
            Need::Machine(machine),
            Need::File("/usr/bin/qemu".into()),
            Need::Bridge("br0".to_owned()),
            Need::Interface("eth0".to_owned()),
            Need::Storage("/shared/web.qcow2".into()),
            Need::Network("default".to_owned()),
            Need::Protocol("rbd".to_owned()),
        ];
        let (needs, note) = told(&needs);
        assert_eq!(note, None);
        let words: Vec<_> = needs.iter().map(ToString::to_string).collect();
        let expected = [
            "machine type pc-q35-10.0 of its hypervisor (kvm)",
            "/usr/bin/qemu",
            "interface br0",
            "interface eth0",
            "/shared/web.qcow2",
            "libvirt's network \"default\"",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn what_is_beyond_the_bound_is_told_and_not_forgotten() {
        let file = |number: usize| Need::File(format!("/{number}").into());
        let needs: Vec<_> = (0..=limits::DOMAIN_NEEDS).map(file).collect();
        let (told, note) = told(&needs);
        assert_eq!(told.len(), limits::DOMAIN_NEEDS);
        let note = note.unwrap();
        assert!(
            note.starts_with("it needs 257 things of another host, of which 256"),
            "{note}"
        );
    }

    #[test]
    fn what_hosts_share_is_libvirts_to_say_where_somebody_told_it() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("qemu.conf");
        assert!(!tells_what_is_shared(&conf), "there is none");
        let written = |text: &str| {
            std::fs::write(&conf, text).unwrap();
            tells_what_is_shared(&conf)
        };
        assert!(!written("#shared_filesystems = [\n#  \"/images\"\n#]\n"));
        assert!(written(
            "user = \"root\"\n shared_filesystems = [ \"/images\" ]\n"
        ));
    }

    #[tokio::test]
    async fn paths_are_looked_for_and_those_of_this_host_alone_are_told_by_their_file_system() {
        let looks = Looks::default();
        let folder = tempfile::tempdir().unwrap();
        let paths = vec![folder.path().to_owned(), folder.path().join("gone")];
        assert_eq!(looks.there(paths.clone()).await, Ok(vec![true, false]));
        let local = looks.local(paths).await.unwrap();
        assert_eq!(local[1], None, "of what is not there nothing is known");
        let proc = looks.local(vec!["/proc".into()]).await;
        assert_eq!(proc, Ok(vec![None]));
    }

    #[tokio::test]
    async fn looks_that_hang_are_bounded_and_the_next_waits_for_one_that_ends() {
        let looks = Looks::default();
        let mut hanging = Vec::new();
        for _ in 0..limits::LOOKS {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            hanging.push(end);
            let mut looked = Box::pin(looks.one(SHOW, move || ended.recv().is_err()));
            assert!(futures_util::poll!(looked.as_mut()).is_pending());
            // Whoever wanted it waits no longer from here on, and its thread goes on.
        }
        assert_eq!(looks.0.available_permits(), 0);
        let mut next = std::pin::pin!(looks.one(SHOW, || 7));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        drop(hanging);
        assert_eq!(next.await, Ok(7));
    }

    #[test]
    fn a_look_that_hangs_says_so_and_what_to_look_at() {
        let before = Hang::Before.to_string();
        assert!(before.starts_with("4 looks at files before have not ended: `df`"));
        assert!(Hang::This(SHOW).to_string().contains("within 2 s"));
    }
}
