//! Letting a lane in: the destination's half of what [`crate::open_lane`] begins.
//!
//! The listener reads a connection's preamble and finds the migration by it; everything that needs
//! a secret happens here, with what belongs to that one migration. So a connection can be handed,
//! with the bytes of its preamble, to whatever process the migration's relay lives in.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use drover_lanes::{Connection, Encryption, Lane, Role, TlsError};
use drover_wire::{
    ANSWER_BYTES, Answer, HELLO_BYTES, Hello, PREAMBLE_BYTES, Preamble, RefusalCode, Token,
    Transcript, Version, VersionRange, Welcome,
};

use crate::limits::HANDSHAKE_TIMEOUT;
use crate::security::{new_nonce, prove, proves};
use crate::turned_away::{Cause, TurnedAway};
use crate::{Relay, Security};

/// A connection's preamble that is one, and the version to use with it.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) bytes: [u8; PREAMBLE_BYTES],
    pub(crate) preamble: Preamble,
    pub(crate) version: Version,
}

impl Begun {
    pub(crate) fn read(bytes: [u8; PREAMBLE_BYTES]) -> Result<Self, TurnedAway> {
        let preamble = Preamble::decode(&bytes)
            .map_err(|error| TurnedAway::new(Cause::Garbage, error.to_string()))?;
        let version = VersionRange::SUPPORTED.newest_common(preamble.versions);
        let version = version.map_err(|none| TurnedAway::new(Cause::Version, none.to_string()))?;
        Ok(Self {
            bytes,
            preamble,
            version,
        })
    }
}

/// Lets the lanes of one migration in.
#[derive(Debug)]
pub struct Acceptor {
    token: Token,
    security: Security,
    relay: Weak<Relay>,
    encryption: OnceLock<Encryption>,
}

impl Acceptor {
    /// Lanes that prove this token and are protected so, for this relay.
    #[must_use]
    pub fn new(token: Token, security: Security, relay: &Arc<Relay>) -> Self {
        Self {
            token,
            security,
            relay: Arc::downgrade(relay),
            encryption: OnceLock::new(),
        }
    }

    /// What protects the lanes that were let in, once there is one.
    #[must_use]
    pub fn encryption(&self) -> Option<Encryption> {
        self.encryption.get().copied()
    }

    /// Lets in a connection whose preamble another process read, as [`LaneListener`] does, and which
    /// has to be a lane by `until`.
    ///
    /// [`LaneListener`]: crate::LaneListener
    ///
    /// # Errors
    /// Why it was turned away.
    pub fn take_over(
        &self,
        connection: OwnedFd,
        preamble: [u8; PREAMBLE_BYTES],
        until: Instant,
    ) -> Result<(), TurnedAway> {
        let connection = Connection::adopt(connection.into()).and_then(|connection| {
            connection.set_deadline(until.min(Instant::now() + HANDSHAKE_TIMEOUT))?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| TurnedAway::by_io("its socket", &error))?;
        let begun = Begun::read(preamble)?;
        self.accept(connection, &begun)
    }

    /// Has the peer prove who it is, proves who we are, and gives the lane to the relay.
    pub(crate) fn accept(&self, connection: Connection, begun: &Begun) -> Result<(), TurnedAway> {
        let Some(relay) = self.relay.upgrade() else {
            refuse(&connection, RefusalCode::Unexpected);
            return Err(TurnedAway::new(Cause::Unexpected, "its relay is gone"));
        };
        let (asked, ours) = (begun.preamble.mode, self.security.mode());
        if asked != ours {
            refuse(&connection, RefusalCode::Unexpected);
            let reason = format!("it asks for {asked}, agreed on is {ours}");
            return Err(TurnedAway::new(Cause::Mode, reason));
        }
        let answer = answer(&connection, begun.version)?;
        let lane = self.protect(connection)?;
        let hello = self.identify(&lane, begun, &answer)?;
        lane.established()
            .map_err(|error| TurnedAway::by_io("its socket", &error))?;
        self.encryption.get_or_init(|| lane.encryption());
        let added = relay.add_lane(hello.lane, hello.path, lane);
        added.map_err(|refused| TurnedAway::new(Cause::Session, refused.to_string()))
    }

    fn protect(&self, connection: Connection) -> Result<Lane, TurnedAway> {
        match &self.security {
            Security::Plain => Ok(connection.into_plain()),
            Security::Tls(tls) => {
                let lane = connection.into_tls(Role::Server, tls);
                lane.map_err(|error| match error {
                    TlsError::Io(error) => TurnedAway::by_io("TLS", &error),
                    TlsError::Cut => TurnedAway::new(Cause::Cut, "cut off in TLS's handshake"),
                    error => TurnedAway::new(Cause::Peer, error.to_string()),
                })
            }
        }
    }

    fn identify(
        &self,
        lane: &Lane,
        begun: &Begun,
        answer: &[u8; ANSWER_BYTES],
    ) -> Result<Hello, TurnedAway> {
        let mut bytes = [0; HELLO_BYTES];
        lane.receive(&mut bytes)
            .map_err(|error| TurnedAway::by_io("waiting for its hello", &error))?;
        let hello = Hello::decode(&bytes)
            .map_err(|error| TurnedAway::new(Cause::Garbage, format!("its hello: {error}")))?;
        let transcript = Transcript {
            preamble: &begun.bytes,
            answer,
            binding: &self.security.binding(Role::Server),
            lane: hello.lane,
            path: hello.path,
        };
        if !proves(&self.token, &transcript.of_the_source(), &hello.proof) {
            welcome(lane, Welcome::Refused(RefusalCode::Unexpected))?;
            return Err(TurnedAway::new(
                Cause::Proof,
                "it does not know the token, or what opened the lane was changed on its way",
            ));
        }
        // It goes out before the relay may send frames behind it.
        let proof = prove(&self.token, &transcript.of_the_destination());
        welcome(lane, Welcome::Accepted(proof))?;
        Ok(hello)
    }
}

/// The peer may be gone; the refusal stands all the same.
pub(crate) fn refuse(connection: &Connection, code: RefusalCode) {
    let _ = connection.send(&Answer::Refused(code, VersionRange::SUPPORTED).encode());
}

fn answer(connection: &Connection, version: Version) -> Result<[u8; ANSWER_BYTES], TurnedAway> {
    let failed = |error: io::Error| TurnedAway::by_io("answering", &error);
    let bytes = Answer::GoOn(version, new_nonce().map_err(failed)?).encode();
    connection.send(&bytes).map_err(failed)?;
    let whole = bytes.try_into();
    whole.map_err(|_| TurnedAway::new(Cause::Session, "an answer of another size"))
}

fn welcome(lane: &Lane, welcome: Welcome) -> Result<(), TurnedAway> {
    lane.send(&welcome.encode(), b"")
        .map_err(|error| TurnedAway::by_io("answering", &error))
}
