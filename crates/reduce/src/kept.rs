//! Pages that both ends of a session keep, to refer to them.
//!
//! The source decides what is kept where, and tells it in the chunks; the destination does as it is told. So both have
//! the same pages without ever speaking about it, if the destination works off the chunks that concern a place in the
//! order in which the source described them. Those of one channel are; those of different channels are if none is
//! described before the other was worked off. That is what [`source::Kept`] sees to.

pub mod destination;
mod pages;
pub mod source;
