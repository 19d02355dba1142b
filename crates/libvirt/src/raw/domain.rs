use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr::{self, NonNull};
use std::time::Duration;

use uuid::Uuid;

use super::params::Lent;
use super::table::{VirDomain, VirDomainBlockJobInfo, VirDomainInfo, VirTypedParameter};
use super::{Connection, Params, Raw, lent};
use crate::error::Refusal;
use crate::events::Job;
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

impl Info {
    /// It has a hypervisor: it is not shut off (`VIR_DOMAIN_SHUTOFF`).
    pub(crate) fn is_in_memory(&self) -> bool {
        const SHUT_OFF: u8 = 5;
        self.state != SHUT_OFF
    }
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

    /// A `virDomainState`, and why it is in it, by the numbers that belong to that state.
    pub(crate) fn state(&self) -> Result<(c_int, c_int), Refusal> {
        let (mut state, mut reason): (c_int, c_int) = (0, 0);
        let ask = self.raw().table.virDomainGetState;
        // SAFETY: the reference is ours, the numbers are valid for the call.
        let answer = unsafe { ask(self.pointer.as_ptr(), &raw mut state, &raw mut reason, 0) };
        self.raw().done(answer)?;
        Ok((state, reason))
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

    pub(crate) fn set_autostart(&self, wanted: bool) -> Result<(), Refusal> {
        let set = self.raw().table.virDomainSetAutostart;
        // SAFETY: the reference is ours.
        let answer = unsafe { set(self.pointer.as_ptr(), c_int::from(wanted)) };
        self.raw().done(answer)
    }

    /// Its XML, with `virDomainXMLFlags`. libvirt's protocol carries at most 4 MiB.
    pub(crate) fn xml(&self, flags: c_uint) -> Result<String, Refusal> {
        // SAFETY: the reference is ours; the text is ours to free.
        unsafe {
            let text = (self.raw().table.virDomainGetXMLDesc)(self.pointer.as_ptr(), flags);
            self.given(text)
        }
    }

    /// The XML of the backup that is made of it.
    pub(crate) fn backup(&self) -> Result<String, Refusal> {
        // SAFETY: as for `xml`.
        unsafe {
            let text = (self.raw().table.virDomainBackupGetXMLDesc)(self.pointer.as_ptr(), 0);
            self.given(text)
        }
    }

    /// A copy of an XML that was just answered; a refusal for null.
    ///
    /// # Safety
    /// Null, or a text with its end that is ours to free, and used by nobody afterwards.
    unsafe fn given(&self, text: *mut c_char) -> Result<String, Refusal> {
        if text.is_null() {
            return Err(self.raw().refusal());
        }
        // SAFETY: as promised by the caller.
        unsafe {
            let copy = lent(text, limits::XML_BYTES);
            libc::free(text.cast());
            Ok(copy)
        }
    }

    /// How many snapshots libvirt has of it.
    pub(crate) fn snapshots(&self) -> Result<u32, Refusal> {
        // SAFETY: the reference is ours.
        let count = unsafe { (self.raw().table.virDomainSnapshotNum)(self.pointer.as_ptr(), 0) };
        self.count(count)
    }

    /// How many checkpoints libvirt has of it.
    pub(crate) fn checkpoints(&self) -> Result<u32, Refusal> {
        let list = self.raw().table.virDomainListAllCheckpoints;
        // SAFETY: the reference is ours; libvirt takes null where only their number is asked for.
        let count = unsafe { list(self.pointer.as_ptr(), ptr::null_mut(), 0) };
        self.count(count)
    }

    fn count(&self, answer: c_int) -> Result<u32, Refusal> {
        self.raw().done(answer)?;
        Ok(u32::try_from(answer).unwrap_or_default())
    }

    pub(crate) fn suspend(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainSuspend)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    pub(crate) fn resume(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainResume)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    /// Ends its hypervisor at once.
    pub(crate) fn destroy(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainDestroy)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    /// Takes its definition away, with `virDomainUndefineFlagsValues`.
    pub(crate) fn undefine(&self, flags: c_uint) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer =
            unsafe { (self.raw().table.virDomainUndefineFlags)(self.pointer.as_ptr(), flags) };
        self.raw().done(answer)
    }

    /// The longest that it may stand still at the end of its migration.
    pub(crate) fn max_downtime(&self) -> Result<Duration, Refusal> {
        let mut millis: c_ulonglong = 0;
        let ask = self.raw().table.virDomainMigrateGetMaxDowntime;
        // SAFETY: the reference is ours, the number is valid for the call.
        let answer = unsafe { ask(self.pointer.as_ptr(), &raw mut millis, 0) };
        self.raw().done(answer)?;
        Ok(Duration::from_millis(millis))
    }

    /// The same from now on, also of one that is under way.
    pub(crate) fn set_max_downtime(&self, downtime: Duration) -> Result<(), Refusal> {
        let millis = u64::try_from(downtime.as_millis()).unwrap_or(u64::MAX);
        let set = self.raw().table.virDomainMigrateSetMaxDowntime;
        // SAFETY: the reference is ours.
        let answer = unsafe { set(self.pointer.as_ptr(), millis, 0) };
        self.raw().done(answer)
    }

    /// The job that is under way, if one is.
    pub(crate) fn job(&self) -> Result<Option<Job>, Refusal> {
        /// `VIR_DOMAIN_JOB_BOUNDED` and `VIR_DOMAIN_JOB_UNBOUNDED`.
        const UNDER_WAY: [c_int; 2] = [1, 2];
        let (mut kind, mut length): (c_int, c_int) = (0, 0);
        let mut list: *mut VirTypedParameter = ptr::null_mut();
        let (raw, ask) = (self.raw(), self.raw().table.virDomainGetJobStats);
        // SAFETY: the reference is ours, the numbers and the list's place are valid for the call; the list is ours to give
        // back, and read before.
        unsafe {
            let answer = ask(
                self.pointer.as_ptr(),
                &raw mut kind,
                &raw mut list,
                &raw mut length,
                0,
            );
            raw.done(answer)?;
            let lent = Lent { raw, list, length };
            let job = Job::read(|name| lent.number(name));
            (raw.table.virTypedParamsFree)(list, length);
            Ok(UNDER_WAY.contains(&kind).then_some(job))
        }
    }

    pub(crate) fn abort_job(&self) -> Result<(), Refusal> {
        // SAFETY: the reference is ours.
        let answer = unsafe { (self.raw().table.virDomainAbortJob)(self.pointer.as_ptr()) };
        self.raw().done(answer)
    }

    /// Begins to copy a disk to what this XML says, with `virDomainBlockCopyFlags`.
    pub(crate) fn copy_disk(
        &self,
        target: &CStr,
        to: &CStr,
        params: &Params,
        flags: c_uint,
    ) -> Result<(), Refusal> {
        let copy = self.raw().table.virDomainBlockCopy;
        // SAFETY: the reference is ours, the texts have their ends, the list is libvirt's and of this length.
        let answer = unsafe {
            copy(
                self.pointer.as_ptr(),
                target.as_ptr(),
                to.as_ptr(),
                params.list,
                params.length,
                flags,
            )
        };
        self.raw().done(answer)
    }

    /// Ends the job of a disk, with `virDomainBlockJobAbortFlags`.
    pub(crate) fn end_disk_job(&self, target: &CStr, flags: c_uint) -> Result<(), Refusal> {
        let end = self.raw().table.virDomainBlockJobAbort;
        // SAFETY: the reference is ours, the text has its end.
        let answer = unsafe { end(self.pointer.as_ptr(), target.as_ptr(), flags) };
        self.raw().done(answer)
    }

    /// Has the job of a disk take as much as it can.
    pub(crate) fn unlimit_disk_job(&self, target: &CStr) -> Result<(), Refusal> {
        let set = self.raw().table.virDomainBlockJobSetSpeed;
        // SAFETY: as for `end_disk_job`.
        let answer = unsafe { set(self.pointer.as_ptr(), target.as_ptr(), 0, 0) };
        self.raw().done(answer)
    }

    /// How much the job of a disk has done, and of how much, in bytes; none where it has none.
    pub(crate) fn disk_job(&self, target: &CStr) -> Result<Option<(u64, u64)>, Refusal> {
        let mut info = VirDomainBlockJobInfo::default();
        let ask = self.raw().table.virDomainGetBlockJobInfo;
        // SAFETY: as for `end_disk_job`; the struct has the header's layout and is valid for the call.
        let answer = unsafe { ask(self.pointer.as_ptr(), target.as_ptr(), &raw mut info, 0) };
        self.raw().done(answer)?;
        Ok((answer > 0).then_some((info.cur, info.end)))
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
