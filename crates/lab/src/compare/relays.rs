//! Two relays of drover between two QEMUs that the lab tells to move, without agents: these never have QEMU compress.
//!
//! ```text
//!  QEMU ── UNIX socket ── droverd relay ══ TLS, all NICs ══ droverd relay ── UNIX socket ── QEMU
//! ```
//!
//! Nothing is reduced, and all else is as agents have it when nothing is configured. What blocks here does so for
//! bounded times.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use drover_carrier::{Control, Keys, Open, Opened, Place, Request, Side, Start, TlsKeys};
use drover_relay::{Encryption, Expected, Identity, LaneListener, Sizes, Token, new_token, sizes};
use drover_types::{BitRate, MigrationId, Path, PathEnd, PathId};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::process::Child;
use tokio::task::block_in_place;
use uuid::Uuid;

use crate::agent;
use crate::host::Host;
use crate::lab::Lab;
use crate::limits;
use crate::network;
use crate::settings::LabSettings;

/// What the kernel says of every veth, by which agents choose the sizes of a session.
const VETH_RATE: BitRate = BitRate(10_000_000_000);

/// Lanes of a path at first, and the most that it gets: an agent's `migration.lanes_per_path` and
/// `lanes_per_path_most` when they are not given.
const LANES_PER_PATH: [u16; 2] = [1, 8];

/// An agent's `migration.outage_limit_s` when it is not given, and so the patience of its relays.
const OUTAGE_LIMIT: Duration = Duration::from_secs(30);

/// An agent's `migration.cpu_latency` when it is not given.
const CPU_LATENCY_US: u32 = 20;

/// Beside the multifd channels: the main channel, and as many as agents leave room for.
const OTHER_CHANNELS: u16 = 3;

/// The processes of two relays, source and destination, that carry one move.
pub(super) struct Relays {
    ends: [End; 2],
    /// Where the destination's QEMU listens.
    incoming: PathBuf,
    lab: LabSettings,
    channels: u16,
    /// Lets the lanes in, at the destination.
    _door: Option<(LaneListener, Expected)>,
}

/// The process of one relay.
struct End {
    host: Host,
    place: Place,
    control: Control,
    pid: u32,
    child: Child,
}

impl Relays {
    /// Starts both on their hosts, source and destination, for so many multifd channels.
    ///
    /// # Errors
    /// The agent's program is missing, or does not run as a relay.
    pub(super) fn start(lab: &Lab, hosts: [&Host; 2], channels: u8) -> Result<Self> {
        let [source, destination] = hosts;
        let incoming = destination.runtime().join("incoming");
        let _ = fs::remove_file(&incoming);
        Ok(Self {
            ends: block_in_place(|| Ok::<_, anyhow::Error>([end(source)?, end(destination)?]))?,
            incoming,
            lab: lab.settings().clone(),
            channels: u16::from(channels) + OTHER_CHANNELS,
            _door: None,
        })
    }

    /// Their process ids, source and destination.
    pub(super) fn pids(&self) -> [u32; 2] {
        [self.ends[0].pid, self.ends[1].pid]
    }

    /// Opens the lanes. The addresses for `migrate` of the source's QEMU, and for `migrate-incoming` of the destination's.
    ///
    /// # Errors
    /// No lane could be opened, or none is encrypted.
    pub(super) fn open(&mut self) -> Result<[String; 2]> {
        let opened = block_in_place(|| self.open_lanes())?;
        if opened.encryption == Encryption::Off {
            bail!("the relays of the lab carry without encryption");
        }
        let [source, _] = &self.ends;
        let uri = |socket: PathBuf| format!("unix:{}", socket.display());
        Ok([uri(source.place.qemu_socket()), uri(self.incoming.clone())])
    }

    fn open_lanes(&mut self) -> Result<Opened> {
        let id = MigrationId(Uuid::now_v7());
        let token = new_token().context("no token for the lanes")?;
        let [near, far] = [identity()?, identity()?];
        let paths = self.paths()?;
        let sizes = sizes(&vec![Some(VETH_RATE); paths.len()], self.channels);
        let [source, destination] = &self.ends;

        let start = self.carry(id, Side::Destination, sizes, self.incoming.clone());
        destination.ask(&Request::Start(start))?;
        destination.ask(&Request::Expect(keys(&token, &far, &near)))?;
        let addresses = paths.iter().map(|path| path.destination.address).collect();
        let door = destination.let_in(id, addresses)?;

        let socket = source.place.qemu_socket();
        source.ask(&Request::Start(self.carry(id, Side::Source, sizes, socket)))?;
        let [lanes_per_path, lanes_most] = LANES_PER_PATH;
        let opened = source.control.open(Open {
            keys: keys(&token, &near, &far),
            port: door.0.port(),
            paths,
            lanes_per_path,
            lanes_most,
        });
        self._door = Some(door);
        opened.context("the relays opened no lane")
    }

    fn carry(&self, migration: MigrationId, side: Side, sizes: Sizes, socket: PathBuf) -> Start {
        Start {
            migration,
            side,
            socket,
            control: None,
            disks: None,
            chunk_bytes: sizes.chunk_bytes,
            window: sizes.window,
            channels_max: self.channels,
            outage_limit: OUTAGE_LIMIT,
            pass_through: false,
            verify: false,
            reduction: None,
            patience: OUTAGE_LIMIT,
            nics: Vec::new(),
            cpu_latency_us: Some(CPU_LATENCY_US),
            memo: String::new(),
        }
    }

    /// Over every NIC that has an address at both ends.
    fn paths(&self) -> Result<Vec<Path>> {
        let lab = &self.lab;
        let end = |nic: usize, end: &End| {
            Some(PathEnd {
                interface: network::nic(nic),
                address: network::address_of(lab, nic, end.host.number)?,
            })
        };
        let [source, destination] = &self.ends;
        let path = |nic: usize| {
            Some(Path {
                id: PathId(u16::try_from(nic).ok()?),
                source: end(nic, source)?,
                destination: end(nic, destination)?,
                rate: Some(VETH_RATE),
                mtu: lab.mtu,
            })
        };
        let paths: Vec<_> = (0..lab.nics.len()).filter_map(path).collect();
        if paths.is_empty() {
            bail!("no NIC of the lab has an address that a relay could be told");
        }
        Ok(paths)
    }

    /// Ends both sessions and waits until the processes have ended.
    ///
    /// # Errors
    /// One does not end.
    pub(super) async fn end(mut self, finished: bool) -> Result<()> {
        for end in &self.ends {
            // One that is gone needs no word.
            let _ = end.control.post(&Request::Close { finished });
        }
        for end in &mut self.ends {
            let ended = tokio::time::timeout(limits::KILL, end.child.wait()).await;
            let name = &end.host.name;
            ended
                .with_context(|| format!("the relay of host {name} does not end"))?
                .context("cannot watch a relay")?;
        }
        Ok(())
    }
}

/// Starts a relay's process on a host, as its agent would.
fn end(host: &Host) -> Result<End> {
    let place = Place::at(host.runtime().join("relay"));
    match fs::remove_dir_all(place.directory()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("cannot remove what an earlier relay left");
        }
        _ => {}
    }
    let listener = place.make().context("no place for a relay")?;
    let arguments = ["relay".into(), place.directory().to_owned()];
    let stdin = Stdio::from(OwnedFd::from(listener));
    let child = host.start_with("droverd-relay", &agent::find()?, &arguments, stdin)?;
    let connected = Control::connect(&place.socket(), |_| {});
    let (control, greeting) =
        connected.with_context(|| format!("no relay runs on host {}", host.name))?;
    Ok(End {
        host: host.clone(),
        place,
        control,
        pid: greeting.pid,
        child,
    })
}

impl End {
    fn ask(&self, request: &Request) -> Result<()> {
        let asked = self.control.request(request, None);
        asked.with_context(|| format!("the relay of host {} refused", self.host.name))
    }

    /// Listens on this host for lanes of this migration, which its relay gets.
    fn let_in(&self, id: MigrationId, at: Vec<IpAddr>) -> Result<(LaneListener, Expected)> {
        let control = self.control.clone();
        self.within(move || {
            let listener = LaneListener::hold(0)?;
            let expected = listener.expect_elsewhere(id, move |connection, preamble, until| {
                control.hand_over(&preamble, connection, until)
            });
            match expected.offer(&at).into_iter().next() {
                Some(closed) => Err(closed.into()),
                None => Ok((listener, expected)),
            }
        })
    }

    /// Does something in the host's network namespace. A socket stays in the one in which it was made.
    fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let space = format!("/run/netns/{}", self.host.namespace());
        let space = File::open(&space).with_context(|| format!("cannot open {space}"))?;
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(space.as_fd(), network)
                    .with_context(|| format!("cannot enter host {}", self.host.name))?;
                work()
            });
            let done = thread.join();
            done.unwrap_or_else(|_| Err(anyhow!("the thread on host {} died", self.host.name)))
        })
    }
}

fn identity() -> Result<Identity> {
    Identity::generate().context("no certificate for a relay")
}

fn keys(token: &Token, own: &Identity, peer: &Identity) -> Keys {
    let (certificate, key) = own.parts();
    Keys {
        token: token.0,
        tls: Some(TlsKeys {
            certificate,
            key,
            peer: peer.fingerprint().to_string(),
        }),
    }
}
