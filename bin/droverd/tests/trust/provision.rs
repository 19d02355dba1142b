//! Certificates of every kind, also of those that no authority should sign.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use drover_trust::{
    Armed, Authority, Credentials, Identity, KeyAndRequest, Ledger, Member, Membership, Store,
    Stored, Trust, Validity, limits, system_clock,
};
use jiff::Timestamp;

/// An authority in the test's hands.
pub struct Office {
    pub authority: Authority,
    pub ledger: Ledger,
}

/// Valid from now on.
pub fn from_now() -> Validity {
    Validity::from(SystemTime::now(), limits::HOST_LIFETIME)
}

pub fn host(name: &str) -> Identity {
    Identity::Host(name.parse().unwrap())
}

impl Office {
    pub fn new() -> Self {
        let validity = Validity::from(SystemTime::now(), limits::AUTHORITY_LIFETIME);
        Self {
            authority: Authority::create(validity).unwrap(),
            ledger: Ledger::default(),
        }
    }

    /// That of a host, as it is on its disk.
    pub fn of(state: &Path) -> Self {
        let stored = Store::below(state).load().unwrap().unwrap();
        let (authority, ledger) = stored.office.unwrap();
        Self { authority, ledger }
    }

    pub fn admit(&mut self, name: &str, addresses: Vec<SocketAddr>) {
        self.ledger.add_member(Member {
            host: name.parse().unwrap(),
            addresses,
        });
    }

    fn membership(&self) -> Membership {
        let revision = self.ledger.revision();
        let removed = self.ledger.removed();
        let removals = self
            .authority
            .sign_removals(revision, removed, SystemTime::now());
        Membership {
            revision,
            authority: self.ledger.members()[0].host.clone(),
            members: self.ledger.members().to_vec(),
            coordinators: self.ledger.coordinators().to_vec(),
            removals: removals.unwrap(),
        }
    }

    /// Key and certificate.
    pub fn issue(&mut self, who: &Identity, validity: Validity) -> (String, String) {
        let own = KeyAndRequest::generate().unwrap();
        let (certificate, facts) = self.authority.issue(&own.request, who, validity).unwrap();
        self.ledger.issued(&facts, Timestamp::now());
        (own.key, certificate)
    }

    /// What a client connects with.
    pub fn client_of(&mut self, who: &Identity, validity: Validity) -> Trust {
        let (key, certificate) = self.issue(who, validity);
        client(&key, &certificate, self.authority.certificate_pem())
    }

    /// Gives a host its files. The first member is the authority.
    pub fn settle(&mut self, state: &Path, name: &str) {
        self.settle_with(state, name, from_now());
    }

    /// The same with a certificate that is valid otherwise.
    pub fn settle_with(&mut self, state: &Path, name: &str, validity: Validity) {
        let (key, certificate) = self.issue(&host(name), validity);
        let authority = self.authority.certificate_pem().to_owned();
        let membership = self.membership();
        let copy = Authority::from_pem(&self.authority.key_pem(), &authority).unwrap();
        let office = (membership.authority.as_str() == name).then(|| (copy, self.ledger.clone()));
        let stored = Stored {
            key,
            certificate,
            authority,
            membership,
            office,
        };
        Store::below(state).save(&stored).unwrap();
    }
}

/// Whatever key and certificate say, believing that authority.
pub fn client(key: &str, certificate: &str, authority: &str) -> Trust {
    let credentials = Credentials::new(key, certificate, authority, None).unwrap();
    Trust::of(Armed::operator(&credentials, &system_clock()).unwrap())
}
