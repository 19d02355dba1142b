//! Values of the configuration that are checked while they are read, so that the message names
//! their line.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use drover_api::{InvalidLimit, Limit};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::{
    CHECKPOINT_WAITING_LEAST, CHECKPOINT_WAITING_MOST, CPU_LATENCY_LEAST, CPU_LATENCY_MOST,
    REDUCTION_MEMORY_LEAST, REDUCTION_MEMORY_MOST, SHARED_PAGES_LEAST, SHARED_PAGES_MOST,
};

/// Port of the API when an address has none.
const API_PORT: u16 = 7470;

/// A path from the root.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "PathBuf")]
pub struct AbsolutePath(pub PathBuf);

impl AbsolutePath {
    /// A path of ours, known to be absolute.
    pub fn of(path: &str) -> Self {
        Self(Path::new(path).to_owned())
    }
}

impl TryFrom<PathBuf> for AbsolutePath {
    type Error = String;
    fn try_from(path: PathBuf) -> Result<Self, String> {
        if path.is_absolute() {
            Ok(Self(path))
        } else {
            Err(format!("{path:?} is no absolute path: begin it with /"))
        }
    }
}

/// Port of the metrics when their address has none.
const METRICS_PORT: u16 = 7472;

fn address(text: &str) -> Result<SocketAddr, String> {
    address_or_port(text, API_PORT)
}

fn address_or_port(text: &str, port: u16) -> Result<SocketAddr, String> {
    let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    let address = text.parse::<SocketAddr>().or(bare);
    let address = address.map_err(|_| {
        format!("{text:?} is no address: write 10.0.0.1, 10.0.0.1:{port} or [fd00::1]:{port}")
    })?;
    if address.port() == 0 {
        return Err(format!(
            "{text:?} has port 0: write the port, or leave it out for {port}"
        ));
    }
    Ok(address)
}

/// An address of our own to listen on.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(pub SocketAddr);

impl ListenAddress {
    /// Every IPv4 address.
    pub fn everywhere() -> Self {
        Self(SocketAddr::from(([0, 0, 0, 0], API_PORT)))
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        address(&text).map(Self)
    }
}

/// Where metrics are served over TCP, if anywhere.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct MetricsListen(pub Option<SocketAddr>);

impl TryFrom<String> for MetricsListen {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let address = address_or_port(&text, METRICS_PORT);
        let address = address.map_err(|problem| format!("{problem}, or \"off\""))?;
        Ok(Self(Some(address)))
    }
}

/// A limit, or none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct MaybeLimit(pub Option<Limit>);

impl TryFrom<String> for MaybeLimit {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let limit = text.parse();
        let limit = limit.map_err(|problem: InvalidLimit| format!("{problem}, or \"off\""))?;
        Ok(Self(Some(limit)))
    }
}

/// One address of a peer, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "OneOrMany")]
pub struct PeerAddresses(pub Vec<SocketAddr>);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "an address such as \"10.0.0.2:7470\", or a list of them"
)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl TryFrom<OneOrMany> for PeerAddresses {
    type Error = String;
    fn try_from(value: OneOrMany) -> Result<Self, String> {
        let texts = match value {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        };
        let most = drover_api::limits::PEER_ADDRESSES;
        if texts.is_empty() || texts.len() > most {
            return Err(format!("{} addresses: give 1 to {most}", texts.len()));
        }
        let addresses: Vec<_> = texts.iter().map(|t| address(t)).collect::<Result<_, _>>()?;
        if let Some(any) = addresses
            .iter()
            .find(|address| address.ip().is_unspecified())
        {
            return Err(format!("{any} is nobody's address: write the peer's own"));
        }
        Ok(Self(addresses))
    }
}

macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident($type:ty) = $default:literal in $range:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(try_from = "i64")]
        pub struct $name(pub $type);

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl TryFrom<i64> for $name {
            type Error = String;
            fn try_from(value: i64) -> Result<Self, String> {
                let range: std::ops::RangeInclusive<i64> = $range;
                match <$type>::try_from(value) {
                    Ok(fits) if range.contains(&value) => Ok(Self(fits)),
                    _ => Err(format!(
                        concat!("{} is no ", $what, ": give {} to {}"),
                        value, range.start(), range.end()
                    )),
                }
            }
        }
    };
}

bounded! {
    /// TCP port for lanes; 0 takes any that is free, and tells the source which.
    DataPort(u16) = 7471 in 0..=65535, "port"
}
bounded! {
    /// Connections on each path.
    Lanes(u8) = 1 in 1..=16, "number of lanes"
}
bounded! {
    /// Connections that a path may get.
    LanesMost(u8) = 8 in 1..=16, "number of lanes"
}
bounded! {
    /// Seconds. An hour is longer than any repair is waited for with a guest half moved.
    OutageLimit(u64) = 30 in 0..=3600, "outage limit in seconds"
}

bounded! {
    /// Hours.
    CheckpointsLast(u16) = 24 in 1..=720, "time in hours to keep checkpoints"
}

bounded! {
    /// Minutes. A drain with one guest after the other has pauses. A week is a bound against a mistake: longer is to keep them for good.
    SharedPagesKeep(u16) = 5 in 1..=10_080, "time in minutes to keep shared pages"
}

/// Memory that one migration may take to reduce its bytes, at one end.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Bytes")]
pub struct ReductionMemory(pub Bytes);

impl Default for ReductionMemory {
    fn default() -> Self {
        Self(Bytes(256 << 20))
    }
}

impl TryFrom<Bytes> for ReductionMemory {
    type Error = String;

    fn try_from(bytes: Bytes) -> Result<Self, String> {
        if (REDUCTION_MEMORY_LEAST..=REDUCTION_MEMORY_MOST).contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(format!(
            "{bytes} is no memory for reduction: give {REDUCTION_MEMORY_LEAST} to {REDUCTION_MEMORY_MOST}"
        ))
    }
}

/// Memory in which the pages of one guest may wait to be kept while it leaves.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Bytes")]
pub struct CheckpointsMemory(pub Bytes);

impl Default for CheckpointsMemory {
    fn default() -> Self {
        Self(Bytes(512 << 20))
    }
}

impl TryFrom<Bytes> for CheckpointsMemory {
    type Error = String;

    fn try_from(bytes: Bytes) -> Result<Self, String> {
        if (CHECKPOINT_WAITING_LEAST..=CHECKPOINT_WAITING_MOST).contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(format!(
            "{bytes} is no memory for pages that wait to be kept: give {CHECKPOINT_WAITING_LEAST} to {CHECKPOINT_WAITING_MOST}"
        ))
    }
}

/// Memory in which guests that arrive share pages; none: they do not.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Bytes")]
pub struct SharedPagesMemory(pub Bytes);

impl Default for SharedPagesMemory {
    fn default() -> Self {
        Self(Bytes(512 << 20))
    }
}

impl TryFrom<Bytes> for SharedPagesMemory {
    type Error = String;

    fn try_from(bytes: Bytes) -> Result<Self, String> {
        if bytes.0 == 0 || (SHARED_PAGES_LEAST..=SHARED_PAGES_MOST).contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(format!(
            "{bytes} is no memory for shared pages: give {SHARED_PAGES_LEAST} to {SHARED_PAGES_MOST}, or 0"
        ))
    }
}

/// What is done unless it is switched off.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub struct OnByDefault(pub bool);

impl Default for OnByDefault {
    fn default() -> Self {
        Self(true)
    }
}

/// By what the threads of lanes are placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceBy {
    /// Near the hardware of their interface.
    #[default]
    Nic,
    /// By the scheduler alone.
    None,
}

/// What becomes of the interrupts of NICs that carry a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptsBy {
    /// They are taken where they are.
    #[default]
    Leave,
    /// They are taken near the hardware of their interface, as long as it is carried.
    Near,
}

/// How long processors may take to wake, in microseconds; none: as long as they like.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuLatencyMost(pub Option<u32>);

impl Default for CpuLatencyMost {
    fn default() -> Self {
        Self(Some(20))
    }
}

impl TryFrom<String> for CpuLatencyMost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let number = text.strip_suffix("us").map(str::trim_end);
        match number.and_then(|number| number.parse().ok()) {
            Some(us) if (CPU_LATENCY_LEAST..=CPU_LATENCY_MOST).contains(&us) => Ok(Self(Some(us))),
            _ => Err(format!(
                "{text:?} is no CPU latency: write \"{CPU_LATENCY_LEAST}us\" to \"{CPU_LATENCY_MOST}us\", or \"off\""
            )),
        }
    }
}

/// How many channels QEMU opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrWord", into = "NumberOrWord")]
pub enum Channels {
    /// Chosen from paths and cores.
    #[default]
    Auto,
    /// This many.
    Fixed(u8),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "\"auto\", or a number from 1 to 16")]
enum NumberOrWord {
    Number(i64),
    Word(String),
}

impl TryFrom<NumberOrWord> for Channels {
    type Error = String;
    fn try_from(value: NumberOrWord) -> Result<Self, String> {
        match value {
            NumberOrWord::Word(word) if word == "auto" => Ok(Self::Auto),
            NumberOrWord::Word(word) => Err(format!(
                "{word:?} is no number of channels: write \"auto\", or 1 to 16"
            )),
            NumberOrWord::Number(number) => match u8::try_from(number) {
                Ok(fits @ 1..=16) => Ok(Self::Fixed(fits)),
                _ => Err(format!(
                    "{number} is no number of channels: write \"auto\", or 1 to 16"
                )),
            },
        }
    }
}

impl From<Channels> for NumberOrWord {
    fn from(channels: Channels) -> Self {
        match channels {
            Channels::Auto => Self::Word("auto".to_owned()),
            Channels::Fixed(number) => Self::Number(number.into()),
        }
    }
}
