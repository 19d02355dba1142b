//! What is needed of a host.

use std::time::Duration;

use drover_tune::Step;
use drover_tune::lasting::{End, Place, Rewrite};
use drover_types::HostName;

use crate::order::PathTo;
use crate::raised::Layers;
use crate::sizes::{Now, PathSizes};

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Performed {
    /// It was set.
    Done,
    /// It is the kernel's own to set, for this reason, and was left as it is.
    PassedBy(String),
}

/// Does what a step says, and tells what is there.
pub trait Hands {
    /// What is there of what a step changes, in the step's words.
    ///
    /// # Errors
    /// Why it is not known.
    fn current(&self, step: &Step) -> impl Future<Output = Result<String, String>>;

    /// Sets what the step says, or what was there before it, unless it is the kernel's own to set.
    ///
    /// # Errors
    /// Why it could not.
    fn perform(&self, step: &Step, to: End) -> impl Future<Output = Result<Performed, String>>;

    /// Whether this interface has a carrier; one that is down or not there has none.
    ///
    /// # Errors
    /// Why it is not known.
    fn carries(&self, nic: &str) -> impl Future<Output = Result<bool, String>>;

    /// Whether whoever reads this file goes by it, and by nothing that lies over it.
    ///
    /// # Errors
    /// By what instead.
    fn goes_by(&self, file: &Rewrite) -> impl Future<Output = Result<(), String>>;

    /// Has those who read such files while they run read these again, in one wait that is bounded. One that is not there has none.
    ///
    /// # Errors
    /// Why they have not, and what has them do so.
    fn reread(&self, files: &[&Rewrite]) -> impl Future<Output = Result<(), String>>;

    /// What is at the place of this file.
    ///
    /// # Errors
    /// Why that is not known, or is nothing to be written over.
    fn place(&self, path: &str) -> impl Future<Output = Result<Place, String>>;

    /// Has the file be so, as a whole or not at all. What a try has left beside it goes with the next one.
    ///
    /// # Errors
    /// Why it is not so.
    fn put(&self, file: &Rewrite, to: End) -> impl Future<Output = Result<(), String>>;

    /// Removes what a process left beside the file that died as it wrote, and leaves the file.
    ///
    /// # Errors
    /// Why it could not.
    fn tidy(&self, path: &str) -> impl Future<Output = Result<(), String>>;
}

/// What is found of the paths that migrations take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// Those that were answered, and what crosses them; what they are over is for who knows the plan.
    pub paths: Vec<PathSizes>,
    /// What is not known of others.
    pub untold: Vec<Untold>,
    /// How interfaces of this host stand on each other.
    pub layers: Layers,
}

/// What of paths is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// Of which ones.
    pub of: Unknown,
    /// Which it is, and why, in words.
    pub why: String,
}

/// Paths of which it is not known how large packets cross.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// All.
    All,
    /// Those to a host.
    Host(HostName),
    /// That by an interface of this host.
    Path {
        /// The other host.
        host: HostName,
        /// The interface.
        nic: String,
    },
    /// None: a host has told that migrations have no way there.
    NoPath,
}

/// Tries whether other hosts reach this one.
pub trait Paths {
    /// Which of these work now, one answer each, within a bounded time.
    fn work(&self, paths: &[PathTo]) -> impl Future<Output = Vec<bool>>;

    /// Whether the other hosts' agents open connections to this one by these now, one answer each, or why that is not known, within this time.
    fn opened(
        &self,
        paths: &[PathTo],
        within: Duration,
    ) -> impl Future<Output = Vec<Result<bool, String>>>;

    /// The paths that migrations take from this host, and the largest packets that cross each of them, as far as this time is enough.
    fn measure(&self, within: Duration) -> impl Future<Output = Measured>;

    /// The largest packets that cross these now, one answer each, or why that is not known, within this time. Later attempts, counted from 0,
    /// have more patience with answers: others may fill the line.
    fn sizes(
        &self,
        paths: &[PathSizes],
        attempt: u32,
        within: Duration,
    ) -> impl Future<Output = Vec<Result<Now, String>>>;
}
