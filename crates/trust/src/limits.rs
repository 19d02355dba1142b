//! Every lifetime and size of trust, each with its reason.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// A host's certificate. Long enough that an authority may be away for ten days (from two thirds of
/// it on, renewal is tried) and nobody notices; short enough that a forgotten one ends.
pub const HOST_LIFETIME: Duration = Duration::from_secs(30 * DAY.as_secs());

/// An operator's certificate: nothing renews it but a person, four times a year.
pub const OPERATOR_LIFETIME: Duration = Duration::from_secs(90 * DAY.as_secs());

/// The authority's own certificate. It cannot be renewed without joining every host again, so it
/// outlives the hardware.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(3650 * DAY.as_secs());

/// A certificate is valid from this long before it was made, so that a host whose clock is behind
/// believes it at once.
pub const BACKDATED: Duration = HOUR;

/// Clocks that differ by more than this are refused when a host joins. Half of [`BACKDATED`]: what
/// drifts apart afterwards does no harm for a while.
pub const CLOCK_SKEW: Duration = Duration::from_secs(HOUR.as_secs() / 2);

/// A join token, when nothing else is said: time to walk to the other machine.
pub const TOKEN_TTL: Duration = HOUR;

/// The longest life of a join token that can be asked for.
pub const TOKEN_TTL_MOST: Duration = Duration::from_secs(7 * DAY.as_secs());

/// A token that was used or has expired is remembered this long, so that who tries it is told.
pub const TOKEN_REMEMBERED: Duration = DAY;

/// Tokens that are remembered at once: each is compared with every secret that is shown.
pub const TOKENS: usize = 256;

/// Addresses of one host's API.
pub const ADDRESSES: usize = 16;

/// Hosts of a cluster: every one of them is told of each change.
pub const MEMBERS: usize = 256;

/// Hosts that may coordinate beside the authority's: each asks the cluster's store every 2 s whether a run has
/// lost its coordinator, and more than a few bring no more safety.
pub const COORDINATORS: usize = 16;

/// Random bytes of a token's secret: nobody guesses 128 bits.
pub const SECRET_BYTES: usize = 16;

/// Text of a join token: [`ADDRESSES`] of IPv6 with their ports are 800 bytes, base64 of that and
/// the rest 1.2 KiB.
pub const TOKEN_TEXT: usize = 2 << 10;

/// Largest file of trust, or text of a certificate that is read. The ledger is the largest: 300
/// bytes for each certificate that has not expired, some two a month and host.
pub const FILE_BYTES: u64 = 4 << 20;

/// Text of one certificate or request; ours have 700 bytes.
pub const CERTIFICATE_TEXT: usize = 16 << 10;
