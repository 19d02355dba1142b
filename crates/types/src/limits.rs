//! Bounds of what is passed on, each with its reason.

/// Characters of a library's words about a text at fault: a few lines of a terminal or a log.
pub const WORDS_CHARS: usize = 400;

/// Numbers of CPUs are below it; Linux is built for at most 8192.
pub const CPUS: u32 = 65_536;
