//! Agreeing with the destination, and opening lanes to it.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    API_VERSION, ClientError, ErrorCode, EventKind, IncomingOffer, IncomingRequest, IncomingStart,
    LeftOut, ProtocolRange, Refusal, SessionSizes,
};
use drover_carrier::{Failure, Keys, Open, Side as RelaySide, TlsKeys};
use drover_hypervisor::qmp::Version;
use drover_migrate::limits::CHANNELS;
use drover_migrate::paths::{self, Pairing, Selected, Selection, Side};
use drover_migrate::source::Input;
use drover_migrate::{ChannelLimit, Migration, Question, Reason, channels};
use drover_relay::limits::CONNECT_TIMEOUT;
use drover_types::{BitRate, Bytes, HostName, Interface, MigrationId, Path, with_sources};

use super::checkpoint::{Checkpoint, Compares};
use super::reach::{leads_there, probe};
use super::{Agreed, Found, Link, Message, NotAgreed};
use crate::facts;
use crate::migration::carrier::{self, Carried, Carrier, Order};
use crate::migration::held::{Held, Sockets};
use crate::migration::relays::{NoSession, Relays};
use crate::migration::security::{Own, parse_token, protection};
use crate::migration::{common_protocol, placing, reduction};
use crate::peers;

/// Asks the destination, and finds out which of its interfaces ours reach.
pub async fn prepare(link: Link, migration: Migration, reservation: Option<Arc<dyn Held>>) {
    let asked = match reservation {
        Some(reservation) => ask(&link, &migration, &*reservation).await,
        None => Err(Refusal::new(ErrorCode::VmNotRunning, "the guest does not run").into()),
    };
    match asked {
        Ok(agreed) => link.tell(Message::Agreed(Box::new(agreed))).await,
        Err(not_agreed) => link.tell(Message::NotAgreed(not_agreed)).await,
    }
}

async fn ask(
    link: &Link,
    migration: &Migration,
    reservation: &dyn Held,
) -> Result<Agreed, NotAgreed> {
    let config = &link.context.config;
    let destination = &migration.destination;
    let peer = link
        .client
        .host()
        .await
        .map_err(|error| look(destination, &error))?;
    common_protocol(&config.host, destination, peer.protocol)?;
    let is_domain = reservation.domain().is_some();
    if is_domain && !peer.takes_domains {
        return Err(no_libvirt(destination).into());
    }
    let disks = reservation.travelling_disks();
    if !disks.is_empty() && !peer.takes_disks {
        return Err(no_disks(destination).into());
    }
    let networks = Networks::of_this_host(link).await?;
    let cpus = facts::usable_cpus().map_err(|error| unreadable(&error))?;
    let lanes = Own::new(protection(config.migration.protection, is_domain))?;
    let session = sizes(link, &networks, cpus);
    let memory = config.migration.reduction_memory;
    let reduction = reduction::wanted(link.options.reduction, memory, session, is_domain);
    let request = IncomingRequest {
        id: migration.id,
        source: migration.source.clone(),
        definition: reservation.travelling_definition().await?,
        domain: reservation.domain().map(|domain| domain.moving.clone()),
        disks,
        protocol: facts::protocol(),
        session,
        lanes: lanes.told(),
        reduction,
        keeps: reservation
            .may_be_kept()
            .filter(|_| link.context.checkpoints.is_on()),
        interfaces: networks.own.clone(),
        cpus,
        channels: link.options.channels,
        downtime_limit_ms: super::millis(link.options.convergence.downtime_limit()),
        outage_limit_s: config.migration.outage_limit.as_secs(),
    };
    let offer = link.client.incoming(&request).await;
    let offer = offer.map_err(|error| NotAgreed {
        refusal: peers::unreachable(destination, &error),
        sent: may_have_begun(&error),
    })?;
    let offered = ProtocolRange {
        min: offer.protocol,
        max: offer.protocol,
    };
    let refused = |refusal| NotAgreed {
        refusal,
        sent: true,
    };
    common_protocol(&config.host, destination, offered).map_err(refused)?;
    let keys = lanes.accept(destination, &offer.lanes).map_err(refused)?;
    reduction::check(destination, reduction.as_ref(), offer.reduction.as_ref()).map_err(refused)?;
    Ok(agree(link, &networks, cpus, (offer, keys)).await)
}

/// What is told of a destination that would not know what to do with a domain.
fn no_libvirt(destination: &HostName) -> Refusal {
    let message = format!(
        "{destination} takes no domains: its agent does not reach a libvirt, or is of a version that moves none"
    );
    Refusal::new(ErrorCode::LibvirtNotKnown, message).next(format!(
        "`drover status` on {destination} tells of its libvirt"
    ))
}

/// What is told of a destination that would not know what to do with disks.
fn no_disks(destination: &HostName) -> Refusal {
    let message =
        format!("the agent of {destination} is of a version that copies no disks of guests");
    Refusal::new(ErrorCode::VersionMismatch, message).next(format!(
        "bring the agent of {destination} to a newer version"
    ))
}

fn unreadable(error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("cannot read the facts of this host: {error}");
    Refusal::new(ErrorCode::Internal, message)
}

/// The interfaces of this host, and those that may carry a guest.
pub struct Networks {
    own: Vec<Interface>,
    ours: Selected,
}

impl Networks {
    /// As they are now.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn of_this_host(link: &Link) -> Result<Self, Refusal> {
        let own = facts::interfaces().await;
        let own = own.map_err(|error| unreadable(&error))?;
        let ours = paths::select(Side::Source, &own, &link.context.config.networks);
        Ok(Self { own, ours })
    }

    /// How fast those are that may carry a guest.
    pub fn rates(&self) -> Vec<Option<BitRate>> {
        let endpoints = self.ours.endpoints.iter();
        endpoints.map(|endpoint| endpoint.speed).collect()
    }

    /// Pairs them with what the destination offers, by what answers a probe.
    pub async fn pair(&self, offer: &IncomingOffer) -> Pairing {
        // The destination has offered only what its own configuration allows.
        let theirs = paths::select(Side::Destination, &offer.interfaces, &Selection::default());
        let mut candidates = paths::candidates(&self.ours, &theirs);
        candidates.retain(|candidate| leads_there(&self.own, candidate));
        let answered = probe(candidates, offer.data_port, CONNECT_TIMEOUT).await;
        paths::choose(&self.ours, &theirs, &answered)
    }
}

/// What to tell when the destination does not say who it is.
fn look(destination: &HostName, error: &ClientError) -> Refusal {
    if error.is_refused_with(ErrorCode::NoSuchRoute) {
        let message =
            format!("the agent of {destination} does not serve version {API_VERSION} of the API");
        return Refusal::new(ErrorCode::VersionMismatch, message)
            .next("bring the older of the two agents to a newer version");
    }
    peers::unreachable(destination, error)
}

/// Whether the destination may be at it, although it did not agree.
fn may_have_begun(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Untrusted { .. } => false,
        // An answer that came for want of a better one.
        ClientError::Refused(refusal) => {
            matches!(refusal.code, ErrorCode::Timeout | ErrorCode::Internal)
        }
        _ => true,
    }
}

/// Sizes for all links that may be used and all channels that may be opened.
fn sizes(link: &Link, networks: &Networks, cpus: u32) -> SessionSizes {
    let by_cores = u8::try_from(cpus).unwrap_or(u8::MAX).min(CHANNELS);
    let channels = link.options.channels.unwrap_or(by_cores);
    carrier::session_sizes(&networks.rates(), channels, link.options.disks)
}

async fn agree(
    link: &Link,
    networks: &Networks,
    cpus: u32,
    (offer, keys): (IncomingOffer, Option<TlsKeys>),
) -> Agreed {
    let pairing = networks.pair(&offer).await;
    let mut fewer_channels = None;
    let count = match link.options.channels {
        _ if let Some(why) = one_channel(link, &offer) => {
            fewer_channels = Some(why);
            0
        }
        Some(count) => count,
        None => {
            let chosen = channels(&pairing.paths, cpus, offer.cpus);
            if chosen.limit == ChannelLimit::Cores {
                fewer_channels = Some("no more, for want of cores".to_owned());
            }
            chosen.count
        }
    };
    let left_out = pairing.left_out.iter().map(show_left_out).collect();
    let input = Input::DestinationReady {
        paths: pairing.paths,
        channels: count,
    };
    Agreed {
        offer,
        keys,
        left_out,
        input,
        fewer_channels,
    }
}

/// Why the guest has to move over QEMU's main channel alone.
fn one_channel(link: &Link, offer: &IncomingOffer) -> Option<String> {
    if !link.options.wants_postcopy() {
        return None;
    }
    let theirs = Version::read(&offer.qemu_version);
    let old = [link.qemu, theirs]
        .into_iter()
        .find(|version| !version.is_some_and(Version::takes_postcopy_with_multifd))?;
    let which = old.map_or_else(
        || "a QEMU of unknown version".to_owned(),
        |old| format!("QEMU {old}"),
    );
    Some(format!(
        "the guest may go on by postcopy, which {which} does not take together with more channels"
    ))
}

fn show_left_out(left: &paths::LeftOut) -> LeftOut {
    let host = match left.side {
        Side::Source => "source",
        Side::Destination => "destination",
    };
    let what = match left.address {
        Some(address) => format!("{} ({address}) of the {host}", left.interface),
        None => format!("{} of the {host}", left.interface),
    };
    LeftOut {
        what,
        reason: left.reason.to_string(),
    }
}

/// What is needed to open lanes.
pub struct Opening {
    /// Which of the migration's sessions.
    pub attempt: Question,
    /// Which migration.
    pub migration: Migration,
    /// On these paths.
    pub paths: Vec<Path>,
    /// To this port, with this token.
    pub offer: IncomingOffer,
    /// Within TLS, if with these.
    pub keys: Option<TlsKeys>,
    /// Sizes of the session.
    pub sizes: SessionSizes,
    /// The guest's memory, where its pages may be kept here.
    pub kept: Option<Bytes>,
    /// Where QEMU connects to.
    pub sockets: Sockets,
}

/// Starts the relay and opens its lanes.
pub async fn open(link: Link, opening: Opening, held: Option<Arc<dyn Held>>) {
    let checkpoint = Checkpoint::wanted(&link, &opening);
    let compares = Compares::wanted(&opening);
    let opened = open_session(&link, opening).await;
    let opened = match (opened, held) {
        (Ok(carrier), Some(held)) => match held.relay_listens().await {
            Ok(()) => Ok(carrier),
            Err(why) => {
                carrier.close(false);
                Err(why)
            }
        },
        (opened, _) => opened,
    };
    match opened {
        Ok(carrier) => {
            if let Some(compares) = compares {
                compares.begin(&link, &carrier).await;
            }
            if let Some(checkpoint) = checkpoint {
                checkpoint.begin(&link, &carrier).await;
            }
            link.tell(Message::Carries(carrier)).await;
            link.input(Input::LanesUp).await;
        }
        Err(reason) => {
            let reason = Reason::from(reason);
            link.input(Input::SessionFailed { reason }).await;
        }
    }
}

/// The same, and tells of lanes that could not be opened.
///
/// # Errors
/// No lane could be, or the relay was not started.
pub async fn open_session(link: &Link, opening: Opening) -> Result<Carrier, String> {
    let report = reporter(link, opening.attempt);
    let (fewest, most) = link.options.lanes_per_path;
    let mode = link.options.reduction;
    let own_limit = link.context.config.migration.outage_limit;
    let outage_limit = Duration::from_secs(opening.offer.outage_limit_s).min(own_limit);
    let cpu_latency_us = link.context.config.migration.cpu_latency_us;
    let relays = Relays::of(&link.context.config.runtime);
    let memo = link.options.memo(opening.offer.data_port);
    let ends: Vec<_> = opening
        .paths
        .iter()
        .map(|path| path.source.clone())
        .collect();
    let nics = placing::nics(&link.context.config, &ends).await;
    let opened = tokio::task::spawn_blocking(move || {
        let token = parse_token(&opening.offer.token)?.0;
        let order = Order {
            migration: opening.migration.id,
            side: RelaySide::Source,
            sizes: opening.sizes,
            outage_limit,
            sockets: opening.sockets,
            pass_through: opening.keys.is_none(),
            verify: opening.offer.lanes.verify,
            reduction: reduction::for_relay(opening.offer.reduction, mode),
            nics,
            cpu_latency_us,
            memo,
        };
        let relay = relays.start(order.into(), move |news| carrier::tell(news, &report))?;
        let lanes = Open {
            keys: Keys {
                token,
                tls: opening.keys,
            },
            port: opening.offer.data_port,
            paths: opening.paths.clone(),
            lanes_per_path: fewest.into(),
            lanes_most: most.into(),
        };
        let opened = relay.open(lanes).inspect_err(|_| relay.close(false))?;
        Ok((Carrier::new(relay, opening.paths), opened))
    });
    let opened = opened.await.unwrap_or_else(|error| Err(error.to_string()));
    let (carrier, opened) = opened?;
    link.tell(Message::Protected(opened.encryption)).await;
    for Failure { lane, path, reason } in opened.failures {
        let event = EventKind::LaneNotOpened { lane, path, reason };
        link.tell(Message::Event(event)).await;
    }
    Ok(carrier)
}

/// Hands what a session's relay tells to the migration's task.
fn reporter(link: &Link, attempt: Question) -> impl Fn(Carried) + Send + 'static {
    let inbox = link.inbox.clone();
    move |carried| {
        // A relay's thread may wait for the task; it holds no lock while it reports.
        let _ = inbox.blocking_send(Message::Carried(attempt, carried));
    }
}

/// Finds the relay that an earlier agent started, and what that left for this one; otherwise why it
/// does not carry any more.
pub async fn find(link: Link, migration: MigrationId) -> Result<Found, NoSession> {
    let relays = Relays::of(&link.context.config.runtime);
    let report = reporter(&link, Question::default());
    let found = tokio::task::spawn_blocking(move || {
        let hear = move |news| carrier::tell(news, &report);
        let (relay, state) = relays.find(migration, RelaySide::Source, hear)?;
        let memo = state.start.map(|start| start.memo);
        Ok(Found {
            carrier: Carrier::new(relay, state.paths),
            memo: memo.unwrap_or_default(),
            held: state.limits,
        })
    });
    let failed = |error: tokio::task::JoinError| Err(error.to_string().into());
    found.await.unwrap_or_else(failed)
}

/// Has the destination's QEMU listen.
pub async fn tell_to_listen(link: Link, migration: Migration, channels: u8, paths: Vec<Path>) {
    let postcopy = link.options.wants_postcopy();
    let request = IncomingStart {
        channels,
        paths,
        postcopy,
    };
    let input = match link.client.incoming_start(migration.id, &request).await {
        Ok(view) => {
            if view.postcopy {
                link.tell(Message::TakesPostcopy).await;
            }
            // The destination has told its limits by now; QEMU gives nothing before all of them hold.
            if !link.context.sharing.divided().await {
                let what = "beginning before its share of limits is known";
                link.fallback(what.to_owned()).await;
            }
            Input::DestinationListens
        }
        Err(error) => match error.refusal() {
            Some(refusal) => Input::DestinationRefused {
                reason: refusal.message.as_str().into(),
            },
            None => Input::DestinationUnreachable {
                sent: true,
                reason: with_sources(&error).into(),
            },
        },
    };
    link.input(input).await;
}
