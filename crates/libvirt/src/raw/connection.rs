use std::ffi::{CStr, c_int, c_uint, c_ulong, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use uuid::Uuid;

use super::callbacks::{self, Told};
use super::table::{VirConnect, VirDomain};
use super::{Domain, Raw};
use crate::error::{Failure, Refusal};
use crate::limits;
use crate::shared::Shared;
use crate::version::Version;

/// An open connection. To drop the last one asks libvirtd: only threads for calls may.
pub(crate) struct Connection {
    pub(super) raw: &'static Raw,
    pub(super) pointer: NonNull<VirConnect>,
    /// The numbers of what was registered for events.
    events: Vec<c_int>,
}

// SAFETY: libvirt locks its connections, see the module's text.
unsafe impl Send for Connection {}
// SAFETY: the same.
unsafe impl Sync for Connection {}

impl Connection {
    /// Connects, has the connection watched, and has `shared` told of events. Blocks for as long as libvirtd does.
    pub(crate) fn open(
        raw: &'static Raw,
        uri: &CStr,
        shared: &Arc<Shared>,
    ) -> Result<Self, Refusal> {
        // SAFETY: the text has its end; libvirt was started by `load`.
        let pointer = unsafe { (raw.table.virConnectOpen)(uri.as_ptr()) };
        let pointer = NonNull::new(pointer).ok_or_else(|| raw.refusal())?;
        let mut connection = Self {
            raw,
            pointer,
            events: Vec::new(),
        };
        connection.watch(shared)?;
        Ok(connection)
    }

    fn watch(&mut self, shared: &Arc<Shared>) -> Result<(), Refusal> {
        let told = || Told::lend(self.raw, Arc::clone(shared));
        let (connection, table) = (self.pointer.as_ptr(), &self.raw.table);
        let opaque = told();
        // SAFETY: the connection is open; the callback has the signature that is asked for, and what it is given
        // stays until `forget` is called.
        unsafe {
            let interval = limits::KEEPALIVE_SECONDS;
            let count = limits::KEEPALIVE_UNANSWERED;
            let asked = (table.virConnectSetKeepAlive)(connection, interval, count);
            let (close, forget) = (callbacks::closed, callbacks::forget);
            let registered = if asked < 0 {
                asked
            } else {
                (table.virConnectRegisterCloseCallback)(connection, close, opaque, forget)
            };
            if registered < 0 {
                let refusal = self.raw.refusal();
                callbacks::forget(opaque);
                return Err(refusal);
            }
        }
        for (event, callback) in callbacks::EVENTS {
            let number = self.register(event, callback.0, told())?;
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
        // SAFETY: the connection is open.
        match unsafe { (self.raw.table.virConnectIsAlive)(self.pointer.as_ptr()) } {
            1 => Failure::Refused(refusal),
            _ => Failure::Lost(refusal),
        }
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
