use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use uuid::Uuid;

use super::callbacks::{self, Told};
use super::table::{VirConnect, VirDomain};
use super::{Domain, Raw, lent};
use crate::error::{Failure, Refusal};
use crate::limits;
use crate::shared::Shared;
use crate::version::Version;

/// An open connection, which one thread has: it may be given to another, and not be shared. To drop it asks libvirtd.
pub(crate) struct Connection {
    pub(super) raw: &'static Raw,
    pub(super) pointer: NonNull<VirConnect>,
    /// The numbers of what was registered for events.
    events: Vec<c_int>,
}

// SAFETY: libvirt locks its connections, see the module's text. They are no `Sync`, which keeps each to one thread at a time.
unsafe impl Send for Connection {}

/// Why there is no connection.
pub(crate) enum NotOpened {
    Refused(Refusal),
    /// Its other end answers no keepalive, so that nobody would notice when it hangs.
    NoKeepalive,
}

impl From<Refusal> for NotOpened {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Connection {
    /// Connects, and has `shared` told of the connection's end. Blocks for as long as libvirtd does.
    pub(crate) fn open(
        raw: &'static Raw,
        uri: &CStr,
        shared: &Arc<Shared>,
    ) -> Result<Self, NotOpened> {
        // SAFETY: the text has its end; libvirt was started by `load`.
        let pointer = unsafe { (raw.table.virConnectOpen)(uri.as_ptr()) };
        let pointer = NonNull::new(pointer).ok_or_else(|| raw.refusal())?;
        let connection = Self {
            raw,
            pointer,
            events: Vec::new(),
        };
        connection.keep_alive()?;
        connection.tell_of_its_end(shared)?;
        Ok(connection)
    }

    fn keep_alive(&self) -> Result<(), NotOpened> {
        let interval = limits::KEEPALIVE_SECONDS;
        let count = limits::KEEPALIVE_UNANSWERED;
        let ask = self.raw.table.virConnectSetKeepAlive;
        // SAFETY: the connection is open.
        let answer = unsafe { ask(self.pointer.as_ptr(), interval, count) };
        self.raw.done(answer)?;
        match answer {
            0 => Ok(()),
            // "1 when remote party doesn't support keepalive messages" (libvirt-host.c).
            _ => Err(NotOpened::NoKeepalive),
        }
    }

    fn tell_of_its_end(&self, shared: &Arc<Shared>) -> Result<(), Refusal> {
        let opaque = Told::lend(self.raw, Arc::clone(shared));
        let register = self.raw.table.virConnectRegisterCloseCallback;
        let (close, forget) = (callbacks::closed, callbacks::forget);
        // SAFETY: the connection is open; the callback has the signature that is asked for, and what it is given
        // stays until `forget` is called.
        let registered = unsafe { register(self.pointer.as_ptr(), close, opaque, forget) };
        self.raw
            .done(registered)
            .inspect_err(|_| callbacks::forget(opaque))
    }

    /// Has `shared` told of what happens to domains.
    pub(crate) fn tell_of_events(&mut self, shared: &Arc<Shared>) -> Result<(), Refusal> {
        for (event, callback) in callbacks::EVENTS {
            let opaque = Told::lend(self.raw, Arc::clone(shared));
            let number = self.register(event, callback.0, opaque)?;
            self.events.push(number);
        }
        Ok(())
    }

    fn register(
        &self,
        event: c_int,
        callback: *const c_void,
        opaque: *mut c_void,
    ) -> Result<c_int, Refusal> {
        let register = self.raw.table.virConnectDomainEventRegisterAny;
        // SAFETY: as above; no domain means all of them; each event's callback has the signature that libvirt casts
        // it back to.
        let number = unsafe {
            register(
                self.pointer.as_ptr(),
                ptr::null_mut(),
                event,
                callback,
                opaque,
                callbacks::forget,
            )
        };
        if number < 0 {
            let refusal = self.raw.refusal();
            callbacks::forget(opaque);
            return Err(refusal);
        }
        Ok(number)
    }

    /// libvirtd's version, and the hypervisor's.
    pub(crate) fn versions(&self) -> Result<(Version, Version), Refusal> {
        let (mut daemon, mut hypervisor): (c_ulong, c_ulong) = (0, 0);
        let (connection, table) = (self.pointer.as_ptr(), &self.raw.table);
        // SAFETY: the connection is open, the numbers are valid for the calls.
        unsafe {
            let answer = (table.virConnectGetLibVersion)(connection, &raw mut daemon);
            self.raw.done(answer)?;
            let answer = (table.virConnectGetVersion)(connection, &raw mut hypervisor);
            self.raw.done(answer)?;
        }
        Ok((Version(daemon), Version(hypervisor)))
    }

    /// What the host can do, as XML. libvirt's protocol carries at most 4 MiB.
    pub(crate) fn capabilities(&self) -> Result<String, Refusal> {
        // SAFETY: the connection is open; the text is ours to free.
        unsafe {
            let text = (self.raw.table.virConnectGetCapabilities)(self.pointer.as_ptr());
            if text.is_null() {
                return Err(self.raw.refusal());
            }
            let copy = lent(text, limits::XML_BYTES);
            libc::free(text.cast());
            Ok(copy)
        }
    }

    /// All domains, running and defined. libvirt's protocol carries at most 16384.
    pub(crate) fn domains(&self) -> Result<Vec<Domain<'_>>, Refusal> {
        /// Neither filtered nor sorted.
        const ALL: c_uint = 0;
        let mut list: *mut *mut VirDomain = ptr::null_mut();
        let list_all = self.raw.table.virConnectListAllDomains;
        // SAFETY: the connection is open. The list has as many references as the answer says, each ours from here on,
        // and is ours to free.
        unsafe {
            let length = list_all(self.pointer.as_ptr(), &raw mut list, ALL);
            self.raw.done(length)?;
            let length = usize::try_from(length).unwrap_or_default();
            let domains = (0..length)
                .filter_map(|at| Domain::own(self, *list.add(at)))
                .collect();
            libc::free(list.cast());
            Ok(domains)
        }
    }

    /// The domain with this id.
    pub(crate) fn domain(&self, uuid: Uuid) -> Result<Domain<'_>, Refusal> {
        let look_up = self.raw.table.virDomainLookupByUUID;
        // SAFETY: the connection is open, the id has the 16 bytes that are read; the reference is ours.
        let found = unsafe {
            let found = look_up(self.pointer.as_ptr(), uuid.as_bytes().as_ptr());
            Domain::own(self, found)
        };
        found.ok_or_else(|| self.raw.refusal())
    }

    /// Tells a refusal from the end of the connection, which their words do not: libvirtd passes on those of the connections
    /// that it has itself. Asks nobody.
    pub(crate) fn failure(&self, refusal: Refusal) -> Failure {
        match self.is_alive() {
            true => Failure::Refused(refusal),
            false => Failure::Lost(refusal),
        }
    }

    /// Whether it has not ended, as far as is known. Asks nobody.
    pub(crate) fn is_alive(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (self.raw.table.virConnectIsAlive)(self.pointer.as_ptr()) == 1 }
    }

    /// The library.
    pub(crate) fn raw(&self) -> &'static Raw {
        self.raw
    }
}

impl Drop for Connection {
    /// What is registered holds references, with which the connection would stay open.
    fn drop(&mut self) {
        let (connection, table) = (self.pointer.as_ptr(), &self.raw.table);
        // SAFETY: the reference is ours and given back last; numbers and callback are those that were registered. To
        // take back what was not registered is refused and does no harm.
        unsafe {
            for number in self.events.drain(..) {
                (table.virConnectDomainEventDeregisterAny)(connection, number);
            }
            (table.virConnectUnregisterCloseCallback)(connection, callbacks::closed);
            (table.virConnectClose)(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has two answers for a type that threads may share, and then none can be chosen.
    trait OneAnswerUnlessShared<Answer> {
        fn answer() -> &'static str {
            "not shared"
        }
    }
    impl<T> OneAnswerUnlessShared<()> for T {}
    impl<T: Sync> OneAnswerUnlessShared<u8> for T {}

    #[test]
    fn threads_cannot_share_a_connection() {
        let answer = <Connection as OneAnswerUnlessShared<_>>::answer();
        assert_eq!(answer, "not shared", "or this does not compile");
    }
}
