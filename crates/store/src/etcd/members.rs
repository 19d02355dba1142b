//! All members together: who is asked, how often, and when there is said to be no quorum.
//!
//! A question may be asked of one member after the other. A write may not: once it was sent, no
//! second member is asked, since both might do it. So a member that is to write must answer a
//! question first, on the same connection; what fails then has not been written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Answer, Connection, Member};
use super::words::{Range, Refusal};
use crate::error::{Invalid, Outcome, StoreError};
use crate::limits;

/// gRPC's codes of what may go otherwise a moment later, or at another member: cancelled, unknown,
/// deadline exceeded, internal, unavailable.
const PASSING: [i64; 5] = [1, 2, 4, 13, 14];

/// gRPC's code of a message that is too large, and of a store that is full.
const EXHAUSTED: i64 = 8;

/// etcd's members, and how they are spoken to.
#[derive(Debug)]
pub struct Members {
    members: Vec<Member>,
    tls: Option<Arc<ClientConfig>>,
    /// The one that answered last.
    preferred: AtomicUsize,
}

/// What a member says instead of what was asked for.
#[derive(Debug)]
pub(super) enum Refused {
    /// The answer would be too long.
    TooLong,
    /// For good.
    Final(StoreError),
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Final(error) => error,
            Refused::TooLong => Self::Unreadable {
                what: "etcd's answer".to_owned(),
                problem: format!("it has more than {} bytes", limits::ANSWER_BYTES),
            },
        }
    }
}

/// What became of one question at one member.
enum Attempt {
    Answered(Bytes),
    Refused(Refused),
    /// Another member may do better.
    Failed(String),
}

impl Members {
    /// The members at these addresses, `HOST:PORT` each; over TLS if there is a configuration for it.
    ///
    /// # Errors
    /// [`Invalid::Members`] if there are none, too many, or one that is no address.
    pub fn new(addresses: &[String], tls: Option<Arc<ClientConfig>>) -> Result<Self, Invalid> {
        if addresses.is_empty() || addresses.len() > limits::ETCD_MEMBERS {
            return Err(Invalid::Members {
                problem: format!(
                    "{} are named, and 1 to {} are needed",
                    addresses.len(),
                    limits::ETCD_MEMBERS
                ),
            });
        }
        Ok(Self {
            members: addresses
                .iter()
                .map(|address| Member::parse(address))
                .collect::<Result<_, _>>()?,
            tls,
            preferred: AtomicUsize::new(0),
        })
    }

    /// Asks until one member answers. Only for what may be done twice.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
    ) -> Result<A, Refused> {
        let body = encode(question)?;
        let (_, answer) = self.reach(path, &body).await?;
        decode(&answer)
    }

    /// Writes once, by a member that has just shown that it hears a majority.
    pub(super) async fn write<A: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<A, Refused> {
        let body = encode(request)?;
        let question = encode(&Range {
            keys_only: true,
            ..Range::key("drover".to_owned())
        })?;
        let (mut connection, _) = self.reach("/v3/kv/range", &question).await?;
        let begun = Instant::now();
        let writing = connection.exchange(path, body, limits::WRITE_ANSWER);
        let attempt = match timeout(limits::WRITE_ANSWER, writing).await {
            Ok(answer) => judge(answer),
            Err(_) => Attempt::Failed("no answer".to_owned()),
        };
        match attempt {
            Attempt::Answered(answer) => decode(&answer),
            Attempt::Refused(refused) => Err(refused),
            Attempt::Failed(detail) => {
                self.prefer_next();
                Err(no_quorum(begun, Outcome::Unknown, detail))
            }
        }
    }

    /// Asks one member after the other, again and again, within [`limits::QUORUM_WAIT`].
    async fn reach(&self, path: &str, body: &Bytes) -> Result<(Connection, Bytes), Refused> {
        let begun = Instant::now();
        let mut last = vec![String::new(); self.members.len()];
        loop {
            let first = self.preferred.load(Ordering::Relaxed);
            for step in 0..self.members.len() {
                let index = (first + step) % self.members.len();
                match self.attempt(index, path, body.clone()).await {
                    (Some(connection), Attempt::Answered(answer)) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok((connection, answer));
                    }
                    (_, Attempt::Refused(refused)) => return Err(refused),
                    (_, Attempt::Failed(detail)) => last[index] = detail,
                    (None, Attempt::Answered(_)) => {}
                }
                if begun.elapsed() >= limits::QUORUM_WAIT {
                    return Err(no_quorum(begun, Outcome::NotDone, self.said(&last)));
                }
            }
            sleep(limits::QUORUM_PAUSE).await;
        }
    }

    async fn attempt(
        &self,
        index: usize,
        path: &str,
        body: Bytes,
    ) -> (Option<Connection>, Attempt) {
        let asking = async {
            let mut connection = Connection::open(&self.members[index], self.tls.as_ref()).await?;
            let answer = connection.exchange(path, body, limits::MEMBER_ANSWER).await;
            answer.map(|answer| (connection, answer))
        };
        match timeout(limits::MEMBER_ANSWER, asking).await {
            Ok(Ok((connection, answer))) => (Some(connection), judge(Ok(answer))),
            Ok(Err(detail)) => (None, Attempt::Failed(detail)),
            Err(_) => (None, Attempt::Failed("no answer".to_owned())),
        }
    }

    /// Opens a stream at a member other than the one that was listened to last, if there is one.
    pub(super) async fn stream(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<(Connection, Incoming), StoreError> {
        let body = encode(request)?;
        let begun = Instant::now();
        let mut last = vec![String::new(); self.members.len()];
        loop {
            for _ in 0..self.members.len() {
                let index = self.preferred.load(Ordering::Relaxed) % self.members.len();
                match timeout(
                    limits::MEMBER_ANSWER,
                    self.listen(index, path, body.clone()),
                )
                .await
                {
                    Ok(Ok(stream)) => return Ok(stream),
                    Ok(Err(detail)) => last[index] = detail,
                    Err(_) => "no answer".clone_into(&mut last[index]),
                }
                self.prefer_next();
                if begun.elapsed() >= limits::QUORUM_WAIT {
                    return Err(no_quorum(begun, Outcome::NotDone, self.said(&last)).into());
                }
            }
            sleep(limits::QUORUM_PAUSE).await;
        }
    }

    async fn listen(
        &self,
        index: usize,
        path: &str,
        body: Bytes,
    ) -> Result<(Connection, Incoming), String> {
        let mut connection = Connection::open(&self.members[index], self.tls.as_ref()).await?;
        let answer = connection.begin(path, body, None).await?;
        if !answer.status().is_success() {
            return Err(format!("HTTP status {}", answer.status()));
        }
        Ok((connection, answer.into_body()))
    }

    /// The next question goes to another member first.
    pub(super) fn prefer_next(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }

    fn said(&self, last: &[String]) -> String {
        let each = self.members.iter().zip(last);
        let said: Vec<String> = each
            .map(|(member, said)| {
                let said = if said.is_empty() { "not asked" } else { said };
                format!("{}: {said}", member.address())
            })
            .collect();
        said.join("; ")
    }
}

fn judge(answer: Result<Answer, String>) -> Attempt {
    match answer {
        Ok(Answer::Whole(status, body)) if status.is_success() => Attempt::Answered(body),
        Ok(Answer::Whole(status, body)) => match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) => refused(refusal),
            Err(_) => Attempt::Failed(format!("HTTP status {status}")),
        },
        Ok(Answer::TooLong) => Attempt::Refused(Refused::TooLong),
        Err(detail) => Attempt::Failed(detail),
    }
}

fn refused(refusal: Refusal) -> Attempt {
    let message = drover_types::in_short(refusal.message);
    if PASSING.contains(&refusal.code) || message.contains("too many requests") {
        return Attempt::Failed(message);
    }
    if refusal.code == EXHAUSTED && message.contains("larger than max") {
        return Attempt::Refused(Refused::TooLong);
    }
    Attempt::Refused(Refused::Final(
        if message.contains("database space exceeded") {
            StoreError::Full {
                detail: format!("{message}: compact and defragment etcd, then disarm its alarm"),
            }
        } else {
            StoreError::Rejected { detail: message }
        },
    ))
}

fn no_quorum(begun: Instant, outcome: Outcome, detail: String) -> Refused {
    let waited: Duration = begun.elapsed();
    Refused::Final(StoreError::NoQuorum {
        waited,
        outcome,
        detail,
    })
}

fn encode(what: &impl Serialize) -> Result<Bytes, Refused> {
    serde_json::to_vec(what).map(Bytes::from).map_err(|error| {
        Refused::Final(StoreError::Invalid(Invalid::Json {
            problem: error.to_string(),
        }))
    })
}

/// Reads an answer; a stream's first message is one as well.
pub(super) fn decode<A: DeserializeOwned>(answer: &[u8]) -> Result<A, Refused> {
    serde_json::from_slice(answer).map_err(|error| Refused::Final(unreadable(error.to_string())))
}

pub(super) fn unreadable(problem: String) -> StoreError {
    StoreError::Unreadable {
        what: "etcd's answer".to_owned(),
        problem: drover_types::in_short(problem),
    }
}
