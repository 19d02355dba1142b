//! Moves buffers over one path: TCP.
//!
//! Owns one connection and its socket options; knows no frames. Every call blocks its thread, as
//! a lane has a thread for each direction; [`Lane::shut_down`] from any other thread ends both.

mod connect;
pub mod limits;
mod listen;
mod splice;
mod tcp;

pub use connect::{ConnectError, Target};
pub use listen::{Listener, NotListening};
pub use splice::{Patience, Pipe, never_wait, read_some, send_some};
pub use tcp::Lane;
