//! Whether a domain may move, from here and to here, before anything is changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::{DomainNeed, ErrorCode, IncomingRequest, MovingDomain, Refusal, VmDefinition};
use drover_carrier::Disks;
use drover_libvirt::{CallError, Connection, Description, DomainState, Look, Xml};
use drover_migrate::Migration;
use drover_types::{HostName, MigrationId, VmName, in_short, with_sources};
use uuid::Uuid;

use super::arrival::{self, Arrival};
use super::beside;
use super::call::{Call, Stands};
use super::conditions::{self, of_domain};
use super::confined;
use super::disks;
use super::fit;
use super::held::{HeldDomain, Now, Side};
use super::leaving::Terms;
use super::line::Line;
use super::needs;
use super::offers::{self, Fresh};
use super::other::OtherHost;
use super::owed::{self, Given};
use super::places;
use super::processor;
use super::record::{DomainRecord, kept_definition};
use super::turns::{Taken, Turn, Way};
use super::versions;
use crate::agent::Context;
use crate::disks::Leaves;
use crate::libvirt::keep::no_systems;
use crate::libvirt::orders;
use crate::libvirt::preflight::Preflight;
use crate::libvirt::virsh::Place;
use crate::migration::relays::Relays;
use crate::registry::Reservation;

/// A domain that is to leave, in its turn.
#[derive(Debug)]
pub struct ToLeave<'a> {
    context: &'a Arc<Context>,
    migration: &'a Migration,
    no_such: Refusal,
    uuid: Uuid,
    line: Line,
    turn: Turn,
    connection: Connection,
}

/// Takes the turn of a domain that is to leave, by its name or id.
///
/// # Errors
/// libvirt has no such domain, or is not reached, or it moves already, or another host has a guest of that name: `no_such` then, as
/// whoever is asked for it next knows where that is.
pub async fn to_leave<'a>(
    context: &'a Arc<Context>,
    migration: &'a Migration,
    no_such: Refusal,
) -> Result<ToLeave<'a>, Refusal> {
    context.libvirt.looked_at().await;
    let seen = context.libvirt.seen();
    let Some(uuid) = orders::find(&seen, &migration.vm).map(|found| found.uuid) else {
        return Err(no_such);
    };
    let called = context.libvirt.called(&migration.vm);
    let guest = called.as_ref().unwrap_or(&migration.vm);
    let id: Option<VmName> = uuid.to_string().parse().ok();
    let (named, same) = tokio::join!(
        context.peers.ask_for(guest),
        context.peers.ask_for(id.as_ref().unwrap_or(guest))
    );
    if named.anywhere().is_some() {
        return Err(no_such);
    }
    let line = line(context)?;
    if let Some(there) = same.domains.first() {
        let place = place(context, &line);
        return Err(conditions::in_memory_there(place, &migration.vm, there));
    }
    let turn = turn(context, uuid, migration)?;
    let connection = reached(context, line.connect().await)?;
    Ok(ToLeave {
        context,
        migration,
        no_such,
        uuid,
        line,
        turn,
        connection,
    })
}

impl ToLeave<'_> {
    /// Its id.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Has what an earlier migration changed of it be as before: what is found of it is what it is to be afterwards.
    ///
    /// # Errors
    /// libvirt does not do that.
    pub async fn settle(&self, record: &DomainRecord) -> Result<Given, Refusal> {
        let given = owed::give_back(&self.connection, self.uuid, record).await;
        given.map_err(|error| {
            let why = with_sources(&error);
            let why = format!(
                "what an earlier migration changed of it is not as it was before yet: {why}"
            );
            let (host, vm) = (&self.context.config.host, self.migration.vm.as_str());
            let refusal = of_domain(host, ErrorCode::LibvirtNotKnown, vm, &why);
            refusal.next("see that libvirtd answers, and try again")
        })
    }

    /// The right to move it; and what is to be told of how it stands.
    ///
    /// # Errors
    /// It cannot be moved now.
    pub async fn held(self, with_disks: bool) -> Result<(HeldDomain, Vec<String>), Refusal> {
        let Self {
            context,
            migration,
            uuid,
            line,
            connection,
            ..
        } = self;
        let place = place(context, &line);
        let look = connection.look(uuid).await.map_err(|error| {
            let (code, why) = (ErrorCode::LibvirtNotKnown, with_sources(&error));
            of_domain(place.host, code, migration.vm.as_str(), &why)
        })?;
        let look = look.ok_or(self.no_such)?;
        let stands = conditions::by_state(place, &look)?;
        let described = described(place.host, &connection, &look).await?;
        let variables = conditions::of_variables(place.host, &look, &described);
        let bonds = fit::bonds(context, uuid, &described).await;
        let bonds = match with_disks {
            true => bonds.with_copies(uuid).await,
            false => bonds.without_copies(),
        };
        let mut obstacles = bonds.obstacles;
        obstacles.extend(kept(place, &connection, &look).await?);
        conditions::by_obstacles(place.host, &look.domain.name, &obstacles)?;
        let files = bonds.files;
        let there = &migration.destination;
        versions::knows_all(context, there, &look.domain.name, &files).await?;
        let passed = processor::look(context, there, &look.domain.name, &described).await?;
        let (needs, beyond) = needs::told(files, &Preflight::of(&described).needs);
        // What must be known is asked of the other host whatever this one says, and room for its own disks this one need not have.
        let (mut needs, asked): (Vec<_>, Vec<_>) =
            needs.into_iter().partition(DomainNeed::must_be_known);
        let here = offers::offers(context, Some(&connection), &asked, Fresh::Now).await;
        needs.extend(offers::believed(asked, &here));
        confined::look(context, &look.domain.name, &described.confined_by)?;
        places::make_folder().map_err(|error| no_folder(&error))?;
        let domain = MovingDomain {
            uuid: uuid.to_string(),
            name: look.domain.name.clone(),
            persistent: look.domain.persistent,
            autostart: look.domain.autostart,
            paused: look.domain.state == DomainState::Paused,
            needs,
            files_told: true,
        };
        let domain = DomainRecord {
            downtime_limit_ms: downtime_limit(&connection, uuid).await,
            ..DomainRecord::from(domain)
        };
        let side = Side::Leaves {
            definition: Some(Box::new(definition(&migration.vm, &look, described))),
            terms: Arc::new(terms(context, migration, uuid, &domain)),
            call: Call::new(Stands::NotBegun),
        };
        let held = held(
            context,
            migration,
            (uuid, domain),
            side,
            (line, Some(self.turn)),
        );
        held.reach_at_first(connection);
        let notes = [stands, variables, beyond, passed];
        Ok((held, notes.into_iter().flatten().collect()))
    }
}

/// Takes the right to take a domain in.
///
/// # Errors
/// There is such a domain here, or libvirt is not reached or has no socket, or its source is too old to tell which files it writes to.
pub async fn arrive(
    context: &Arc<Context>,
    migration: &Migration,
    request: &IncomingRequest,
    domain: &MovingDomain,
    reserved: Reservation,
) -> Result<HeldDomain, Refusal> {
    let Ok(uuid) = domain.uuid.parse::<Uuid>() else {
        let message = format!("{:?} is no id of a domain", in_short(&domain.uuid));
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    };
    versions::files_told(&context.config.host, &migration.source, domain)?;
    let turn = turn(context, uuid, migration)?;
    let line = line(context)?;
    let control = context.libvirt.socket().ok_or_else(|| {
        let message = format!(
            "the libvirt of {} is at {}, which names no socket that domains could come by",
            context.config.host,
            line.uri()
        );
        Refusal::new(ErrorCode::LibvirtNotKnown, message)
            .next("set `libvirt.uri` there to \"auto\", or to a URI with `?socket=`")
    })?;
    let connection = reached(context, line.connect().await)?;
    conditions::not_here(place(context, &line), &connection, uuid, &domain.name).await?;
    let models = confined::models(context, &connection).await?;
    confined::look_here(context, &domain.name, &models)?;
    offers::has_all(context, &connection, &domain.name, &domain.needs).await?;
    places::make_folder().map_err(|error| no_folder(&error))?;
    let side = Side::Arrives {
        control: Some(control),
        arrival: Arc::new(Arrival::new(&context.config.runtime, migration.id)),
        _name: Some(reserved),
    };
    let moving = domain.clone();
    tracing::info!(id = %request.id, domain = moving.name, "a domain is to arrive");
    let domain = DomainRecord::from(moving);
    Ok(held(
        context,
        migration,
        (uuid, domain),
        side,
        (line, Some(turn)),
    ))
}

/// Takes the right again that an agent before had, when it ended in the middle of a migration. libvirt is looked for later. Of two for
/// one domain the second has no turn; that is taken later, and shown for as long as it cannot be had.
///
/// # Errors
/// What was written down of it has no id.
pub fn taken_up(
    context: &Arc<Context>,
    migration: &Migration,
    domain: DomainRecord,
    leaves: bool,
    reserved: Option<Reservation>,
) -> Result<HeldDomain, Refusal> {
    let id = &domain.moving.uuid;
    let uuid = id.parse::<Uuid>().map_err(|error| {
        let message = format!("{:?} is no id of a domain: {error}", in_short(id));
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let line = Line::new(context.libvirt.whereabouts());
    let side = match leaves {
        true => Side::Leaves {
            definition: None,
            terms: Arc::new(terms(context, migration, uuid, &domain)),
            call: Call::of_before(),
        },
        false => Side::Arrives {
            control: context.libvirt.socket(),
            arrival: Arc::new(Arrival::of_before(&context.config.runtime, migration.id)),
            _name: reserved,
        },
    };
    let turns = context.libvirt.turns();
    let turn = turns.move_it(uuid, migration.id, way(migration)).ok();
    Ok(held(context, migration, (uuid, domain), side, (line, turn)))
}

/// Removes what an agent before noted of domains that come by other migrations than these.
pub fn forget_arrivals(context: &Context, kept: &BTreeSet<MigrationId>) {
    arrival::forget_all_but(&context.config.runtime, kept);
}

fn held(
    context: &Arc<Context>,
    migration: &Migration,
    (uuid, domain): (Uuid, DomainRecord),
    side: Side,
    (line, turn): (Line, Option<Turn>),
) -> HeldDomain {
    let other = match side {
        Side::Leaves { .. } => &migration.destination,
        Side::Arrives { .. } => &migration.source,
    };
    HeldDomain {
        context: Arc::clone(context),
        vm: migration.vm.clone(),
        other: other.clone(),
        uuid,
        line: Arc::new(line),
        memory: places::memory_socket(migration.id, &domain.moving.name),
        disks: disks_of(migration.id, &domain),
        domain,
        side,
        held: std::sync::Mutex::new(Now::with(turn)),
        leaves: Leaves::default(),
        migration: migration.id,
    }
}

fn disks_of(migration: MigrationId, domain: &DomainRecord) -> Option<Disks> {
    let count = u16::try_from(disks::of(&domain.moving).len()).unwrap_or(u16::MAX);
    let socket = places::disks_socket(migration, &domain.moving.name);
    (count > 0).then_some(Disks { socket, count })
}

fn way(migration: &Migration) -> Way {
    Way {
        source: migration.source.clone(),
        destination: migration.destination.clone(),
    }
}

fn turn(context: &Context, uuid: Uuid, migration: &Migration) -> Result<Turn, Refusal> {
    let turns = context.libvirt.turns();
    let turn = turns.move_it(uuid, migration.id, way(migration));
    turn.map_err(|taken| {
        let vm = &migration.vm;
        taken_for(vm, taken)
    })
}

/// The refusal of a domain whose turn is taken.
pub(super) fn taken_for(vm: &VmName, taken: Taken) -> Refusal {
    let message = format!("domain {vm} {taken}");
    match taken {
        Taken::Moves(_) => Refusal::new(ErrorCode::MigrationUnderWay, message)
            .next(format!("wait for its end, or end it with `drover cancel {vm}`")),
        Taken::Settles(_) => {
            Refusal::new(ErrorCode::MigrationUnderWay, message).next("try again in a moment")
        }
        // It passes, and whoever carries a run out asks again.
        Taken::MovesDisk(_) => Refusal::new(ErrorCode::VmBusy, message).next(
            "wait for its end, which `drover storage status` shows, or end it with `drover storage cancel`",
        ),
    }
}

pub(super) fn line(context: &Context) -> Result<Line, Refusal> {
    let at = context.libvirt.whereabouts();
    if let Some(why) = at.as_ref().and_then(|at| no_systems(&at.uri)) {
        let message = format!("{}: {why}", context.config.host);
        return Err(Refusal::new(ErrorCode::OfLibvirt, message)
            .next("set `libvirt.uri` in droverd.toml to \"auto\", and restart droverd"));
    }
    let line = at.map(|at| Line::new(Some(at)));
    line.ok_or_else(|| {
        let message = format!("{} looks at no libvirt", context.config.host);
        Refusal::new(ErrorCode::LibvirtNotKnown, message)
            .next("set `libvirt.uri` in droverd.toml to \"auto\", and restart droverd")
    })
}

pub(super) fn reached(
    context: &Context,
    connected: Result<Connection, String>,
) -> Result<Connection, Refusal> {
    connected.map_err(|why| {
        let message = format!("libvirt is not reached on {}: {why}", context.config.host);
        Refusal::new(ErrorCode::LibvirtNotKnown, message)
            .next("see that libvirtd answers, as `drover status` tells")
    })
}

fn no_folder(error: &std::io::Error) -> Refusal {
    let message = format!("no socket for a domain's memory can be made: {error}");
    Refusal::new(ErrorCode::Internal, message).next("look at /run/libvirt on this host")
}

/// Where commands of libvirt's own are typed.
pub(super) fn place<'a>(context: &'a Context, line: &'a Line) -> Place<'a> {
    Place {
        host: &context.config.host,
        uri: Some(line.uri()),
    }
}

pub(super) async fn described(
    host: &HostName,
    connection: &Connection,
    look: &Look,
) -> Result<Description, Refusal> {
    let called = &look.domain.name;
    let unknown = |why: String| of_domain(host, ErrorCode::OfLibvirt, called, &why);
    let xml = connection.xml(look.domain.uuid, Xml::Current).await;
    let xml = xml.map_err(|error| unknown(with_sources(&error)))?;
    Description::read(&xml).map_err(|error| unknown(error.to_string()))
}

/// What keeps a domain by what libvirt has of it beside its definition, as long as nobody changes that.
///
/// # Errors
/// libvirt is at it for a while, or does not tell.
async fn kept(
    place: Place<'_>,
    connection: &Connection,
    look: &Look,
) -> Result<Vec<String>, Refusal> {
    let (called, uuid) = (&look.domain.name, look.domain.uuid);
    let busy = |why: String| of_domain(place.host, ErrorCode::VmBusy, called, &why);
    let unknown = |error: CallError| {
        let why = with_sources(&error);
        let why = format!("whether libvirt does something with it is not known: {why}");
        busy(why).next(format!(
            "{} tells what it does",
            place.command("domjobinfo {}", called)
        ))
    };
    let beside = connection.beside(uuid).await.map_err(unknown)?;
    let kept = beside::keeping(place, called, &beside);
    if beside.snapshots > 0 || beside.checkpoints > 0 {
        return Ok(kept);
    }
    let under_way = match kept.into_iter().next() {
        Some(backup) => Some(backup),
        None => {
            let job = connection.job(uuid).await.map_err(unknown)?;
            job.map(|job| beside::busy(place, called, &job))
        }
    };
    under_way.map_or(Ok(Vec::new()), |why| Err(busy(why)))
}

/// How long it may stand still at the end of a migration by now; none where libvirt does not tell: then it is left as it is.
async fn downtime_limit(connection: &Connection, domain: Uuid) -> Option<u64> {
    let limit = connection.max_downtime(domain).await;
    let limit = limit.inspect_err(|error| {
        let why = with_sources(error);
        tracing::warn!(%domain, why, "its downtime limit is not changed before it moves");
    });
    u64::try_from(limit.ok()?.as_millis()).ok()
}

fn terms(context: &Context, migration: &Migration, uuid: Uuid, domain: &DomainRecord) -> Terms {
    let (id, host) = (migration.id, migration.destination.clone());
    let control = Relays::of(&context.config.runtime).sockets(id).control;
    let known_at = context.peers.addresses(&host);
    Terms {
        uuid,
        domain: domain.clone(),
        control: control.unwrap_or_default(),
        kept: kept_definition(&context.config.state, id),
        disks: disks_of(id, domain).map(|disks| disks.socket),
        peers: context.peers.clone(),
        other: OtherHost {
            client: context.peers.client_or_at(&host, known_at),
            host,
            migration: id,
        },
    }
}

/// What the destination's agent shows of it.
fn definition(vm: &VmName, look: &Look, described: Description) -> VmDefinition {
    VmDefinition {
        name: vm.clone(),
        memory: look.domain.memory,
        vcpus: look.domain.vcpus.into(),
        qemu: described
            .emulator
            .unwrap_or_else(|| drover_api::DEFAULT_QEMU.into()),
        machine: described.machine,
        args: Vec::new(),
        convergence: drover_types::Convergence::default(),
        checkpoint: false,
        policy: drover_plan::policy::VmPolicy::default(),
    }
}
