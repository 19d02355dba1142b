//! What libvirt calls, in the thread of events.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::params::Lent;
use super::table::{VirConnect, VirDomain, VirTypedParameter};
use super::{Raw, domain};
use crate::error::Closed;
use crate::events::{Event, Happening, Job};
use crate::shared::Shared;

/// What a callback is given.
pub(super) struct Told {
    raw: &'static Raw,
    shared: Arc<Shared>,
}

impl Told {
    /// For one registration; [`forget`] takes it back.
    pub(super) fn lend(raw: &'static Raw, shared: Arc<Shared>) -> *mut c_void {
        Arc::into_raw(Arc::new(Self { raw, shared }))
            .cast_mut()
            .cast()
    }
}

/// A callback as it is registered.
#[derive(Clone, Copy)]
pub(super) struct Callback(pub(super) *const c_void);

/// The events that are asked for (`virDomainEventID`), with the callback of each.
pub(super) const EVENTS: [(c_int, Callback); 3] = [
    (0, Callback(lifecycle as *const c_void)),
    (20, Callback(round as *const c_void)),
    (21, Callback(job_completed as *const c_void)),
];

/// `virFreeCallback`.
pub(super) extern "C" fn forget(opaque: *mut c_void) {
    // SAFETY: made by `lend`, and called once for each.
    drop(unsafe { Arc::from_raw(opaque.cast::<Told>()) });
}

/// `virConnectCloseFunc`.
pub(super) extern "C" fn closed(_: *mut VirConnect, reason: c_int, opaque: *mut c_void) {
    // SAFETY: made by `lend`, not forgotten yet.
    let told = unsafe { &*opaque.cast::<Told>() };
    told.shared.close(Closed::from_reason(reason));
}

/// `virConnectDomainEventCallback`.
extern "C" fn lifecycle(
    _: *mut VirConnect,
    domain: *mut VirDomain,
    event: c_int,
    detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: made by `lend`; the domain is libvirt's until this returns.
    unsafe { tell(opaque, domain, |_| Happening::from_lifecycle(event, detail)) };
    0
}

/// `virConnectDomainEventMigrationIterationCallback`.
extern "C" fn round(_: *mut VirConnect, domain: *mut VirDomain, round: c_int, opaque: *mut c_void) {
    let round = u32::try_from(round).unwrap_or_default();
    // SAFETY: as above.
    unsafe { tell(opaque, domain, |_| Happening::Round(round)) };
}

/// `virConnectDomainEventJobCompletedCallback`.
extern "C" fn job_completed(
    _: *mut VirConnect,
    domain: *mut VirDomain,
    list: *mut VirTypedParameter,
    length: c_int,
    opaque: *mut c_void,
) {
    // SAFETY: as above; the list is libvirt's, of this length, until this returns.
    unsafe {
        tell(opaque, domain, |raw| {
            let lent = Lent { raw, list, length };
            let job = Job::read(|name| lent.number(name));
            Happening::JobEnded(Box::new(job))
        });
    }
}

/// # Safety
/// What is opaque was made by [`Told::lend`] and not forgotten; the domain is valid until this returns.
unsafe fn tell(opaque: *mut c_void, domain: *mut VirDomain, what: impl FnOnce(&Raw) -> Happening) {
    // SAFETY: as promised by the caller.
    let told = unsafe { &*opaque.cast::<Told>() };
    // SAFETY: as promised by the caller.
    match unsafe { domain::identity(told.raw, domain) } {
        Ok((name, uuid)) => told.shared.tell(Event {
            name,
            uuid,
            happening: what(told.raw),
        }),
        Err(error) => tracing::warn!(%error, "libvirt told of a domain without its name"),
    }
}
