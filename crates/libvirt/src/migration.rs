use std::ffi::{CStr, CString, c_int, c_uint};
use std::num::NonZeroU8;
use std::path::PathBuf;

use uuid::Uuid;

use crate::connection::uri_of_socket;
use crate::error::{CallError, Refusal};
use crate::raw::{self, Params};

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
    /// Its definition goes with it: made at the destination, and removed at the source once that has let go of it. To be set for
    /// persistent domains, and for no others.
    pub persistent: bool,
}

/// Values of `virDomainMigrateFlags`.
const LIVE: c_uint = 1;
const PEER2PEER: c_uint = 1 << 1;
const PERSIST_DEST: c_uint = 1 << 3;
const UNDEFINE_SOURCE: c_uint = 1 << 4;
/// Whether the guest runs at the destination is not libvirt's to decide: docs/decisions/0036.
const PAUSED: c_uint = 1 << 5;
const PARALLEL: c_uint = 1 << 17;

/// A migration whose texts are C's.
pub(crate) struct Prepared {
    control: CString,
    memory: CString,
    channels: Option<NonZeroU8>,
    flags: c_uint,
}

impl Migration {
    fn flags(&self) -> c_uint {
        let definition = match self.persistent {
            true => PERSIST_DEST | UNDEFINE_SOURCE,
            false => 0,
        };
        let parallel = self.channels.map_or(0, |_| PARALLEL);
        LIVE | PEER2PEER | PAUSED | definition | parallel
    }

    pub(crate) fn prepare(&self, what: &'static str) -> Result<Prepared, CallError> {
        let text = |text: String| {
            CString::new(text).map_err(|error| CallError::Text {
                what,
                text: String::from_utf8_lossy(&error.into_vec()).into_owned(),
            })
        };
        Ok(Prepared {
            control: text(uri_of_socket(&self.control))?,
            memory: text(format!("unix://{}", self.memory.display()))?,
            channels: self.channels,
            flags: self.flags(),
        })
    }
}

impl Prepared {
    /// Returns when it is over.
    pub(crate) fn carry_out(
        &self,
        connection: &raw::Connection,
        domain: Uuid,
    ) -> Result<(), Refusal> {
        const URI: &CStr = c"migrate_uri";
        const CONNECTIONS: &CStr = c"parallel.connections";
        let mut params = Params::new(connection.raw());
        params.text(URI, &self.memory)?;
        if let Some(channels) = self.channels {
            params.number(CONNECTIONS, c_int::from(channels.get()))?;
        }
        let domain = connection.domain(domain)?;
        domain.migrate(&self.control, &params, self.flags)
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
        }
    }

    #[test]
    fn a_path_that_c_cannot_say_is_refused() {
        let mut wrong = migration(true, 2);
        wrong.memory = "/run/a\0b".into();
        let refused = wrong.prepare("migrate a domain").map(drop).unwrap_err();
        assert!(refused.to_string().contains("has a zero byte"), "{refused}");
    }
}
