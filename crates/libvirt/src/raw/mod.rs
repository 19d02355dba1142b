//! The calls into libvirt's library, made safe. Beside it `unsafe` is in one function of `crates/host` alone.
//!
//! # Safety
//! What is relied on, and why it holds:
//!
//! - **Signatures.** [`table`] declares each function as libvirt's public headers do. These are its stable ABI: `libvirt.so.0`
//!   has kept every one since it came, and another ABI would have another name. A library that lacks one is refused as a whole.
//! - **The library stays.** It is never unloaded ([`load`] leaks it), so a function, a callback's return address and what a
//!   thread of libvirt stands in remain.
//! - **Threads.** libvirt's connections and domains are counted references to locked objects (its
//!   `docs/html/internals/threads`), so any thread may have them: they are `Send`. They are not `Sync`, so that one thread makes
//!   the calls of a connection, and never two: in libvirt 9.0 a call can miss that its answer is there while another thread waits for
//!   one on the same connection, and waits for ever. Its errors belong to a thread: they are read by the one that made the
//!   call, at once ([`Raw::refusal`]).
//! - **References.** A [`Connection`] and a [`Domain`] each own one reference, given back once, when dropped. A `Domain` borrows
//!   its `Connection`. What else is looked up (networks, pools, volumes, secrets) is given back within the same call. In a callback both are libvirt's and are only looked at before it returns.
//! - **Memory.** What libvirt allocates for the caller (`char *`, arrays of domains) is copied and given to C's `free`; what it
//!   lends (`const char *`) is copied before anything else is called.
//! - **Callbacks.** What they are given is an `Arc` that libvirt owns from a registration that succeeded until it calls
//!   [`callbacks::forget`]. They do not panic; one that did would end the process, not unwind into C.

#![allow(unsafe_code)]

mod callbacks;
mod connection;
mod domain;
mod offered;
mod params;
mod table;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

pub(crate) use connection::{Connection, NotOpened};
pub(crate) use domain::Domain;
pub(crate) use offered::Started;
pub(crate) use params::Params;
use table::{Table, VirError};

use crate::error::{LoadError, Refusal, excerpt};
use crate::limits;
use crate::version::Version;

/// The library, loaded, with its event loop registered.
pub(crate) struct Raw {
    table: Table,
    path: PathBuf,
    version: Version,
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libvirt {} ({})", self.version, self.path.display())
    }
}

static LOADED: OnceLock<&'static Raw> = OnceLock::new();

/// Only one thread loads; the loop is registered once in a process, before the first connection.
static LOADING: Mutex<()> = Mutex::new(());

/// Loads the library and starts the thread of its events, or gives the one that is loaded.
///
/// A failure is not remembered: libvirt may be installed while we run.
pub(crate) fn load(path: &Path) -> Result<&'static Raw, LoadError> {
    let _turn = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        if loaded.path != path {
            return Err(LoadError::Another {
                path: path.to_owned(),
                loaded: loaded.path.clone(),
            });
        }
        return Ok(loaded);
    }
    // SAFETY: loading runs the library's constructors: libvirt's own and those of what it is linked to, which any
    // program that is linked to libvirt runs. The path is the operator's or this program's.
    let library = unsafe { libloading::Library::new(path) };
    let library = library.map_err(|error| LoadError::NotThere {
        path: path.to_owned(),
        words: loader(&error),
    })?;
    let table = Table::find(&library).map_err(|function| LoadError::Incomplete {
        path: path.to_owned(),
        function,
    })?;
    // Never unloaded, see above.
    std::mem::forget(library);
    let mut raw = Raw {
        table,
        path: path.to_owned(),
        version: Version(0),
    };
    raw.start()?;
    let raw: &Raw = Box::leak(Box::new(raw));
    std::thread::Builder::new()
        .name("libvirt-events".to_owned())
        .spawn(|| raw.run_events())
        .map_err(|source| LoadError::Thread { source })?;
    tracing::info!(library = ?raw, "loaded libvirt");
    Ok(LOADED.get_or_init(|| raw))
}

impl Raw {
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Before anything else is called.
    fn start(&mut self) -> Result<(), LoadError> {
        let failed = |raw: &Self, function| LoadError::Failed {
            function,
            source: raw.refusal(),
        };
        // SAFETY: no arguments but a function that ignores its own; the pointer to the version is valid for the call,
        // and libvirt takes null for the two that are not asked for.
        unsafe {
            (self.table.virSetErrorFunc)(ptr::null_mut(), quiet as *const c_void);
            if (self.table.virEventRegisterDefaultImpl)() < 0 {
                return Err(failed(self, "virEventRegisterDefaultImpl"));
            }
            if (self.table.virGetVersion)(&raw mut self.version.0, ptr::null(), ptr::null_mut()) < 0
            {
                return Err(failed(self, "virGetVersion"));
            }
        }
        Ok(())
    }

    /// Waits for what happens on any connection, and calls back, for ever.
    fn run_events(&self) {
        loop {
            // SAFETY: the implementation was registered by `start`; only one thread calls this.
            let ran = unsafe { (self.table.virEventRunDefaultImpl)() };
            if let Err(error) = self.done(ran) {
                tracing::warn!(%error, "libvirt's events failed once");
                std::thread::sleep(limits::EVENTS_AGAIN);
            }
        }
    }

    fn done(&self, answer: c_int) -> Result<(), Refusal> {
        if answer < 0 {
            Err(self.refusal())
        } else {
            Ok(())
        }
    }

    /// What libvirt says of this thread's last call, which failed.
    fn refusal(&self) -> Refusal {
        // SAFETY: no arguments; the text is lent until this thread's next call, and copied before.
        unsafe {
            let code = (self.table.virGetLastErrorCode)();
            let domain = (self.table.virGetLastErrorDomain)();
            let words = lent((self.table.virGetLastErrorMessage)(), limits::WORDS_BYTES);
            Refusal {
                words: excerpt(&words),
                domain,
                code,
            }
        }
    }
}

/// What the system's loader said.
fn loader(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error);
    excerpt(&cause.map_or_else(|| error.to_string(), ToString::to_string))
}

/// libvirt would print each error to stderr.
extern "C" fn quiet(_: *mut c_void, _: *mut VirError) {}

/// A copy of a text that libvirt lends, at most so many bytes of it; empty for none.
///
/// # Safety
/// Null, or a text with its end that stays until this returns.
unsafe fn lent(text: *const c_char, most: usize) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
}
