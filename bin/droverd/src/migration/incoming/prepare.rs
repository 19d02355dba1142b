//! Making ready for a guest: the relay, its token, QEMU.

use std::path::Path;
use std::time::Duration;

use drover_api::{ErrorCode, IncomingOffer, IncomingRequest, Refusal};
use drover_relay::{Expected, LaneListener};
use tokio::sync::mpsc;

use super::Message;
use crate::migration::carrier::{self, Carrier};
use crate::migration::outgoing::with_source;
use crate::migration::security::{self, Own};

/// A relay that waits for its lanes.
pub struct Session {
    /// It.
    pub carrier: Carrier,
    /// While this lives, lanes with the token are let in.
    pub expected: Expected,
    /// What the source is told; what is not known yet is filled in later.
    pub offer: IncomingOffer,
}

/// Makes the relay for a request.
///
/// # Errors
/// The sizes or the certificate that the source sent cannot be used.
pub fn session(
    request: &IncomingRequest,
    socket: &Path,
    lanes: &LaneListener,
    own: &Own,
    inbox: mpsc::Sender<Message>,
) -> Result<Session, Refusal> {
    let report = move |carried| {
        // A relay's thread may wait for the task; it holds no lock while it reports.
        let _ = inbox.blocking_send(Message::Carried(carried));
    };
    let outage_limit = Duration::from_secs(request.outage_limit_s);
    let (token, told) = security::token()?;
    let (security, decided) = own.decide(&request.lanes)?;
    let relay = carrier::destination(request.session, outage_limit, &security, socket, report);
    let relay = relay.map_err(|e| Refusal::new(ErrorCode::BadRequest, with_source(&e)))?;
    let carrier = Carrier::new(relay, Vec::new());
    let expected = lanes.expect(request.id, token, security, &carrier.relay);
    let data_port = lanes
        .port()
        .map_err(|error| internal("tell the port for lanes", &error))?;
    let offer = IncomingOffer {
        id: request.id,
        protocol: 0,
        interfaces: Vec::new(),
        session: request.session,
        token: told,
        lanes: decided,
        data_port,
        outage_limit_s: request.outage_limit_s,
        cpus: 0,
        qemu_version: String::new(),
        notes: Vec::new(),
    };
    Ok(Session {
        carrier,
        expected,
        offer,
    })
}

fn internal(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("cannot {what}: {error}"))
}
