//! Opening one lane: the source's half of what [`crate::acceptor`] answers.

use std::fmt::Display;
use std::io;
use std::time::Instant;

use drover_lanes::{Connection, Lane, Role, TlsError};
use drover_wire::{
    ANSWER_BYTES, ANSWER_HEAD_BYTES, Answer, Hello, Preamble, RefusalCode, Transcript,
    VersionRange, WELCOME_BYTES, Welcome,
};

use crate::limits::GREETING_PATIENCE;
use crate::security::{new_nonce, prove, proves};
use crate::{LanePlan, NotOpened, Order, Security};

/// Opens one lane; blocks for at most the target's patience and [`GREETING_PATIENCE`].
///
/// # Errors
/// [`NotOpened`].
pub fn open_lane(order: &Order, plan: &LanePlan) -> Result<Lane, NotOpened> {
    let connection = Connection::connect(&plan.target)
        .map_err(|e| NotOpened::Unreachable(format!("{e}: {}", e.source)))?;
    let peer = connection.peer();
    let failed = |error: io::Error| silent_or(&error, &peer);
    connection
        .set_deadline(Instant::now() + GREETING_PATIENCE)
        .map_err(failed)?;
    let preamble = Preamble {
        versions: VersionRange::SUPPORTED,
        mode: order.security.mode(),
        migration: order.migration,
        nonce: new_nonce().map_err(failed)?,
    };
    let preamble = preamble.encode();
    connection.send(&preamble).map_err(failed)?;
    let answer = receive_answer(&connection)?;
    let transcript = Transcript {
        preamble: &preamble,
        answer: &answer,
        binding: &order.security.binding(Role::Client),
        lane: plan.lane,
        path: plan.path,
    };
    let lane = protect(connection, &order.security)?;
    introduce(&lane, order, &transcript)?;
    lane.established().map_err(failed)?;
    Ok(lane)
}

/// Whether the peer only did not answer in time, or not as it should.
fn silent_or(error: &io::Error, peer: &impl Display) -> NotOpened {
    let reason = format!("{peer} did not answer as a relay does: {error}");
    match error.kind() {
        io::ErrorKind::TimedOut => NotOpened::Silent(reason),
        _ => NotOpened::TurnedAway(reason),
    }
}

fn receive_answer(connection: &Connection) -> Result<[u8; ANSWER_BYTES], NotOpened> {
    let peer = connection.peer();
    let failed = |error: io::Error| silent_or(&error, &peer);
    let mut head = [0; ANSWER_HEAD_BYTES];
    connection.receive(&mut head).map_err(failed)?;
    let ours = VersionRange::SUPPORTED;
    match Answer::decode_head(&head) {
        Ok(Ok(version)) if ours.contains(version) => {}
        Ok(Ok(version)) => {
            return Err(NotOpened::TurnedAway(format!(
                "{peer} chose protocol version {version}, which was not offered"
            )));
        }
        Ok(Err((code @ RefusalCode::Version, theirs))) => {
            return Err(NotOpened::TurnedAway(format!(
                "{peer} turned the lane away: {code} (it speaks version {theirs}, this agent {ours})"
            )));
        }
        Ok(Err((code, _))) => return Err(turned_away(&peer, code)),
        Err(error) => return Err(NotOpened::TurnedAway(format!("{peer}: {error}"))),
    }
    let mut answer = [0; ANSWER_BYTES];
    let (begin, nonce) = answer.split_at_mut(ANSWER_HEAD_BYTES);
    begin.copy_from_slice(&head);
    connection.receive(nonce).map_err(failed)?;
    Ok(answer)
}

fn turned_away(peer: &impl Display, code: RefusalCode) -> NotOpened {
    NotOpened::TurnedAway(format!("{peer} turned the lane away: {code}"))
}

fn protect(connection: Connection, security: &Security) -> Result<Lane, NotOpened> {
    let peer = connection.peer();
    match security {
        Security::Plain => Ok(connection.into_plain()),
        Security::Tls(tls) => connection
            .into_tls(Role::Client, tls)
            .map_err(|error| match error {
                TlsError::Io(error) => silent_or(&error, &peer),
                error => NotOpened::TurnedAway(format!(
                    "{peer} is not the end of this migration that it should be: {error}"
                )),
            }),
    }
}

/// Proves the token, and has it proved.
fn introduce(lane: &Lane, order: &Order, transcript: &Transcript<'_>) -> Result<(), NotOpened> {
    let peer = lane.peer();
    let failed = |error: io::Error| silent_or(&error, &peer);
    let hello = Hello {
        lane: transcript.lane,
        path: transcript.path,
        proof: prove(&order.token, &transcript.of_the_source()),
    };
    lane.send(&hello.encode(), b"").map_err(failed)?;
    let mut welcome = [0; WELCOME_BYTES];
    lane.receive(&mut welcome).map_err(failed)?;
    match Welcome::decode(&welcome) {
        Ok(Welcome::Accepted(proof))
            if proves(&order.token, &transcript.of_the_destination(), &proof) =>
        {
            Ok(())
        }
        Ok(Welcome::Accepted(_)) => Err(NotOpened::TurnedAway(format!(
            "{peer} could not prove that it is the destination: it does not know the token, or \
             what opened the lane was changed on its way"
        ))),
        Ok(Welcome::Refused(code)) => Err(turned_away(&peer, code)),
        Err(error) => Err(NotOpened::TurnedAway(format!("{peer}: {error}"))),
    }
}
