//! Frames between two relays: encode, decode, negotiate versions, limits.
//!
//! Pure: bytes in, values out. A lane begins with a [`Hello`] from the source and a [`Welcome`]
//! from the destination; after that each direction is a sequence of frames:
//!
//! ```text
//!  0      1       2         4         8                 16
//!  +------+-------+---------+---------+-----------------+----------------------+
//!  | kind | flags | channel | length  | sequence number | `length` payload ... |
//!  +------+-------+---------+---------+-----------------+----------------------+
//! ```
//!
//! All integers are big-endian. Only a chunk has a payload.
//!
//! # Invariant
//! No input makes a decoder panic or accept a length beyond [`limits::CHUNK_BYTES_MAX`].

mod frame;
mod hello;
pub mod limits;
mod version;

pub use frame::{ByeCode, ChunkFlags, Frame, HEADER_BYTES, Malformed};
pub use hello::{HELLO_BYTES, Hello, RefusalCode, Token, WELCOME_BYTES, Welcome};
pub use version::{NoCommonVersion, Version, VersionRange};
