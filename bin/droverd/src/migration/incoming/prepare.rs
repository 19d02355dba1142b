//! Making ready for a guest: the relay, its token, QEMU.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{ErrorCode, IncomingOffer, LaneSecurity, ReductionTerms, Refusal, SessionSizes};
use drover_carrier::{Keys, Side};
use drover_relay::{Cause, Expected, LaneListener, TurnedAway};
use drover_types::{Bytes, MigrationId, NicPlacement, ReductionMode, VmName, with_sources};
use tokio::sync::mpsc;

use super::Message;
use crate::agent::Context;
use crate::checkpoints::{Checkpoints, Growing, Returning};
use crate::migration::carrier::{self, Carried, Carrier, Order};
use crate::migration::held::Sockets;
use crate::migration::kept;
use crate::migration::reduction;
use crate::migration::relays::{RelayProcess, Relays};
use crate::migration::security::{self, Own};
use crate::shared_pages::{Lease, SharedPages};

/// A relay that waits for its lanes.
pub struct Session {
    /// It.
    pub carrier: Carrier,
    /// While this lives, its shared pages are not taken from it.
    pub lease: Lease,
    /// Its checkpoint here, where it comes back.
    pub returning: Option<Returning>,
    /// Its baseline, for what changes until it goes back.
    pub recording: Option<Growing>,
    /// While this lives, lanes with the token are let in.
    pub expected: Expected,
    /// What the source is told; what is not known yet is filled in later.
    pub offer: IncomingOffer,
}

/// What another host wants of a session.
#[derive(Debug)]
pub struct Wanted {
    /// Of which migration.
    pub migration: MigrationId,
    /// Its sizes.
    pub session: SessionSizes,
    /// What is to protect its lanes.
    pub lanes: LaneSecurity,
    /// How its bytes are to be reduced.
    pub reduction: Option<ReductionTerms>,
    /// How long both ends wait for a path when they have none left.
    pub outage_limit_s: u64,
    /// The guest's memory, where the source keeps its pages for its return.
    pub keeps: Option<Bytes>,
    /// Whether its pages may be kept at all, as its definition says.
    pub may_be_kept: bool,
    /// Whether it is a domain, of which no checkpoint is kept.
    pub is_domain: bool,
}

/// What another host wants, and what this one has for it.
#[derive(Debug)]
pub struct Asked {
    /// The guest.
    pub vm: VmName,
    /// It.
    pub wanted: Wanted,
    /// What protects it here.
    pub own: Own,
    /// The addresses that are offered, and where the threads of lanes to them run.
    pub nics: Vec<NicPlacement>,
}

/// Makes the relay for a request, which reports there by this number.
///
/// # Errors
/// The sizes or the certificate that the source sent cannot be used.
pub fn session(
    asked: &Asked,
    sockets: Sockets,
    lanes: &LaneListener,
    context: &Context,
    (inbox, number): (mpsc::Sender<Message>, u32),
) -> Result<Session, Refusal> {
    let Asked {
        vm,
        wanted,
        own,
        nics,
    } = asked;
    let report = reporter(inbox, number);
    let (token, told) = security::token()?;
    let (tls, decided) = own.decide(&wanted.lanes)?;
    let reduction = wanted.reduction.map(|terms| match tls {
        Some(_) => terms,
        // Whoever reads the network would learn of pages that came encrypted.
        None => ReductionTerms {
            stored_pages: 0,
            stored_changes: false,
            ..terms
        },
    });
    let order = Order {
        migration: wanted.migration,
        side: Side::Destination,
        sizes: wanted.session,
        outage_limit: Duration::from_secs(wanted.outage_limit_s),
        sockets,
        pass_through: tls.is_none(),
        verify: decided.verify,
        reduction: reduction::for_relay(reduction, ReductionMode::Off),
        nics: nics.clone(),
        cpu_latency_us: context.config.migration.cpu_latency_us,
        memo: String::new(),
    };
    let keys_encrypt = tls.is_some();
    let keys = Keys {
        token: token.0,
        tls,
    };
    // It is short, and nothing else of this request can be done meanwhile.
    let relay = tokio::task::block_in_place(|| {
        let hear = move |news| carrier::tell(news, &report);
        let relays = Relays::of(&context.config.runtime);
        let relay = relays.start(order.into(), hear)?;
        relay.expect(keys).inspect_err(|_| relay.close(false))?;
        Ok(relay)
    });
    let relay: Result<RelayProcess, String> = relay;
    let relay = relay.map_err(|error| Refusal::new(ErrorCode::Internal, error))?;
    let mut notes = Vec::new();
    let stored = reduction.filter(|terms| terms.stored_pages > 0);
    // Before what is shared: the source has room for so many.
    let returning = match wanted.is_domain {
        true => Ok(None),
        false => tokio::task::block_in_place(|| {
            take_checkpoint(&relay, &context.checkpoints, vm, stored.is_some())
        }),
    };
    let returning = returning.unwrap_or_else(|why| {
        let here = &context.config.host;
        notes.push(format!("the checkpoint of it on {here} is not used: {why}"));
        None
    });
    let terms = reduction.filter(|_| keys_encrypt);
    // Files are made and removed.
    let recording = tokio::task::block_in_place(|| {
        record(&relay, &context.checkpoints, (vm, wanted.keeps), terms)
    });
    let recording = recording.unwrap_or_else(|why| {
        notes.push(format!(
            "what changes of it on {} will go back as whole pages: {why}",
            context.config.host
        ));
        None
    });
    let recording = recording.map(|(recording, less)| {
        notes.extend(less);
        recording
    });
    let shared = &context.shared_pages;
    let lease = stored.map(|terms| {
        tokio::task::block_in_place(|| share(&relay, shared, terms.page_bytes, wanted.may_be_kept))
    });
    let lease = lease.unwrap_or(Ok(Lease::default()));
    let lease = lease.unwrap_or_else(|why| {
        notes.push(format!(
            "pages that other guests brought cross again: {why}"
        ));
        Lease::default()
    });
    let carrier = Carrier::new(relay, Vec::new());
    let expected = expect(lanes, wanted.migration, &carrier.relay);
    let closed = offer(&expected, nics);
    let addresses: usize = nics.iter().map(|nic| nic.addresses.len()).sum();
    if addresses > 0 && closed.len() == addresses {
        carrier.close(false);
        // It lets go of a file, and nobody waits for its disk.
        context.checkpoints.defer(|| drop(recording));
        let message = format!("no lane could arrive here: {}", closed.join("; "));
        let next = "`ss -tlnp` tells what else listens on `migration.data_port`";
        return Err(Refusal::new(ErrorCode::Internal, message).next(next));
    }
    let data_port = lanes.port();
    let offer = IncomingOffer {
        id: wanted.migration,
        protocol: 0,
        interfaces: Vec::new(),
        session: wanted.session,
        token: told,
        lanes: decided,
        reduction,
        data_port,
        outage_limit_s: wanted.outage_limit_s,
        cpus: 0,
        qemu_version: String::new(),
        notes: [closed, notes].concat(),
    };
    Ok(Session {
        carrier,
        lease,
        returning,
        recording,
        expected,
        offer,
    })
}

/// Gives the relay the guest's own pages of before. Blocks as long as the disk takes.
fn take_checkpoint(
    relay: &RelayProcess,
    checkpoints: &Checkpoints,
    vm: &VmName,
    agreed: bool,
) -> Result<Option<Returning>, String> {
    if !checkpoints.has(vm) {
        return Ok(None);
    }
    if !agreed {
        return Err("that takes lanes that are encrypted, and bytes that are reduced".to_owned());
    }
    let taken = checkpoints.take(vm);
    let Some((returning, file, stored)) = taken.map_err(|error| with_sources(&error))? else {
        return Ok(None);
    };
    if let Err(why) = relay.add_stored(&file, stored) {
        // Not the last to close it, which waits for its room.
        drop(file);
        // Nor could the next one, or it is what its relay died of.
        checkpoints.defer(|| returning.remove());
        return Err(why);
    }
    Ok(Some(returning))
}

/// Has the relay record the guest as it arrives, where the source keeps its pages: when it goes back, what changed of them
/// is enough.
fn record(
    relay: &RelayProcess,
    checkpoints: &Checkpoints,
    (vm, keeps): (&VmName, Option<Bytes>),
    terms: Option<ReductionTerms>,
) -> Result<Option<(Growing, Option<String>)>, String> {
    let Some((memory, terms)) = keeps.zip(terms).filter(|_| checkpoints.is_on()) else {
        return Ok(None);
    };
    let begun = checkpoints.begin_baseline(vm, memory, terms.page_bytes);
    let (mut growing, file, mut baseline) = begun.map_err(|error| with_sources(&error))?;
    let less;
    (baseline.waiting_bytes, less) = kept::room(&mut growing, memory);
    relay.add_baseline(&file, baseline)?;
    Ok(Some((growing, less)))
}

/// Gives the relay the pages that guests share here, to which it adds those of a guest whose pages may be kept.
fn share(
    relay: &RelayProcess,
    shared: &SharedPages,
    page_bytes: u32,
    may_be_kept: bool,
) -> Result<Lease, String> {
    let leased = shared.lease(page_bytes, may_be_kept);
    let (lease, given) = leased.map_err(|error| with_sources(&error))?;
    if let Some((file, stored)) = given {
        // Answered at once, as it is the process that was just started.
        relay.add_stored(&file, stored)?;
    }
    Ok(lease)
}

/// Hands what the relay's process of this session tells to its migration's task.
pub fn reporter(inbox: mpsc::Sender<Message>, session: u32) -> impl Fn(Carried) + Send + 'static {
    move |carried| {
        // Its thread may wait for the task; nobody waits for it.
        let _ = inbox.blocking_send(Message::Carried(session, carried));
    }
}

/// Hands a migration's lanes over to its relay's process from now on.
pub fn expect(lanes: &LaneListener, id: MigrationId, relay: &Arc<RelayProcess>) -> Expected {
    let relay = Arc::downgrade(relay);
    lanes.expect_elsewhere(id, move |connection, preamble, until| {
        let relay = relay.upgrade();
        let gone = || TurnedAway::new(Cause::Unexpected, "its relay is gone");
        let relay = relay.ok_or_else(gone)?;
        relay.hand_over(&preamble, connection, until)
    })
}

/// Lets lanes in at these addresses, too; says where that is not possible, once for each.
pub fn offer(expected: &Expected, nics: &[NicPlacement]) -> Vec<String> {
    let addresses: Vec<IpAddr> = nics.iter().flat_map(|nic| nic.addresses.clone()).collect();
    let failed = expected.offer(&addresses);
    failed.iter().map(|error| with_sources(error)).collect()
}
