//! What a new agent knows of the session that its predecessor left.

/// The session of before the agent was started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// It is being looked for.
    Unknown,
    /// It carries.
    Lives,
    /// There is none any more, and nothing reaches QEMU.
    Gone,
}
