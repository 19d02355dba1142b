use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::NonNull;

use uuid::Uuid;

use super::table::{VirDomain, VirDomainInfo};
use super::{Connection, Params, Raw, lent};
use crate::error::Refusal;
use crate::limits;

/// A domain of an open connection.
pub(crate) struct Domain<'c> {
    connection: &'c Connection,
    pointer: NonNull<VirDomain>,
}

/// What `virDomainGetInfo` tells.
pub(crate) struct Info {
    /// A `virDomainState`.
    pub(crate) state: u8,
    /// The memory that it may have, in KiB.
    pub(crate) memory_kib: u64,
    pub(crate) vcpus: u16,
}

impl<'c> Domain<'c> {
    /// Takes over a reference; none of null.
    ///
    /// # Safety
    /// Null, or a reference that is ours.
    pub(super) unsafe fn own(connection: &'c Connection, pointer: *mut VirDomain) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self {
            connection,
            pointer,
        })
    }

    fn raw(&self) -> &'static Raw {
        self.connection.raw
    }

    /// Its name and id, which libvirt keeps beside the reference: nothing is asked.
    pub(crate) fn identity(&self) -> Result<(String, Uuid), Refusal> {
        // SAFETY: the reference is ours.
        unsafe { identity(self.raw(), self.pointer.as_ptr()) }
    }

    pub(crate) fn info(&self) -> Result<Info, Refusal> {
        let mut info = VirDomainInfo::default();
        // SAFETY: the reference is ours; the struct has the header's layout and is valid for the call.
        let answer =
            unsafe { (self.raw().table.virDomainGetInfo)(self.pointer.as_ptr(), &raw mut info) };
        self.raw().done(answer)?;
        Ok(Info {
            state: info.state,
            memory_kib: info.max_mem,
            vcpus: info.nr_virt_cpu,
        })
    }

    pub(crate) fn is_persistent(&self) -> Result<bool, Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainIsPersistent)(self.pointer.as_ptr()) };
        self.raw().done(answer)?;
        Ok(answer > 0)
    }

    pub(crate) fn has_autostart(&self) -> Result<bool, Refusal> {
        let mut value: c_int = 0;
        // SAFETY: the reference is ours, the number is valid for the call.
        let answer = unsafe {
            (self.raw().table.virDomainGetAutostart)(self.pointer.as_ptr(), &raw mut value)
        };
        self.raw().done(answer)?;
        Ok(value != 0)
    }

    /// Its XML, with `virDomainXMLFlags`. libvirt's protocol carries at most 4 MiB.
    pub(crate) fn xml(&self, flags: c_uint) -> Result<String, Refusal> {
        // SAFETY: the reference is ours; the text is ours to free.
        unsafe {
            let text = (self.raw().table.virDomainGetXMLDesc)(self.pointer.as_ptr(), flags);
            if text.is_null() {
                return Err(self.raw().refusal());
            }
            let copy = lent(text, limits::XML_BYTES);
            libc::free(text.cast::<c_char>().cast());
            Ok(copy)
        }
    }

    pub(crate) fn resume(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainResume)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    pub(crate) fn abort_job(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainAbortJob)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    /// Migrates it, with `virDomainMigrateFlags`, and returns when that is over.
    pub(crate) fn migrate(&self, to: &CStr, params: &Params, flags: c_uint) -> Result<(), Refusal> {
        let migrate = self.raw().table.virDomainMigrateToURI3;
        let length = c_uint::try_from(params.length).unwrap_or_default();
        // SAFETY: the reference is ours, the text has its end, the list is libvirt's and of this length.
        let answer = unsafe {
            migrate(
                self.pointer.as_ptr(),
                to.as_ptr(),
                params.list,
                length,
                flags,
            )
        };
        self.raw().done(answer)
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and given back here only.
        unsafe { (self.raw().table.virDomainFree)(self.pointer.as_ptr()) };
    }
}

/// A domain's name and id.
///
/// # Safety
/// The domain is valid until this returns.
pub(super) unsafe fn identity(
    raw: &Raw,
    domain: *mut VirDomain,
) -> Result<(String, Uuid), Refusal> {
    let mut id = [0; 16];
    // SAFETY: as promised by the caller; the id has the 16 bytes that are written, the name is lent with the domain.
    unsafe {
        let answer = (raw.table.virDomainGetUUID)(domain, id.as_mut_ptr());
        raw.done(answer)?;
        let name = (raw.table.virDomainGetName)(domain);
        if name.is_null() {
            return Err(raw.refusal());
        }
        Ok((lent(name, limits::NAME_BYTES), Uuid::from_bytes(id)))
    }
}
