//! What the authority remembers: members, certificates that it issued, tokens, removals. Values
//! only; [`crate::Store`] keeps them.

use std::net::SocketAddr;

use drover_types::{HostName, OperatorName};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::certificate::Serial;
use crate::token::SecretHash;
use crate::{Facts, Identity, Member, Secret, limits};

/// Why a host was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefused {
    /// No such token was made here, or it is long gone.
    #[error("the join token is not known here")]
    Unknown,
    /// It let a host in already.
    #[error("the join token was used by host {by} at {at:.0}; a token lets one host in, once")]
    Used {
        /// Which.
        by: HostName,
        /// When.
        at: Timestamp,
    },
    /// It was not used in time.
    #[error("the join token expired at {at:.0}; it is {now:.0} by the authority's clock")]
    Expired {
        /// When.
        at: Timestamp,
        /// The authority's clock.
        now: Timestamp,
    },
    /// Another host has the name.
    #[error("the cluster has a host {name} already")]
    NameTaken {
        /// The name that it has.
        name: HostName,
    },
    /// No room.
    #[error("the cluster has {0} hosts, and cannot have more")]
    Full(usize),
}

/// Why a host is not named as a coordinator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorRefused {
    /// It is no member.
    #[error("the cluster has no host {0}")]
    NoMember(HostName),
    /// No room.
    #[error("{0} hosts may coordinate already, and no more can")]
    Full(usize),
}

/// A certificate that is no longer good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Its number.
    pub serial: Serial,
    /// Whose it was.
    pub identity: Identity,
    /// When it was removed.
    pub at: Timestamp,
    /// Until when it has to be remembered: it would be good until then.
    pub not_after: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Issued {
    serial: Serial,
    identity: Identity,
    not_after: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Token {
    hash: SecretHash,
    expires: Timestamp,
    used: Option<(HostName, Timestamp)>,
}

/// The authority's memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ledger {
    revision: u64,
    members: Vec<Member>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    coordinators: Vec<HostName>,
    issued: Vec<Issued>,
    tokens: Vec<Token>,
    removed: Vec<Removal>,
}

impl Ledger {
    /// Grows with every change that members are to know.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The hosts.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The members that may coordinate beside the authority's host.
    #[must_use]
    pub fn coordinators(&self) -> &[HostName] {
        &self.coordinators
    }

    /// Lets a member coordinate, or no longer.
    ///
    /// # Errors
    /// Why not.
    pub fn set_coordinator(
        &mut self,
        host: &HostName,
        coordinates: bool,
    ) -> Result<(), CoordinatorRefused> {
        if !self.members.iter().any(|member| member.host == *host) {
            return Err(CoordinatorRefused::NoMember(host.clone()));
        }
        if self.coordinators.contains(host) == coordinates {
            return Ok(());
        }
        if coordinates {
            if self.coordinators.len() >= limits::COORDINATORS {
                return Err(CoordinatorRefused::Full(self.coordinators.len()));
            }
            self.coordinators.push(host.clone());
            self.coordinators.sort();
        } else {
            self.coordinators.retain(|other| other != host);
        }
        self.revision += 1;
        Ok(())
    }

    /// Certificates that are no longer good.
    #[must_use]
    pub fn removed(&self) -> &[Removal] {
        &self.removed
    }

    /// Operators with a certificate that is good, and until when.
    #[must_use]
    pub fn operators(&self, now: Timestamp) -> Vec<(OperatorName, Timestamp)> {
        let good = self
            .issued
            .iter()
            .filter(|issued| self.is_good(issued, now));
        let operator = |issued: &Issued| match &issued.identity {
            Identity::Operator(name) => Some((name.clone(), issued.not_after)),
            Identity::Host(_) => None,
        };
        good.filter_map(operator).collect()
    }

    /// Until when a host has a certificate that is good.
    #[must_use]
    pub fn good_until(&self, host: &HostName, now: Timestamp) -> Option<Timestamp> {
        let good = self
            .issued
            .iter()
            .filter(|issued| self.is_good(issued, now));
        let its = good.filter(|issued| issued.identity == Identity::Host(host.clone()));
        its.map(|issued| issued.not_after).max()
    }

    fn is_good(&self, issued: &Issued, now: Timestamp) -> bool {
        issued.not_after > now && !self.removed.iter().any(|r| r.serial == issued.serial)
    }

    /// Members have heard of a revision that this memory does not know: it is a backup's. What they
    /// hear from now on has to be newer.
    pub fn outrun(&mut self, heard: u64) {
        self.revision = self.revision.max(heard) + 1;
    }

    /// Tokens that could still be used.
    #[must_use]
    pub fn open_tokens(&self, now: Timestamp) -> usize {
        let open = |token: &&Token| token.used.is_none() && token.expires > now;
        self.tokens.iter().filter(open).count()
    }

    /// Remembers a token; the oldest are forgotten when there are too many.
    pub fn add_token(&mut self, secret: &Secret, expires: Timestamp, now: Timestamp) {
        self.forget(now);
        let surplus = (self.tokens.len() + 1).saturating_sub(limits::TOKENS);
        self.tokens.drain(..surplus);
        self.tokens.push(Token {
            hash: secret.hash(),
            expires,
            used: None,
        });
    }

    /// Lets a host in, and spends its token.
    ///
    /// # Errors
    /// Why not. Only who shows a good secret learns anything about names.
    pub fn admit(
        &mut self,
        secret: &Secret,
        member: Member,
        now: Timestamp,
    ) -> Result<(), JoinRefused> {
        let hash = secret.hash();
        // All are compared, however early one fits.
        let fitting: Vec<usize> = (0..self.tokens.len())
            .filter(|at| self.tokens[*at].hash.is(&hash))
            .collect();
        let token = fitting.first().map(|at| &mut self.tokens[*at]);
        let token = token.ok_or(JoinRefused::Unknown)?;
        if let Some((by, at)) = &token.used {
            return Err(JoinRefused::Used {
                by: by.clone(),
                at: *at,
            });
        }
        if now >= token.expires {
            return Err(JoinRefused::Expired {
                at: token.expires,
                now,
            });
        }
        let same = |other: &&Member| {
            other
                .host
                .as_str()
                .eq_ignore_ascii_case(member.host.as_str())
        };
        if let Some(other) = self.members.iter().find(same) {
            return Err(JoinRefused::NameTaken {
                name: other.host.clone(),
            });
        }
        if self.members.len() >= limits::MEMBERS {
            return Err(JoinRefused::Full(self.members.len()));
        }
        token.used = Some((member.host.clone(), now));
        self.add_member(member);
        Ok(())
    }

    /// The first member, or one with new addresses.
    pub fn add_member(&mut self, member: Member) {
        self.members.retain(|other| other.host != member.host);
        self.members.push(member);
        self.members.sort_by(|a, b| a.host.cmp(&b.host));
        self.revision += 1;
    }

    /// Remembers a certificate that was issued, so that it can be removed.
    pub fn issued(&mut self, facts: &Facts, now: Timestamp) {
        self.forget(now);
        self.issued.push(Issued {
            serial: facts.serial.clone(),
            identity: facts.identity.clone(),
            not_after: timestamp(facts.not_after),
        });
    }

    /// Removes every certificate of somebody; whether there was anything to remove.
    pub fn remove(&mut self, identity: &Identity, now: Timestamp) -> bool {
        self.forget(now);
        let members = self.members.len();
        if let Identity::Host(host) = identity {
            self.members.retain(|member| member.host != *host);
            self.coordinators.retain(|other| other != host);
        }
        let mut found = self.members.len() != members;
        for issued in &self.issued {
            let known = self.removed.iter().any(|r| r.serial == issued.serial);
            if issued.identity.same_name(identity) && !known {
                found = true;
                self.removed.push(Removal {
                    serial: issued.serial.clone(),
                    identity: issued.identity.clone(),
                    at: now,
                    not_after: issued.not_after,
                });
            }
        }
        if found {
            self.revision += 1;
        }
        found
    }

    /// Drops what no longer matters: expired certificates need not be removed.
    fn forget(&mut self, now: Timestamp) {
        self.issued.retain(|issued| issued.not_after > now);
        self.removed.retain(|removal| removal.not_after > now);
        let remembered = SignedDuration::try_from(limits::TOKEN_REMEMBERED).unwrap_or_default();
        self.tokens
            .retain(|token| now.duration_since(token.expires) < remembered);
    }

    /// Sets the addresses at which a member says that it listens; whether that is news.
    pub fn set_addresses(&mut self, host: &HostName, addresses: &[SocketAddr]) -> bool {
        let member = self.members.iter_mut().find(|member| member.host == *host);
        match member {
            Some(member) if member.addresses != addresses => {
                member.addresses = addresses.to_vec();
                self.revision += 1;
                true
            }
            _ => false,
        }
    }
}

/// A time of the library's as one that is shown; far ones are cut.
pub(crate) fn timestamp(time: std::time::SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn member(name: &str) -> Member {
        Member {
            host: name.parse().unwrap(),
            addresses: Vec::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn with_token() -> (Ledger, Secret) {
        let mut ledger = Ledger::default();
        ledger.add_member(member("a"));
        let secret = Secret::generate().unwrap();
        ledger.add_token(&secret, at(1000), at(0));
        (ledger, secret)
    }

    #[test]
    fn a_token_lets_one_host_in_once() {
        let (mut ledger, secret) = with_token();
        ledger.admit(&secret, member("b"), at(5)).unwrap();
        let again = ledger.admit(&secret, member("c"), at(6)).unwrap_err();
        let by = "b".parse().unwrap();
        assert_eq!(again, JoinRefused::Used { by, at: at(5) });
        assert_eq!(ledger.members().len(), 2);
    }

    #[test]
    fn a_token_that_has_expired_is_refused_with_both_times() {
        let (mut ledger, secret) = with_token();
        let late = ledger.admit(&secret, member("b"), at(1000)).unwrap_err();
        let text = late.to_string();
        assert!(
            text.contains("1970-01-01T00:16:40Z; it is 1970-01-01T00:16:40Z"),
            "{text}"
        );
    }

    #[test]
    fn another_secret_learns_nothing() {
        let (mut ledger, _) = with_token();
        let other = Secret::generate().unwrap();
        let refused = ledger.admit(&other, member("a"), at(5)).unwrap_err();
        assert_eq!(refused, JoinRefused::Unknown);
    }

    #[test]
    fn a_name_that_is_taken_in_any_spelling_does_not_spend_the_token() {
        let (mut ledger, secret) = with_token();
        let refused = ledger.admit(&secret, member("A"), at(5)).unwrap_err();
        assert!(matches!(refused, JoinRefused::NameTaken { .. }));
        ledger.admit(&secret, member("b"), at(6)).unwrap();
    }

    #[test]
    fn tokens_are_bounded_and_the_oldest_go_first() {
        let (mut ledger, first) = with_token();
        for _ in 0..limits::TOKENS {
            ledger.add_token(&Secret::generate().unwrap(), at(1000), at(0));
        }
        assert_eq!(ledger.open_tokens(at(1)), limits::TOKENS);
        let refused = ledger.admit(&first, member("b"), at(5)).unwrap_err();
        assert_eq!(refused, JoinRefused::Unknown);
    }

    #[test]
    fn members_coordinate_until_they_are_told_not_to_or_removed() {
        let (mut ledger, secret) = with_token();
        ledger.admit(&secret, member("b"), at(5)).unwrap();
        let b = "b".parse().unwrap();
        let before = ledger.revision();
        ledger.set_coordinator(&b, true).unwrap();
        ledger.set_coordinator(&b, true).unwrap();
        assert_eq!(
            (ledger.coordinators(), ledger.revision()),
            (&[b.clone()][..], before + 1)
        );
        ledger.set_coordinator(&b, false).unwrap();
        assert_eq!(ledger.coordinators(), []);
        ledger.set_coordinator(&b, true).unwrap();
        assert!(ledger.remove(&Identity::Host(b.clone()), at(6)));
        assert_eq!(ledger.coordinators(), []);
        let gone = ledger.set_coordinator(&b, true).unwrap_err();
        assert_eq!(gone, CoordinatorRefused::NoMember(b));
    }

    #[test]
    fn every_certificate_of_a_removed_host_is_removed_until_it_would_have_expired() {
        let (mut ledger, secret) = with_token();
        ledger.admit(&secret, member("b"), at(5)).unwrap();
        let host = Identity::Host("b".parse().unwrap());
        for (serial, until) in [(1, 2000), (2, 3000)] {
            let not_after = std::time::UNIX_EPOCH + Duration::from_secs(until);
            let facts = Facts {
                identity: host.clone(),
                serial: Serial::of(&[serial]),
                not_before: std::time::UNIX_EPOCH,
                not_after,
            };
            ledger.issued(&facts, at(6));
        }
        let before = ledger.revision();
        assert!(ledger.remove(&host, at(10)));
        assert!(ledger.revision() > before);
        assert_eq!(ledger.removed().len(), 2);
        assert!(!ledger.remove(&host, at(11)), "there is nothing left of it");
        ledger.add_token(&Secret::generate().unwrap(), at(9000), at(2500));
        assert_eq!(ledger.removed().len(), 1);
    }
}
