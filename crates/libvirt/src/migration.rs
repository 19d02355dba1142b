use std::ffi::{CStr, CString, c_int, c_uint};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::domain::{self, Domain};
use crate::error::{CallError, Failure, NotReady, Refusal};
use crate::library::{Library, Place};
use crate::limits;
use crate::opening;
use crate::raw::{self, Params};
use crate::shared::Shared;
use crate::uri;
use crate::version::Version;

const WHAT: &str = "migrate a domain";

/// How a domain is migrated: peer to peer, by the source's libvirtd, over UNIX sockets that somebody carries to the other host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// On this host, a socket that leads to the destination's libvirtd. The source's connects to it once.
    pub control: PathBuf,
    /// The socket for memory, by the same path on both hosts: the destination's QEMU makes it and listens, and the source's
    /// connects to it, once for the main channel and once for each multifd channel.
    pub memory: PathBuf,
    /// Multifd channels; none sends all on the main channel.
    pub channels: Option<NonZeroU8>,
    /// Disks that are copied with it; all others both hosts have.
    pub disks: Option<CopiedDisks>,
    /// The domain is slowed down where it writes faster than its memory is carried.
    pub auto_converge: bool,
    /// Its definition goes with it: made at the destination, and removed at the source once that has let go of it. To be set for
    /// persistent domains, and for no others.
    pub persistent: bool,
}

/// Disks whose contents are copied while the domain runs, before its memory is, and kept the same until it stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedDisks {
    /// The socket for them, by the same path on both hosts: the destination's QEMU makes it and speaks NBD there, and the source's connects
    /// to it once for each disk, before it connects for memory.
    pub socket: PathBuf,
    /// Their names for the guest, such as `vda`. At the destination a file of the same size is there already.
    pub targets: Vec<String>,
}

/// Values of `virDomainMigrateFlags`.
const LIVE: c_uint = 1;
const PEER2PEER: c_uint = 1 << 1;
const PERSIST_DEST: c_uint = 1 << 3;
const UNDEFINE_SOURCE: c_uint = 1 << 4;
/// Whether the guest runs at the destination is not libvirt's to decide: docs/decisions/0036.
const PAUSED: c_uint = 1 << 5;
const NON_SHARED_DISK: c_uint = 1 << 6;
const AUTO_CONVERGE: c_uint = 1 << 13;
const PARALLEL: c_uint = 1 << 17;

/// A migration that only waits for the word to begin; libvirt has not been asked for it. Dropped, it never is.
///
/// It has a connection of its own, whose one thread waits in the call: see the crate's invariant.
#[derive(Debug)]
pub struct Ready {
    domain: Domain,
    shared: Arc<Shared>,
    go: mpsc::SyncSender<()>,
    ended: oneshot::Receiver<Result<(), Failure>>,
}

/// A migration that was asked for. libvirtd carries it out: it goes on when this is dropped or the connection is lost, until
/// [`abort_job`](crate::abort_job).
#[derive(Debug)]
pub struct Migrating {
    shared: Arc<Shared>,
    ended: oneshot::Receiver<Result<(), Failure>>,
}

impl Ready {
    /// Connects for a migration of this domain, and looks at it.
    ///
    /// # Errors
    /// There is no connection, no such domain or no answer within [`limits::CALL`], or there are [`limits::MIGRATIONS`] already.
    pub async fn new(
        library: Library,
        uri: &str,
        domain: Uuid,
        migration: &Migration,
    ) -> Result<Self, NotReady> {
        let prepared = migration.prepare()?;
        let place = Place::to_migrate().ok_or(CallError::TooMany {
            what: WHAT,
            waiting: limits::MIGRATIONS,
        })?;
        let shared = Arc::new(Shared::new());
        let (teller, looked) = oneshot::channel();
        let (go, word) = mpsc::sync_channel(1);
        let (sender, ended) = oneshot::channel();
        // It has its place until it has ended, however long it hangs: in connecting, for the domain's lock, or in migrating.
        let serve = move |connection: raw::Connection| {
            let domain_now = connection.domain(domain).and_then(|at| domain::read(&at));
            let domain_now = domain_now.map_err(|refusal| connection.failure(refusal));
            // Whoever waits for it no longer gives no word either.
            let _ = teller.send(domain_now);
            if word.recv().is_ok() {
                let migrated = prepared.carry_out(&connection, domain);
                let migrated = migrated.map_err(|refusal| connection.failure(refusal));
                // Whoever hears how it ended may begin the next at once, and does not wait until the connection is closed.
                drop(place);
                let _ = sender.send(migrated);
                drop(connection);
            }
        };
        let first = |_: &mut raw::Connection| Ok(());
        opening::open(library, uri, "libvirt-migrate", &shared, first, serve).await?;
        let what = "look at a domain that is to migrate";
        Ok(Self {
            domain: shared.answer(what, looked).await?,
            shared,
            go,
            ended,
        })
    }

    /// The domain as it is before. One that is paused then is paused at the destination by its owner's word, and not only until
    /// the hand-off: whoever resumes it there must know.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Asks libvirt for it. What must be known of a migration if we die is written down before.
    #[must_use]
    pub fn begin(self) -> Migrating {
        // Its thread waits for nothing else; where that has ended the answer says so.
        let _ = self.go.try_send(());
        let Self { shared, ended, .. } = self;
        Migrating { shared, ended }
    }
}

impl Migrating {
    /// Waits for its end, however long that takes.
    ///
    /// # Errors
    /// libvirt's reason, or the connection is lost: then nobody knows yet how it ended.
    pub async fn ended(self) -> Result<(), CallError> {
        self.shared.understood(WHAT, self.ended.await.ok())
    }
}

/// A migration whose texts are C's.
struct Prepared {
    control: CString,
    memory: CString,
    channels: Option<NonZeroU8>,
    disks: Option<PreparedDisks>,
    flags: c_uint,
}

struct PreparedDisks {
    socket: CString,
    targets: Vec<CString>,
}

impl Migration {
    fn flags(&self) -> c_uint {
        let definition = match self.persistent {
            true => PERSIST_DEST | UNDEFINE_SOURCE,
            false => 0,
        };
        let parallel = self.channels.map_or(0, |_| PARALLEL);
        let slowed = match self.auto_converge {
            true => AUTO_CONVERGE,
            false => 0,
        };
        let copied = self.disks.as_ref().map_or(0, |_| NON_SHARED_DISK);
        LIVE | PEER2PEER | PAUSED | definition | parallel | slowed | copied
    }

    fn prepare(&self) -> Result<Prepared, CallError> {
        let text = |text: String| {
            CString::new(text).map_err(|error| CallError::Text {
                what: WHAT,
                text: String::from_utf8_lossy(&error.into_vec()).into_owned(),
            })
        };
        let disks = self.disks.as_ref().map(|disks| {
            let targets = disks.targets.iter().cloned().map(text);
            Ok::<_, CallError>(PreparedDisks {
                socket: text(uri::of_qemu(&disks.socket))?,
                targets: targets.collect::<Result<_, _>>()?,
            })
        });
        Ok(Prepared {
            control: text(uri::of_libvirtd(&self.control))?,
            memory: text(uri::of_qemu(&self.memory))?,
            channels: self.channels,
            disks: disks.transpose()?,
            flags: self.flags(),
        })
    }
}

impl Prepared {
    /// Returns when it is over.
    fn carry_out(&self, connection: &raw::Connection, domain: Uuid) -> Result<(), Refusal> {
        const URI: &CStr = c"migrate_uri";
        const CONNECTIONS: &CStr = c"parallel.connections";
        let mut params = Params::new(connection.raw());
        params.text(URI, &self.memory)?;
        if let Some(channels) = self.channels {
            params.number(CONNECTIONS, c_int::from(channels.get()))?;
        }
        if let Some(disks) = &self.disks {
            disks.add_to(&mut params, connection)?;
        }
        let domain = connection.domain(domain)?;
        domain.migrate(&self.control, &params, self.flags)
    }
}

impl PreparedDisks {
    fn add_to(&self, params: &mut Params, connection: &raw::Connection) -> Result<(), Refusal> {
        const URI: &CStr = c"disks_uri";
        const DISK: &CStr = c"migrate_disks";
        const FIND_ZEROES: &CStr = c"migrate_disks_detect_zeroes";
        params.text(URI, &self.socket)?;
        // A libvirtd refuses names that it does not know.
        let (daemon, _) = connection.versions()?;
        let finds_zeroes = daemon >= Version::FINDS_ZEROES;
        for target in &self.targets {
            params.text(DISK, target)?;
            if finds_zeroes {
                params.text(FIND_ZEROES, target)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migration(persistent: bool, channels: u8) -> Migration {
        Migration {
            control: "/run/control".into(),
            memory: "/run/memory".into(),
            channels: NonZeroU8::new(channels),
            disks: None,
            auto_converge: channels > 1,
            persistent,
        }
    }

    #[test]
    fn libvirt_never_has_the_guest_run_at_the_destination() {
        for (persistent, channels) in [(true, 0), (true, 3), (false, 0), (false, 3)] {
            let flags = migration(persistent, channels).flags();
            assert_eq!(
                flags & (LIVE | PEER2PEER | PAUSED),
                LIVE | PEER2PEER | PAUSED
            );
            assert_eq!(flags & PERSIST_DEST != 0, persistent);
            assert_eq!(flags & UNDEFINE_SOURCE != 0, persistent);
            assert_eq!(flags & PARALLEL != 0, channels > 0);
            assert_eq!(flags & AUTO_CONVERGE != 0, channels > 1);
        }
    }

    #[test]
    fn only_disks_that_are_named_are_copied() {
        let mut moves = migration(true, 3);
        assert_eq!(moves.flags() & NON_SHARED_DISK, 0);
        let targets = vec!["vda".to_owned(), "sdb".to_owned()];
        let socket = "/run/disks".into();
        moves.disks = Some(CopiedDisks { socket, targets });
        assert_ne!(moves.flags() & NON_SHARED_DISK, 0);
        let disks = moves.prepare().ok().unwrap().disks.unwrap();
        assert_eq!(disks.socket.as_c_str(), c"unix:///run/disks");
        assert_eq!(disks.targets, [c"vda".to_owned(), c"sdb".to_owned()]);
    }

    #[test]
    fn a_path_that_c_cannot_say_is_refused() {
        let mut wrong = migration(true, 2);
        wrong.memory = "/run/a\0b".into();
        let refused = wrong.prepare().map(drop).unwrap_err();
        assert!(refused.to_string().contains("has a zero byte"), "{refused}");
    }
}
