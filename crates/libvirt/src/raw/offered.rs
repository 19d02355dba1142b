use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::{self, NonNull};

use super::table::{VirNetwork, VirSecret, VirStoragePool, VirStorageVol};
use super::{Connection, lent};
use crate::error::Refusal;
use crate::limits;

/// What a hypervisor is started with: its program, and for which architecture, machine and kind of domain. libvirt has its own choice
/// where the program or the architecture is none.
pub(crate) struct Started<'t> {
    pub(crate) emulator: Option<&'t CStr>,
    pub(crate) arch: Option<&'t CStr>,
    pub(crate) machine: &'t CStr,
    pub(crate) kind: &'t CStr,
}

/// A reference to something of libvirt's that is no domain, given back when dropped.
struct Held<T> {
    pointer: NonNull<T>,
    give_back: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Held<T> {
    fn pointer(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and the function is the one for its kind.
        unsafe {
            (self.give_back)(self.pointer.as_ptr());
        }
    }
}

fn text(text: Option<&CStr>) -> *const c_char {
    text.map_or(ptr::null(), CStr::as_ptr)
}

impl Connection {
    /// Takes over a reference that was just answered, whose kind is given back by this; none of null.
    fn held<T>(
        &self,
        answer: *mut T,
        give_back: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> Result<Held<T>, Refusal> {
        let pointer = NonNull::new(answer).ok_or_else(|| self.raw.refusal())?;
        Ok(Held { pointer, give_back })
    }

    /// Whether the network of this name is active.
    pub(crate) fn is_network_active(&self, name: &CStr) -> Result<bool, Refusal> {
        let table = &self.raw.table;
        // SAFETY: the connection is open, the text has its end, the reference is ours.
        unsafe {
            let found = (table.virNetworkLookupByName)(self.pointer.as_ptr(), name.as_ptr());
            let network: Held<VirNetwork> = self.held(found, table.virNetworkFree)?;
            let answer = (table.virNetworkIsActive)(network.pointer());
            self.raw.done(answer)?;
            Ok(answer > 0)
        }
    }

    fn pool(&self, name: &CStr) -> Result<Held<VirStoragePool>, Refusal> {
        let table = &self.raw.table;
        // SAFETY: the connection is open, the text has its end.
        let found =
            unsafe { (table.virStoragePoolLookupByName)(self.pointer.as_ptr(), name.as_ptr()) };
        self.held(found, table.virStoragePoolFree)
    }

    /// Whether the storage pool of this name is active.
    pub(crate) fn is_pool_active(&self, name: &CStr) -> Result<bool, Refusal> {
        let pool = self.pool(name)?;
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw.table.virStoragePoolIsActive)(pool.pointer()) };
        self.raw.done(answer)?;
        Ok(answer > 0)
    }

    /// Looks up a volume in a pool.
    pub(crate) fn find_volume(&self, pool: &CStr, name: &CStr) -> Result<(), Refusal> {
        let pool = self.pool(pool)?;
        let table = &self.raw.table;
        // SAFETY: the reference is ours, the text has its end.
        let found = unsafe { (table.virStorageVolLookupByName)(pool.pointer(), name.as_ptr()) };
        let volume: Held<VirStorageVol> = self.held(found, table.virStorageVolFree)?;
        drop(volume);
        Ok(())
    }

    /// Looks up the secret of this id.
    pub(crate) fn find_secret(&self, id: &CStr) -> Result<(), Refusal> {
        let table = &self.raw.table;
        // SAFETY: the connection is open, the text has its end.
        let found =
            unsafe { (table.virSecretLookupByUUIDString)(self.pointer.as_ptr(), id.as_ptr()) };
        let secret: Held<VirSecret> = self.held(found, table.virSecretFree)?;
        drop(secret);
        Ok(())
    }

    /// Looks up the secret of this use, a `virSecretUsageType`.
    pub(crate) fn find_secret_of(&self, kind: c_int, usage: &CStr) -> Result<(), Refusal> {
        let table = &self.raw.table;
        // SAFETY: the connection is open, the text has its end.
        let found =
            unsafe { (table.virSecretLookupByUsage)(self.pointer.as_ptr(), kind, usage.as_ptr()) };
        let secret: Held<VirSecret> = self.held(found, table.virSecretFree)?;
        drop(secret);
        Ok(())
    }

    /// What domains of a hypervisor can have that is started so, as XML; a refusal where it cannot. libvirt's protocol carries at most
    /// 4 MiB.
    pub(crate) fn domain_capabilities(&self, started: &Started<'_>) -> Result<String, Refusal> {
        let ask = self.raw.table.virConnectGetDomainCapabilities;
        // SAFETY: the connection is open, each text has its end or is none; the answer is ours to free.
        unsafe {
            let told = ask(
                self.pointer.as_ptr(),
                text(started.emulator),
                text(started.arch),
                started.machine.as_ptr(),
                started.kind.as_ptr(),
                0,
            );
            if told.is_null() {
                return Err(self.raw.refusal());
            }
            let copy = lent(told, limits::XML_BYTES);
            libc::free(told.cast());
            Ok(copy)
        }
    }

    /// Whether a hypervisor that is started so can give a domain this processor; `false` is a refusal with its reason where libvirt has
    /// one.
    pub(crate) fn can_give(
        &self,
        started: &Started<'_>,
        processor: &CStr,
    ) -> Result<bool, Refusal> {
        /// `VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE`.
        const SAY_WHY_NOT: c_uint = 1;
        let compare = self.raw.table.virConnectCompareHypervisorCPU;
        // SAFETY: the connection is open, each text has its end or is none.
        let answer = unsafe {
            compare(
                self.pointer.as_ptr(),
                text(started.emulator),
                text(started.arch),
                started.machine.as_ptr(),
                started.kind.as_ptr(),
                processor.as_ptr(),
                SAY_WHY_NOT,
            )
        };
        self.raw.done(answer)?;
        // `VIR_CPU_COMPARE_INCOMPATIBLE` is 0; identical and superset are more.
        Ok(answer > 0)
    }
}
