//! The agent's configuration: one TOML file, every key optional, no unknown keys.
//!
//! `packaging/droverd.toml` documents every key; a test holds it against [`Config`].

mod error;
mod libvirt;
mod store;
mod values;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_api::{Encryption, Limit};
use drover_migrate::paths::Selection;
use drover_plan::{ClusterPolicy, Word, invalid};
use drover_types::{Bytes, Convergence, HostName, ReductionMode};
use serde::Deserialize;

pub use error::{ConfigError, locate};
pub use libvirt::LibvirtAt;
use libvirt::LibvirtSection;
pub use store::EtcdConfig;
use store::StoreSection;
use values::{
    AbsolutePath, CheckpointsLast, CheckpointsMemory, CpuLatencyMost, DataPort, Lanes, LanesMost,
    ListenAddress, MaybeLimit, MetricsListen, OnByDefault, OutageLimit, PeerAddresses,
    ReductionMemory, SharedPagesKeep, SharedPagesMemory,
};
pub use values::{Channels, InterruptsBy, PlaceBy};

use crate::limits;
use crate::migration::relays::Relays;

/// Where the configuration is when `--config` does not say.
pub const DEFAULT_FILE: &str = "/etc/drover/droverd.toml";

/// The configuration as the agent uses it: checked, with every default in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where it was read from, from the root: its processes read it, too.
    pub file: PathBuf,
    /// This host's name.
    pub host: HostName,
    /// Definitions of guests, one file each.
    pub definitions: PathBuf,
    /// What must outlive a reboot.
    pub state: PathBuf,
    /// Sockets and records of running guests; gone after a reboot, as they are.
    pub runtime: PathBuf,
    /// Memory and devices of suspended guests.
    pub suspended: PathBuf,
    /// The local API.
    pub socket: PathBuf,
    /// Where other hosts and operators find the API, once this host is in a cluster.
    pub listen: Vec<SocketAddr>,
    /// How guests are moved.
    pub migration: MigrationConfig,
    /// Which networks they are moved over.
    pub networks: Selection,
    /// What peers may have started here.
    pub qemu_binaries: Vec<PathBuf>,
    /// Where libvirt is, whose domains are listed beside the agent's own guests.
    pub libvirt: LibvirtAt,
    /// Memory that no guest may take.
    pub memory_headroom: Bytes,
    /// What is kept of guests that left.
    pub checkpoints: CheckpointsConfig,
    /// What migrations may carry.
    pub limits: LimitsConfig,
    /// What plans know this host by, such as `rack` = `r1`.
    pub labels: BTreeMap<Word, Word>,
    /// What the plans that this agent makes keep to.
    pub policy: ClusterPolicy,
    /// Where the cluster's state is kept together with other hosts that may coordinate; none for a file here.
    pub etcd: Option<EtcdConfig>,
    /// Where metrics are served to whoever asks, beside the local socket.
    pub metrics_listen: Option<SocketAddr>,
    /// Where to find other hosts, against what they say themselves.
    pub peers: Vec<Peer>,
}

/// How guests are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationConfig {
    /// TCP port for lanes.
    pub data_port: u16,
    /// Connections on each path to begin with, and the most that it may get.
    pub lanes_per_path: (u8, u8),
    /// How it is brought to an end, where neither the order nor the guest's definition says.
    pub convergence: Convergence,
    /// QEMU's channels.
    pub channels: Channels,
    /// How long to wait for a path when none is left.
    pub outage_limit: Duration,
    /// Whether lanes' threads run near their interfaces.
    pub placement: PlaceBy,
    /// How long, in microseconds, processors may take to wake while a guest is moved; as long as they like where there is none.
    pub cpu_latency_us: Option<u32>,
    /// Whether interrupts of NICs are taken near these while a guest is moved.
    pub interrupts: InterruptsBy,
    /// What protects the lanes, unless the other host demands more.
    pub protection: Protection,
    /// What is done so that fewer bytes cross.
    pub reduction: ReductionMode,
    /// The memory that one migration may take for that at this end.
    pub reduction_memory: Bytes,
    /// The memory in which guests that arrive share pages; none: they do not.
    pub shared_pages_memory: Bytes,
    /// How long it is kept after the last of them.
    pub shared_pages_keep: Duration,
    /// Whether it is measured how fast guests write to their memory.
    pub sample_dirty_rate: bool,
}

/// What is kept of guests that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointsConfig {
    /// Where.
    pub directory: PathBuf,
    /// What all may take there; nothing is kept where that is zero.
    pub size: Bytes,
    /// For how long.
    pub lasts: Duration,
    /// What pages of one guest may take while they wait for that.
    pub memory: Bytes,
}

/// What protects the lanes of a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Protection {
    /// Whether they are encrypted.
    pub encryption: Encryption,
    /// Whether every chunk has a checksum, whatever way its bytes take.
    pub verify: bool,
}

/// What migrations may carry, in each direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsConfig {
    /// All together.
    pub host: Option<Limit>,
    /// Over each interface.
    pub nics: BTreeMap<String, Limit>,
}

/// Where to find another host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name, as in its certificate.
    pub host: HostName,
    /// Where its agent listens, tried in this order.
    pub api: Vec<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    host: Option<HostName>,
    definitions: AbsolutePath,
    state: AbsolutePath,
    runtime: AbsolutePath,
    suspended: Option<AbsolutePath>,
    memory_headroom: Bytes,
    labels: BTreeMap<Word, Word>,
    api: ApiSection,
    migration: MigrationSection,
    networks: Selection,
    qemu: QemuSection,
    libvirt: LibvirtSection,
    checkpoints: CheckpointsSection,
    limits: LimitsSection,
    policy: ClusterPolicy,
    store: StoreSection,
    metrics: MetricsSection,
    peers: Vec<PeerSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ApiSection {
    socket: Option<AbsolutePath>,
    listen: Vec<ListenAddress>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MigrationSection {
    data_port: DataPort,
    lanes_per_path: Lanes,
    lanes_per_path_most: LanesMost,
    convergence: Convergence,
    channels: Channels,
    outage_limit_s: OutageLimit,
    placement: PlaceBy,
    cpu_latency: CpuLatencyMost,
    interrupts: InterruptsBy,
    encryption: Encryption,
    verify: bool,
    reduction: ReductionMode,
    reduction_memory: ReductionMemory,
    shared_pages_memory: SharedPagesMemory,
    shared_pages_keep_minutes: SharedPagesKeep,
    sample_dirty_rate: OnByDefault,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QemuSection {
    binaries: Vec<AbsolutePath>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CheckpointsSection {
    directory: Option<AbsolutePath>,
    size: Bytes,
    expire_hours: CheckpointsLast,
    memory: CheckpointsMemory,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsSection {
    host: MaybeLimit,
    nics: BTreeMap<String, MaybeLimit>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MetricsSection {
    listen: MetricsListen,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerSection {
    host: HostName,
    api: PeerAddresses,
}

impl Default for File {
    fn default() -> Self {
        Self {
            host: None,
            definitions: AbsolutePath::of("/etc/drover/vms"),
            state: AbsolutePath::of("/var/lib/drover"),
            runtime: AbsolutePath::of("/run/drover"),
            suspended: None,
            memory_headroom: Bytes(512 << 20),
            labels: BTreeMap::new(),
            api: ApiSection::default(),
            migration: MigrationSection::default(),
            networks: Selection::default(),
            qemu: QemuSection::default(),
            libvirt: LibvirtSection::default(),
            checkpoints: CheckpointsSection::default(),
            limits: LimitsSection::default(),
            policy: ClusterPolicy::default(),
            store: StoreSection::default(),
            metrics: MetricsSection::default(),
            peers: Vec::new(),
        }
    }
}

impl Default for ApiSection {
    fn default() -> Self {
        Self {
            socket: None,
            listen: vec![ListenAddress::everywhere()],
        }
    }
}

impl Default for QemuSection {
    fn default() -> Self {
        Self {
            binaries: vec![AbsolutePath::of(drover_api::DEFAULT_QEMU)],
        }
    }
}

impl From<LimitsSection> for LimitsConfig {
    fn from(section: LimitsSection) -> Self {
        let nics = section.nics.into_iter();
        Self {
            host: section.host.0,
            nics: nics
                .filter_map(|(nic, limit)| Some((nic, limit.0?)))
                .collect(),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file, the key at fault with its line, and what to do.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut bytes = Vec::new();
        let most = limits::FILE_BYTES;
        // One byte more tells a file that is longer from one that is just as long.
        let read =
            std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
        read.map_err(|error| ConfigError::read(path, &error))?;
        if bytes.len() as u64 > most {
            let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
            return Err(ConfigError::too_long(path, length, most));
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| ConfigError::read(path, &ErrorKind::InvalidData.into()))?;
        Self::parse(&text, path)
    }

    /// Checks a file's text; `path` is for messages.
    ///
    /// # Errors
    /// As for [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let file: File =
            toml::from_str(text).map_err(|source| ConfigError::parse(path, text, &source))?;
        let key = |key, problem: String| ConfigError::key(path, key, problem);
        let host = match file.host {
            Some(host) => host,
            None => system_host_name().map_err(|problem| key("host", problem))?,
        };
        let peers = peers(file.peers, &host).map_err(|problem| key("peers", problem))?;
        let runtime = file.runtime.0;
        let suspended = file.suspended.map(|suspended| suspended.0);
        let bytes = Relays::of(&runtime).socket_bytes();
        if bytes > limits::SOCKET_PATH_BYTES {
            let (own, most) = (runtime.as_os_str().len(), limits::SOCKET_PATH_BYTES);
            let longest = own.saturating_sub(bytes - most);
            let problem = format!(
                "a path of {own} bytes; with more than {longest} the sockets below it are longer than a \
                 socket's path may be ({most})"
            );
            return Err(key("runtime", problem));
        }
        let socket = file
            .api
            .socket
            .map_or_else(|| runtime.join("droverd.sock"), |s| s.0);
        let length = socket.as_os_str().len();
        if length > limits::SOCKET_PATH_BYTES {
            let longest = limits::SOCKET_PATH_BYTES;
            let problem = format!("a path of {length} bytes; a socket's has at most {longest}");
            return Err(key("api.socket", problem));
        }
        let listen: Vec<_> = file.api.listen.into_iter().map(|l| l.0).collect();
        if listen.len() > limits::LISTENERS {
            let (count, most) = (listen.len(), limits::LISTENERS);
            return Err(key(
                "api.listen",
                format!("{count} addresses, more than {most}"),
            ));
        }
        let data_port = file.migration.data_port.0;
        if let Some(same) = listen.iter().find(|address| address.port() == data_port) {
            let problem = format!("{data_port} is the port of `api.listen` ({same}) as well");
            return Err(key("migration.data_port", problem));
        }
        if file.labels.len() > drover_plan::limits::LABELS {
            let (count, most) = (file.labels.len(), drover_plan::limits::LABELS);
            return Err(key("labels", format!("{count} labels, more than {most}")));
        }
        invalid::check_policy(&file.policy)
            .map_err(|problem| key("policy", problem.to_string()))?;
        let etcd = file.store.checked();
        let etcd = etcd.map_err(|(at, problem)| key(at, problem))?;
        let CheckpointsSection {
            directory,
            size,
            expire_hours,
            memory,
        } = file.checkpoints;
        let checkpoints = CheckpointsConfig {
            directory: directory.map_or_else(|| file.state.0.join("checkpoints"), |path| path.0),
            size,
            lasts: Duration::from_hours(expire_hours.0.into()),
            memory: memory.0,
        };
        Ok(Self {
            // It is none only where there is no path.
            file: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            host,
            definitions: file.definitions.0,
            suspended: suspended.unwrap_or_else(|| file.state.0.join("suspended")),
            checkpoints,
            state: file.state.0,
            runtime,
            socket,
            listen,
            migration: MigrationConfig {
                data_port,
                lanes_per_path: (
                    file.migration.lanes_per_path.0,
                    file.migration.lanes_per_path_most.0,
                ),
                convergence: file.migration.convergence.or(Convergence::defaults()),
                channels: file.migration.channels,
                outage_limit: Duration::from_secs(file.migration.outage_limit_s.0),
                placement: file.migration.placement,
                cpu_latency_us: file.migration.cpu_latency.0,
                interrupts: file.migration.interrupts,
                protection: Protection {
                    encryption: file.migration.encryption,
                    verify: file.migration.verify,
                },
                reduction: file.migration.reduction,
                reduction_memory: file.migration.reduction_memory.0,
                shared_pages_memory: file.migration.shared_pages_memory.0,
                shared_pages_keep: Duration::from_mins(
                    file.migration.shared_pages_keep_minutes.0.into(),
                ),
                sample_dirty_rate: file.migration.sample_dirty_rate.0,
            },
            networks: file.networks,
            qemu_binaries: file.qemu.binaries.into_iter().map(|path| path.0).collect(),
            libvirt: file.libvirt.uri,
            memory_headroom: file.memory_headroom,
            limits: file.limits.into(),
            labels: file.labels,
            policy: file.policy,
            etcd,
            metrics_listen: file.metrics.listen.0,
            peers,
        })
    }

    /// The peer of that name.
    pub fn peer(&self, host: &HostName) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.host == *host)
    }
}

fn peers(sections: Vec<PeerSection>, own: &HostName) -> Result<Vec<Peer>, String> {
    if sections.len() > limits::PEERS {
        return Err(format!(
            "{} peers, more than {}",
            sections.len(),
            limits::PEERS
        ));
    }
    let mut peers: Vec<Peer> = Vec::with_capacity(sections.len());
    for section in sections {
        let (host, api) = (section.host, section.api.0);
        if host == *own {
            return Err(format!(
                "{host} is this host's own name: list only the other hosts"
            ));
        }
        if peers.iter().any(|peer| peer.host == host) {
            return Err(format!(
                "{host} is there twice: write all its addresses in one list"
            ));
        }
        peers.push(Peer { host, api });
    }
    Ok(peers)
}

fn system_host_name() -> Result<HostName, String> {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().into_owned();
    name.parse()
        .map_err(|error| format!("the system's host name cannot be used: {error}"))
}

#[cfg(test)]
mod tests;
