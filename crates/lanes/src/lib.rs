//! Moves buffers over one path: TCP, plain or within TLS 1.3.
//!
//! Owns one connection, its socket options and its encryption; knows no frames. Every call blocks
//! its thread, as a lane has a thread for each direction; [`Lane::shut_down`] from any other
//! thread ends both.
//!
//! ```text
//!  Connection::connect --+                +-- into_plain --+
//!                        +-- Connection --+                +-- Lane::established -- bytes
//!  Listener::accept -----+   (a deadline) +-- into_tls ----+   (no deadline)
//! ```
//!
//! # Invariant
//! Within TLS a lane carries bytes only to and from the owner of the key whose certificate's
//! [`Fingerprint`] was agreed on elsewhere.

mod connect;
mod connection;
mod facts;
mod lane;
pub mod limits;
mod listen;
mod low_water;
mod splice;
mod tcp;
mod tls;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use connect::{ConnectError, Target};
pub use connection::{Closer, Connection};
pub use facts::{Progress, TcpFacts};
pub use lane::{Encryption, Lane};
pub use listen::{Listener, NotListening};
pub use splice::{Patience, Pipe, never_wait, read_some, send_some};
pub use tls::{Fingerprint, Identity, NoFingerprint, NoIdentity, Role, Tls, TlsError};

/// Locks, also after a thread panicked while it held the lock: a lane that was left half done
/// fails at its peer's next check of the bytes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
