//! What is used of libvirt's library, with the signatures of its headers.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulong, c_ulonglong, c_ushort, c_void};

/// `virConnect`.
pub(super) enum VirConnect {}
/// `virDomain`.
pub(super) enum VirDomain {}
/// `virError`.
pub(super) enum VirError {}
/// `virNetwork`.
pub(super) enum VirNetwork {}
/// `virStoragePool`.
pub(super) enum VirStoragePool {}
/// `virStorageVol`.
pub(super) enum VirStorageVol {}
/// `virDomainCheckpoint`.
pub(super) enum VirDomainCheckpoint {}
/// `virSecret`.
pub(super) enum VirSecret {}
/// `virTypedParameter`.
pub(super) enum VirTypedParameter {}

/// `virDomainInfo` of `libvirt-domain.h`.
#[repr(C)]
#[derive(Default)]
pub(super) struct VirDomainInfo {
    pub state: c_uchar,
    pub max_mem: c_ulong,
    pub memory: c_ulong,
    pub nr_virt_cpu: c_ushort,
    pub cpu_time: c_ulonglong,
}

/// `virDomainBlockJobInfo` of `libvirt-domain.h`.
#[repr(C)]
#[derive(Default)]
pub(super) struct VirDomainBlockJobInfo {
    pub kind: c_int,
    pub bandwidth: c_ulong,
    pub cur: c_ulonglong,
    pub end: c_ulonglong,
}

/// `virFreeCallback` of `libvirt-common.h`.
pub(super) type FreeCallback = extern "C" fn(*mut c_void);
/// `virConnectCloseFunc` of `libvirt-common.h`.
pub(super) type CloseFunc = extern "C" fn(*mut VirConnect, c_int, *mut c_void);
/// A function whose signature depends on another argument, as `virConnectDomainEventGenericCallback` is cast.
pub(super) type Function = *const c_void;

macro_rules! table {
    ($(fn $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions, by libvirt's names for them.
        #[allow(non_snake_case)]
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Table {
            /// Finds all of them, or names the first that is not there.
            pub(super) fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                // SAFETY: the signatures are those of libvirt's headers; the pointers are used while the library is
                // loaded, which is for ever.
                unsafe {
                    Ok(Self {$(
                        $name: *library.get(concat!(stringify!($name), "\0")).map_err(|_| stringify!($name))?,
                    )*})
                }
            }
        }
    };
}

table! {
    // virterror.h
    fn virSetErrorFunc(*mut c_void, Function) -> ();
    fn virGetLastErrorCode() -> c_int;
    fn virGetLastErrorDomain() -> c_int;
    fn virGetLastErrorMessage() -> *const c_char;
    // libvirt-event.h
    fn virEventRegisterDefaultImpl() -> c_int;
    fn virEventRunDefaultImpl() -> c_int;
    // libvirt-host.h
    fn virGetVersion(*mut c_ulong, *const c_char, *mut c_ulong) -> c_int;
    fn virConnectOpen(*const c_char) -> *mut VirConnect;
    fn virConnectClose(*mut VirConnect) -> c_int;
    fn virConnectGetLibVersion(*mut VirConnect, *mut c_ulong) -> c_int;
    fn virConnectGetVersion(*mut VirConnect, *mut c_ulong) -> c_int;
    fn virConnectGetCapabilities(*mut VirConnect) -> *mut c_char;
    fn virConnectIsAlive(*mut VirConnect) -> c_int;
    fn virConnectSetKeepAlive(*mut VirConnect, c_int, c_uint) -> c_int;
    fn virConnectRegisterCloseCallback(*mut VirConnect, CloseFunc, *mut c_void, FreeCallback) -> c_int;
    fn virConnectUnregisterCloseCallback(*mut VirConnect, CloseFunc) -> c_int;
    fn virConnectCompareHypervisorCPU(*mut VirConnect, *const c_char, *const c_char, *const c_char, *const c_char, *const c_char, c_uint) -> c_int;
    // libvirt-network.h, libvirt-storage.h, libvirt-secret.h
    fn virNetworkLookupByName(*mut VirConnect, *const c_char) -> *mut VirNetwork;
    fn virNetworkIsActive(*mut VirNetwork) -> c_int;
    fn virNetworkFree(*mut VirNetwork) -> c_int;
    fn virStoragePoolLookupByName(*mut VirConnect, *const c_char) -> *mut VirStoragePool;
    fn virStoragePoolIsActive(*mut VirStoragePool) -> c_int;
    fn virStoragePoolFree(*mut VirStoragePool) -> c_int;
    fn virStorageVolLookupByName(*mut VirStoragePool, *const c_char) -> *mut VirStorageVol;
    fn virStorageVolFree(*mut VirStorageVol) -> c_int;
    fn virSecretLookupByUUIDString(*mut VirConnect, *const c_char) -> *mut VirSecret;
    fn virSecretLookupByUsage(*mut VirConnect, c_int, *const c_char) -> *mut VirSecret;
    fn virSecretFree(*mut VirSecret) -> c_int;
    // libvirt-domain.h
    fn virConnectGetDomainCapabilities(*mut VirConnect, *const c_char, *const c_char, *const c_char, *const c_char, c_uint) -> *mut c_char;
    fn virConnectDomainEventRegisterAny(*mut VirConnect, *mut VirDomain, c_int, Function, *mut c_void, FreeCallback) -> c_int;
    fn virConnectDomainEventDeregisterAny(*mut VirConnect, c_int) -> c_int;
    fn virConnectListAllDomains(*mut VirConnect, *mut *mut *mut VirDomain, c_uint) -> c_int;
    fn virDomainLookupByUUID(*mut VirConnect, *const c_uchar) -> *mut VirDomain;
    fn virDomainFree(*mut VirDomain) -> c_int;
    fn virDomainGetName(*mut VirDomain) -> *const c_char;
    fn virDomainGetUUID(*mut VirDomain, *mut c_uchar) -> c_int;
    fn virDomainGetInfo(*mut VirDomain, *mut VirDomainInfo) -> c_int;
    fn virDomainGetState(*mut VirDomain, *mut c_int, *mut c_int, c_uint) -> c_int;
    fn virDomainIsPersistent(*mut VirDomain) -> c_int;
    fn virDomainGetAutostart(*mut VirDomain, *mut c_int) -> c_int;
    fn virDomainSetAutostart(*mut VirDomain, c_int) -> c_int;
    fn virDomainGetXMLDesc(*mut VirDomain, c_uint) -> *mut c_char;
    fn virDomainSuspend(*mut VirDomain) -> c_int;
    fn virDomainResume(*mut VirDomain) -> c_int;
    fn virDomainBlockCopy(*mut VirDomain, *const c_char, *const c_char, *mut VirTypedParameter, c_int, c_uint) -> c_int;
    fn virDomainBlockJobAbort(*mut VirDomain, *const c_char, c_uint) -> c_int;
    fn virDomainBlockJobSetSpeed(*mut VirDomain, *const c_char, c_ulong, c_uint) -> c_int;
    fn virDomainGetBlockJobInfo(*mut VirDomain, *const c_char, *mut VirDomainBlockJobInfo, c_uint) -> c_int;
    fn virDomainDestroy(*mut VirDomain) -> c_int;
    fn virDomainUndefineFlags(*mut VirDomain, c_uint) -> c_int;
    fn virDomainBackupGetXMLDesc(*mut VirDomain, c_uint) -> *mut c_char;
    fn virDomainGetJobStats(*mut VirDomain, *mut c_int, *mut *mut VirTypedParameter, *mut c_int, c_uint) -> c_int;
    fn virDomainAbortJob(*mut VirDomain) -> c_int;
    fn virDomainMigrateGetMaxDowntime(*mut VirDomain, *mut c_ulonglong, c_uint) -> c_int;
    fn virDomainMigrateSetMaxDowntime(*mut VirDomain, c_ulonglong, c_uint) -> c_int;
    fn virDomainMigrateToURI3(*mut VirDomain, *const c_char, *mut VirTypedParameter, c_uint, c_uint) -> c_int;
    // libvirt-domain-snapshot.h, libvirt-domain-checkpoint.h
    fn virDomainSnapshotNum(*mut VirDomain, c_uint) -> c_int;
    fn virDomainListAllCheckpoints(*mut VirDomain, *mut *mut *mut VirDomainCheckpoint, c_uint) -> c_int;
    // libvirt-common.h
    fn virTypedParamsAddString(*mut *mut VirTypedParameter, *mut c_int, *mut c_int, *const c_char, *const c_char) -> c_int;
    fn virTypedParamsAddInt(*mut *mut VirTypedParameter, *mut c_int, *mut c_int, *const c_char, c_int) -> c_int;
    fn virTypedParamsAddULLong(*mut *mut VirTypedParameter, *mut c_int, *mut c_int, *const c_char, c_ulonglong) -> c_int;
    fn virTypedParamsGetULLong(*mut VirTypedParameter, c_int, *const c_char, *mut c_ulonglong) -> c_int;
    fn virTypedParamsGetInt(*mut VirTypedParameter, c_int, *const c_char, *mut c_int) -> c_int;
    fn virTypedParamsFree(*mut VirTypedParameter, c_int) -> ();
}
