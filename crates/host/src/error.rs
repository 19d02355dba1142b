//! What can go wrong when facts are read, or the kernel is asked for something.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why a fact could not be read, or a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file is missing or cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not have the line or form that it always has.
    #[error("{} has no usable {what}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// No netlink socket.
    #[error("cannot open a netlink socket to ask the kernel for its interfaces")]
    Socket {
        /// Why.
        source: io::Error,
    },
    /// The kernel refused to list.
    #[error("the kernel did not list its {what}")]
    Netlink {
        /// Links or addresses.
        what: &'static str,
        /// Why.
        source: rtnetlink::Error,
    },
    /// The kernel did not answer in time.
    #[error("the kernel did not list its interfaces within {seconds} s")]
    Late {
        /// The bound.
        seconds: u64,
    },
    /// It would not send.
    #[error("the kernel has no route from {from} to {to}")]
    NoRoute {
        /// An address of this host.
        from: IpAddr,
        /// The other one.
        to: IpAddr,
        /// What it said.
        source: rtnetlink::Error,
    },
    /// Its route leads out of no interface, or that was gone a moment later.
    #[error("the kernel's route from {from} to {to} leaves by no interface")]
    NoInterface {
        /// An address of this host.
        from: IpAddr,
        /// The other one.
        to: IpAddr,
    },
    /// The thread that asked the kernel has ended without an answer.
    #[error("the kernel was asked about its interfaces, and that came to no end")]
    Asking {
        /// Why.
        source: tokio::task::JoinError,
    },
    /// The kernel does not count in which idle states its processors are.
    #[error(
        "the kernel counts no idle states: it has no cpuidle driver, as in a virtual machine whose host has the say"
    )]
    NoIdleStates,
    /// The kernel took no request for a CPU latency.
    #[error("{} takes no request", path.display())]
    Latency {
        /// The device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
