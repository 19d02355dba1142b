//! Whether a domain may move, from here and to here, before anything is changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::{DomainNeed, ErrorCode, IncomingRequest, MovingDomain, Refusal, VmDefinition};
use drover_libvirt::{Connection, Description, Disk, DomainState, Look, Source, Xml};
use drover_migrate::Migration;
use drover_types::{HostName, MigrationId, VmName, in_short, with_sources};
use uuid::Uuid;

use super::arrival::{self, Arrival};
use super::call::{Call, Stands};
use super::confined;
use super::held::{HeldDomain, Now, Side};
use super::leaving::Terms;
use super::line::Line;
use super::needs;
use super::other::OtherHost;
use super::places;
use super::record::{DomainRecord, kept_definition};
use super::turns::Turn;
use crate::agent::Context;
use crate::libvirt::domains::{name, words};
use crate::libvirt::orders;
use crate::libvirt::preflight::Preflight;
use crate::migration::relays::Relays;
use crate::registry::Reservation;

/// Takes the right to move a domain from here, by its name or id.
///
/// # Errors
/// libvirt has no such domain, or none that can be moved now, or another host has a guest of that name: `no_such` then, as whoever
/// is asked for it next knows where that is.
pub async fn leave(
    context: &Arc<Context>,
    migration: &Migration,
    no_such: Refusal,
) -> Result<HeldDomain, Refusal> {
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
    if let Some(there) = same.domains.first() {
        return Err(in_memory_there(context, &migration.vm, there));
    }
    let turn = turn(context, uuid, migration)?;
    let line = line(context)?;
    let connection = reached(context, line.connect().await)?;
    let look = connection.look(uuid).await.map_err(|error| {
        let why = with_sources(&error);
        of_domain(
            context,
            ErrorCode::LibvirtNotKnown,
            migration.vm.as_str(),
            &why,
        )
    })?;
    let look = look.ok_or(no_such)?;
    can_leave(context, &look)?;
    let described = described(context, &connection, &look).await?;
    let needs = movable(context, &look.domain.name, &described)?;
    confined::look(context, &look.domain.name, &described.confined_by)?;
    places::make_folder().map_err(|error| no_folder(&error))?;
    let domain = MovingDomain {
        uuid: uuid.to_string(),
        name: look.domain.name.clone(),
        persistent: look.domain.persistent,
        autostart: look.domain.autostart,
        paused: look.domain.state == DomainState::Paused,
        needs,
    };
    let domain = DomainRecord {
        downtime_limit_ms: downtime_limit(&connection, uuid).await,
        ..DomainRecord::from(domain)
    };
    let side = Side::Leaves {
        definition: Some(Box::new(definition(&migration.vm, &look, described))),
        terms: terms(context, migration, uuid, &domain),
        call: Call::new(Stands::NotBegun),
    };
    let held = held(context, migration, (uuid, domain), side, (line, Some(turn)));
    held.reach_at_first(connection);
    Ok(held)
}

/// Takes the right to take a domain in.
///
/// # Errors
/// There is such a domain here, or libvirt is not reached or has no socket.
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
    not_there(context, &connection, uuid, &domain.name).await?;
    confined::look_here(context, &connection, &domain.name).await?;
    needs::look(&context.config.host, &name(&domain.name), &domain.needs).await?;
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

/// Takes the right again that an agent before had, when it ended in the middle of a migration. libvirt is looked for later, and so is
/// the turn: one that cannot be had is shown for as long as that is so.
///
/// # Errors
/// What was written down of it has no id.
pub fn taken_up(
    context: &Arc<Context>,
    migration: &Migration,
    domain: DomainRecord,
    leaves: bool,
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
            terms: terms(context, migration, uuid, &domain),
            call: Call::new(Stands::Unanswered(
                "the agent was started again while libvirt migrated it".to_owned(),
            )),
        },
        false => Side::Arrives {
            control: context.libvirt.socket(),
            arrival: Arc::new(Arrival::of_before(&context.config.runtime, migration.id)),
            _name: None,
        },
    };
    Ok(held(context, migration, (uuid, domain), side, (line, None)))
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
        domain,
        side,
        held: std::sync::Mutex::new(Now::with(turn)),
        migration: migration.id,
    }
}

fn turn(context: &Context, uuid: Uuid, migration: &Migration) -> Result<Turn, Refusal> {
    let taken = context.libvirt.turns().take(uuid, migration.id);
    taken.map_err(|other| {
        let vm = &migration.vm;
        let message = format!("domain {vm} is migrating already (migration {other})");
        Refusal::new(ErrorCode::MigrationUnderWay, message).next(format!(
            "wait for its end, or end it with `drover cancel {vm}`"
        ))
    })
}

fn line(context: &Context) -> Result<Line, Refusal> {
    let at = context.libvirt.whereabouts();
    let line = at.map(|at| Line::new(Some(at)));
    line.ok_or_else(|| {
        let message = format!("{} looks at no libvirt", context.config.host);
        Refusal::new(ErrorCode::LibvirtNotKnown, message)
            .next("set `libvirt.uri` in droverd.toml to \"auto\", and restart droverd")
    })
}

fn reached(
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

fn of_domain(context: &Context, code: ErrorCode, called: &str, why: &str) -> Refusal {
    let (shown, host) = (name(called), &context.config.host);
    Refusal::new(code, format!("domain {shown:?} of {host}: {why}"))
}

/// Another host has this very domain: moved from here as well, one of the two would be lost or both run.
fn in_memory_there(context: &Context, vm: &VmName, there: &HostName) -> Refusal {
    let why = format!("libvirt of {there} has the same domain in memory, by its id");
    let refusal = of_domain(context, ErrorCode::VmElsewhere, vm.as_str(), &why);
    let own = &context.config.host;
    refusal.next(format!(
        "`drover status` on both hosts tells of migrations of it; make sure which of the two is the domain, and end the other: `virsh \
         domstate --reason {vm}` on {own} and on {there} tell what each does"
    ))
}

/// A domain moves that runs, or was paused.
fn can_leave(context: &Context, look: &Look) -> Result<(), Refusal> {
    let state = look.domain.state;
    if matches!(state, DomainState::Running | DomainState::Paused) {
        return Ok(());
    }
    let why = format!(
        "it is {}, and only one that runs or is paused is moved",
        words(state)
    );
    let refusal = of_domain(context, ErrorCode::VmNotRunning, &look.domain.name, &why);
    let shown = name(&look.domain.name);
    Err(refusal.next(format!("`virsh domstate --reason {shown:?}` tells more")))
}

async fn described(
    context: &Context,
    connection: &Connection,
    look: &Look,
) -> Result<Description, Refusal> {
    let called = &look.domain.name;
    let unknown = |why: String| of_domain(context, ErrorCode::OfLibvirt, called, &why);
    let xml = connection.xml(look.domain.uuid, Xml::Current).await;
    let xml = xml.map_err(|error| unknown(with_sources(&error)))?;
    Description::read(&xml).map_err(|error| unknown(error.to_string()))
}

/// What it needs there, unless something keeps it here, such as disks that are not known to be the same there: libvirt looks at
/// those in files only.
fn movable(
    context: &Context,
    called: &str,
    description: &Description,
) -> Result<Vec<DomainNeed>, Refusal> {
    let Preflight { obstacles, needs } = Preflight::of(description);
    let obstacles = obstacles.iter().map(ToString::to_string);
    let local = description.disks.iter().filter_map(not_known_there);
    let all: Vec<String> = obstacles.chain(local).collect();
    if all.is_empty() {
        return Ok(needs::told(&needs));
    }
    let why = format!("it cannot be moved: {}", all.join("; "));
    Err(of_domain(context, ErrorCode::OfLibvirt, called, &why))
}

/// Why a disk keeps a domain from being moved, where this agent cannot tell whether the destination has the same one.
fn not_known_there(disk: &Disk) -> Option<String> {
    let what = match &disk.source {
        _ if disk.read_only => return None,
        Source::Block(path) => format!("on {}", path.display()),
        Source::Volume { pool, volume } => format!("volume {volume:?} of pool {pool:?}"),
        Source::File(_) | Source::Network(_) | Source::Nothing | Source::Other(_) => return None,
    };
    let target = &disk.target;
    Some(format!(
        "its disk {target} is {what}, of which it is not known whether it is the same on another host: only disks in files that \
         hosts share, and those over a network, are moved by the agent"
    ))
}

/// No domain of that id or name is here.
async fn not_there(
    context: &Context,
    connection: &Connection,
    uuid: Uuid,
    called: &str,
) -> Result<(), Refusal> {
    let unknown = |error: drover_libvirt::CallError| {
        let why = with_sources(&error);
        of_domain(context, ErrorCode::LibvirtNotKnown, called, &why)
    };
    let domains = connection.domains().await.map_err(unknown)?;
    let told = domains
        .told
        .iter()
        .map(|domain| (&domain.name, domain.uuid));
    let untold = domains
        .untold
        .iter()
        .map(|domain| (&domain.name, domain.uuid));
    let mut all = told.chain(untold);
    let Some((there, id)) = all.find(|(name, id)| *name == called || *id == uuid) else {
        return Ok(());
    };
    let (host, shown) = (&context.config.host, name(there));
    let likeness = match id == uuid {
        true => "that id",
        false => "that name",
    };
    let message = format!("libvirt of {host} already has a domain of {likeness}: {shown:?} ({id})");
    let refusal = Refusal::new(ErrorCode::VmExists, message);
    Err(refusal.next(format!(
        "if it is not wanted there any more, `virsh undefine {id}` on {host} removes its definition"
    )))
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

fn terms(context: &Context, migration: &Migration, uuid: Uuid, record: &DomainRecord) -> Terms {
    let domain = &record.moving;
    let (id, host) = (migration.id, migration.destination.clone());
    let control = Relays::of(&context.config.runtime).sockets(id).control;
    let known_at = context.peers.addresses(&host);
    Terms {
        uuid,
        persistent: domain.persistent,
        autostart: domain.autostart,
        paused: domain.paused,
        sets_downtime: record.downtime_limit_ms.is_some(),
        control: control.unwrap_or_default(),
        kept: kept_definition(&context.config.state, id),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(source: Source, read_only: bool) -> Disk {
        Disk {
            target: "vda".to_owned(),
            source,
            read_only,
            cache: None,
            transient: false,
            mirrored: false,
        }
    }

    #[test]
    fn a_disk_that_may_be_another_one_there_keeps_a_domain_here() {
        let why = |source, read_only| not_known_there(&disk(source, read_only));
        let block = || Source::Block("/dev/vg/web".into());
        let volume = || Source::Volume {
            pool: "images".to_owned(),
            volume: "web".to_owned(),
        };
        assert!(why(block(), false).unwrap().contains("/dev/vg/web"));
        assert!(why(volume(), false).unwrap().contains("\"images\""));
        assert_eq!(why(block(), true), None);
        for known in [
            Source::File("/shared/web.qcow2".into()),
            Source::Network("rbd".to_owned()),
            Source::Nothing,
        ] {
            assert_eq!(why(known, false), None);
        }
    }
}
