//! What happens to a process.

use std::time::Duration;

/// What happens to whoever looks.
#[derive(Default)]
pub struct Fate {
    /// At which call its process ends.
    pub dies_at: Option<usize>,
    /// While this file has this value, no other host reaches this one.
    pub cut_off_by: Option<(String, String)>,
    /// Nor is anything answered then of whether one does.
    pub unanswered: bool,
    /// While this file has this value, no other host opens a connection to this one, though it answers.
    pub shut_by: Option<(String, String)>,
    /// Agents of other hosts are older, and open none.
    pub tells_none: bool,
    /// So many times that other agents are asked to open connections, none of these arrives.
    pub unarrived: usize,
    /// For so long it takes the agents of other hosts to open connections.
    pub opening: Duration,
    /// While this file has this value, no packets of more than 1500 bytes cross.
    pub narrowed_by: Option<(String, String)>,
    /// For so long it takes to find out how large packets cross.
    pub asking: Duration,
    /// For so long, from the first time that it is asked after a step, no packets of more than 1500 bytes cross.
    pub narrow_for: Option<Duration>,
    /// While this file has this value, nobody tells how large packets cross.
    pub unmeasured: Option<(String, String)>,
    /// What becomes of a file whatever is written on the way forward.
    pub becomes: Option<(String, String)>,
    /// The same on the way back.
    pub becomes_back: Option<(String, String)>,
    /// A file of which it is said on the way forward that it cannot be written.
    pub refuses: Option<String>,
    /// The same on the way back.
    pub refuses_back: Option<String>,
    /// A file that is the kernel's own to write.
    pub passes_by: Option<String>,
    /// While this file has this value, no interface has a carrier.
    pub drops: Option<(String, String)>,
    /// While this file has this value, nothing tells whether an interface has one.
    pub deaf: Option<(String, String)>,
    /// While this file has this value, it tells nothing.
    pub mute: Option<(String, String)>,
    /// For so long nothing is taken back, from when it first was to be.
    pub busy: Option<Duration>,
    /// For so long nothing is told after each thing that is done while going back.
    pub silent: Option<Duration>,
    /// The same on the way forward.
    pub late: Option<Duration>,
    /// For so long each thing takes that is set, or written, on the way forward.
    pub slow: Option<Duration>,
    /// No reader of files answers.
    pub unread: bool,
    /// Somebody else writes this at this call.
    pub meddles: Option<(usize, String, String)>,
    /// At which call the journal's disk goes.
    pub disk_gone_at: Option<usize>,
}
