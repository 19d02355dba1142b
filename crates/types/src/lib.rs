//! Ids, units and nouns that every crate shares.
//!
//! Pure values: no clock, no I/O. Everything here can be parsed from text, shown as text, and
//! carried as JSON; a value that exists is valid.

mod convergence;
mod cpus;
mod ids;
mod latency;
pub mod limits;
mod net;
mod reduction;
mod units;
mod words;

pub use convergence::{
    AtDeadline, Convergence, Deadline, DowntimeLimit, OutOfRange, Throttle, ThrottleMost,
};
pub use cpus::{CpuSet, InvalidCpus, NicPlacement, Placement};
pub use ids::{
    AnswererId, ChangeId, HostName, InvalidName, LoadId, MigrationId, OperatorName, ParkId, RunId,
    StorageMoveId, VmName,
};
pub use latency::{CpuLatency, IdleTime};
pub use net::{Interface, InvalidNetwork, IpNetwork, Layer, Path, PathEnd, PathId, network_of};
pub use reduction::{InvalidReduction, ReductionMode};
pub use units::{BitRate, ByteRate, Bytes, InvalidQuantity};
pub use words::{in_short, with_sources};
