//! Frames between two relays: encode, decode, negotiate versions, limits.
//!
//! Pure: bytes in, values out. A lane begins with a [`Preamble`] and its [`Answer`], then, encrypted
//! or not, a [`Hello`] and its [`Welcome`], by which each end proves who it is; after that each
//! direction is a sequence of frames:
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
mod preamble;
mod version;

pub use frame::{ByeCode, ChunkFlags, Frame, HEADER_BYTES, Malformed};
pub use hello::{HELLO_BYTES, Hello, Proof, Token, Transcript, WELCOME_BYTES, Welcome};
pub use preamble::{
    ANSWER_BYTES, ANSWER_HEAD_BYTES, Answer, Mode, Nonce, PREAMBLE_BYTES, Preamble, RefusalCode,
};
pub use version::{NoCommonVersion, Version, VersionRange};
