use std::path::{Path, PathBuf};

use drover_types::Bytes;

use crate::machine::{Answer, Movable};

/// What a guest's hypervisor does with its disks: it tells of them, copies them to where another one has them exported, and exports them
/// for such copies.
///
/// Copies and what they are written to go by names that the caller chooses, of at most [`limits::NODE_NAME`](crate::limits::NODE_NAME)
/// bytes, one for each disk.
pub trait Storage: Movable {
    /// All that the guest has, with something in them.
    fn drives(&self) -> Answer<'_, Vec<Drive>>;

    /// Lets whoever connects to `socket`, which is made, write to these: nodes of [`drives`](Self::drives) by names of exports. For a
    /// guest that does not run yet.
    fn export<'a>(&'a self, socket: &'a Path, exports: &'a [Export]) -> Answer<'a, ()>;

    /// Lets nobody write to them any more, and answers once nobody does. That there is nothing to end is no error. To be called before
    /// the guest runs.
    fn end_exports(&self) -> Answer<'_, ()>;

    /// Begins to copy a disk to an export of another hypervisor's, with all that the guest writes from then on. It connects before it
    /// answers. Zeroes cross as such.
    fn mirror<'a>(&'a self, mirror: &'a Mirror) -> Answer<'a, ()>;

    /// How all copies stand, of those also that have ended and were not [let go](Self::let_go).
    fn copies(&self) -> Answer<'_, Vec<Copied>>;

    /// Ends a copy that is [ready](CopyState::Ready): what it was written to has all that the guest has written by then, and the guest
    /// goes on with its own. Answers before that is so.
    fn end_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()>;

    /// Has a copy stand still, until it is given up. Answers before it [does](Copied::stands_still).
    fn pause_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()>;

    /// Gives a copy up. Answers before it has ended.
    fn give_copy_up<'a>(&'a self, name: &'a str) -> Answer<'a, ()>;

    /// Cuts a copy's connection, also while the hypervisor's main loop hangs on it. Without one there is nothing to do, and that is no
    /// error.
    fn cut_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()>;

    /// Forgets a copy that has ended, and closes its connection. Nothing to forget is no error.
    fn let_go<'a>(&'a self, name: &'a str) -> Answer<'a, ()>;

    /// Has a migration go on that stands at its switchover, by
    /// [`MigrationSettings::pauses`](crate::MigrationSettings::pauses).
    fn switch_over(&self) -> Answer<'_, ()>;
}

/// What a guest has its data in, as its hypervisor tells (QEMU's `qapi/block-core.json`, `BlockInfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// By what the guest's arguments call it, or where they do not, the device that it is attached to.
    pub name: String,
    /// The hypervisor's own name of what is at its top.
    pub node: String,
    /// What that is read as, such as `qcow2`; `file` where it is a file as it is.
    pub format: String,
    /// The file, or what else its contents are in, in the hypervisor's notation.
    pub file: String,
    /// The guest may not write to it.
    pub read_only: bool,
}

impl Drive {
    /// The file, where its contents are in one. What is not absolute is below `/`, where the hypervisor runs.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/").join(&self.file)
    }
}

/// One drive of which others may write a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// By which they ask for it.
    pub name: String,
    /// A [`Drive::node`].
    pub node: String,
}

/// A copy that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror<'a> {
    /// Of the copy, and of the export that it is written to.
    pub name: &'a str,
    /// A [`Drive::node`].
    pub node: &'a str,
    /// Where the export's hypervisor listens, or what leads there.
    pub socket: &'a Path,
}

/// A copy that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub state: CopyState,
    /// Copied so far, of what there is and what was written again since.
    pub done: Bytes,
    /// All of that.
    pub total: Bytes,
    /// Nothing of it is on its way: it was [told](Storage::pause_copy) to pause, or the guest is being stopped, or it has ended.
    pub stands_still: bool,
}

/// How far a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyState {
    /// Not yet the same.
    Copies,
    /// The same, but for what the guest writes at the moment.
    Ready,
    /// It has ended, and why where that is for something that failed.
    Ended(Option<String>),
}
