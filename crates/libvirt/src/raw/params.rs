use std::ffi::{CStr, c_int, c_ulonglong};
use std::ptr;

use super::Raw;
use super::table::VirTypedParameter;
use crate::error::Refusal;

/// A list of typed parameters that we fill.
pub(crate) struct Params {
    raw: &'static Raw,
    pub(super) list: *mut VirTypedParameter,
    pub(super) length: c_int,
    room: c_int,
}

impl Params {
    pub(crate) fn new(raw: &'static Raw) -> Self {
        Self {
            raw,
            list: ptr::null_mut(),
            length: 0,
            room: 0,
        }
    }

    pub(crate) fn text(&mut self, name: &CStr, value: &CStr) -> Result<(), Refusal> {
        let add = self.raw.table.virTypedParamsAddString;
        // SAFETY: list, length and room are what libvirt left there, or a list that is none; both texts are copied.
        let added = unsafe {
            add(
                &raw mut self.list,
                &raw mut self.length,
                &raw mut self.room,
                name.as_ptr(),
                value.as_ptr(),
            )
        };
        self.raw.done(added)
    }

    pub(crate) fn number(&mut self, name: &CStr, value: c_int) -> Result<(), Refusal> {
        let add = self.raw.table.virTypedParamsAddInt;
        // SAFETY: as for `text`.
        let added = unsafe {
            add(
                &raw mut self.list,
                &raw mut self.length,
                &raw mut self.room,
                name.as_ptr(),
                value,
            )
        };
        self.raw.done(added)
    }

    pub(crate) fn large(&mut self, name: &CStr, value: c_ulonglong) -> Result<(), Refusal> {
        let add = self.raw.table.virTypedParamsAddULLong;
        // SAFETY: as for `text`.
        let added = unsafe {
            add(
                &raw mut self.list,
                &raw mut self.length,
                &raw mut self.room,
                name.as_ptr(),
                value,
            )
        };
        self.raw.done(added)
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        // SAFETY: the list is libvirt's and of this length; null is taken too.
        unsafe { (self.raw.table.virTypedParamsFree)(self.list, self.length) }
    }
}

/// A list of typed parameters that libvirt lends.
pub(super) struct Lent<'a> {
    pub(super) raw: &'a Raw,
    pub(super) list: *mut VirTypedParameter,
    pub(super) length: c_int,
}

impl Lent<'_> {
    /// An `unsigned long long` of this name, or an `int` that is not negative, if there is one.
    ///
    /// # Safety
    /// The list is valid and has this length.
    pub(super) unsafe fn number(&self, name: &CStr) -> Option<u64> {
        let mut value: c_ulonglong = 0;
        let get = self.raw.table.virTypedParamsGetULLong;
        // SAFETY: as promised by the caller; the value is valid for the call.
        let found = unsafe { get(self.list, self.length, name.as_ptr(), &raw mut value) };
        if found == 1 {
            return Some(value);
        }
        let mut value: c_int = 0;
        let get = self.raw.table.virTypedParamsGetInt;
        // SAFETY: the same.
        let found = unsafe { get(self.list, self.length, name.as_ptr(), &raw mut value) };
        u64::try_from(value).ok().filter(|_| found == 1)
    }
}
