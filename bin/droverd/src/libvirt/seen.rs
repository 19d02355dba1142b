//! What was seen of libvirt, and what it means when something else is.

use std::sync::Arc;

use drover_api::{LibvirtState, LibvirtView};
use drover_libvirt::{Connection, Domains, Standing};
use jiff::Timestamp;

/// Whether there is a connection to libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contact {
    /// It is not wanted.
    Off,
    /// Nothing is known yet.
    Looking,
    /// There is none on this host, and why that is thought.
    Absent(String),
    /// It is there or was, and is not reached; why.
    Lost(String),
    /// It is reached.
    Connected {
        /// libvirtd's version.
        daemon: String,
        /// Its QEMU's.
        hypervisor: String,
        /// Why its domains could not be listed since they are known.
        late: Option<String>,
    },
}

/// What was seen of libvirt last.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Where it is; none where it is not wanted.
    pub uri: Option<String>,
    /// Whether it is reached.
    pub contact: Contact,
    /// Its domains as it told of them last; none where it never did.
    pub domains: Option<Arc<Domains>>,
    /// When that was.
    pub heard: Option<Timestamp>,
    /// To ask for more; none where it is not reached.
    pub connection: Option<Connection>,
}

/// What a look at libvirt came to.
pub(super) struct Told {
    pub(super) contact: Contact,
    /// None where it did not tell of them.
    pub(super) domains: Option<Arc<Domains>>,
    pub(super) connection: Option<Connection>,
}

impl From<Contact> for Told {
    fn from(contact: Contact) -> Self {
        Self {
            contact,
            domains: None,
            connection: None,
        }
    }
}

impl Seen {
    /// Of one that is not wanted.
    pub fn off() -> Self {
        Self {
            uri: None,
            contact: Contact::Off,
            domains: None,
            heard: None,
            connection: None,
        }
    }

    /// Of one at this URI, that nobody has looked at.
    pub fn looking(uri: &str) -> Self {
        Self {
            uri: Some(uri.to_owned()),
            contact: Contact::Looking,
            ..Self::off()
        }
    }

    /// Takes over what is so now. Domains that were told of and are not any more for want of a libvirt are there still.
    pub(super) fn hear(&mut self, told: Told) {
        let is_old = matches!(&told.contact, Contact::Connected { late: Some(_), .. });
        if told.domains.is_some() && !is_old {
            self.heard = Some(Timestamp::now());
        }
        self.domains = told.domains.or_else(|| self.domains.take());
        self.connection = told.connection;
        self.contact = match told.contact {
            Contact::Absent(why) if self.count() > 0 => Contact::Lost(why),
            other => other,
        };
    }

    /// There may be one now where there was none: what that means for guests is not known until it is reached.
    pub(super) fn look_again(&mut self) {
        if matches!(self.contact, Contact::Absent(_)) {
            self.contact = Contact::Looking;
            self.domains = None;
        }
    }

    /// Whether it is there, by its sockets, where no more is known: `absence` says that it is not.
    pub(super) fn correct(&mut self, absence: Option<String>) {
        match absence {
            None => self.look_again(),
            Some(why) if self.contact == Contact::Looking => self.contact = Contact::Absent(why),
            Some(_) => {}
        }
    }

    /// Why it is not known which domains it has; none where it told of them, or there is no libvirt.
    pub fn never_told(&self) -> Option<String> {
        match (&self.contact, &self.domains) {
            (Contact::Looking, _) => Some("libvirt is being looked for".to_owned()),
            (Contact::Lost(why), None) => Some(format!("libvirt is not reached: {why}")),
            _ => None,
        }
    }

    /// Why it has not told of its domains since it did last; none where it does, or is not there.
    pub fn not_told_since(&self) -> Option<&str> {
        match &self.contact {
            Contact::Lost(why) => Some(why),
            Contact::Connected { late, .. } => late.as_deref(),
            Contact::Off | Contact::Looking | Contact::Absent(_) => None,
        }
    }

    /// That it said something last, and when.
    pub fn said_last(&self) -> String {
        match self.heard {
            Some(at) => format!("said last, at {at:.0},"),
            None => "said last".to_owned(),
        }
    }

    /// Why what is known of domains may be old; none where it is not.
    pub fn problem(&self) -> Option<&str> {
        match &self.contact {
            Contact::Off | Contact::Looking => None,
            Contact::Absent(why) | Contact::Lost(why) => Some(why),
            Contact::Connected { late, .. } => late.as_deref(),
        }
    }

    /// Domains that it told of, or that there are.
    pub fn count(&self) -> usize {
        let known = self.domains.as_ref();
        known.map_or(0, |known| known.told.len() + known.untold.len())
    }

    /// As it is shown.
    pub fn view(&self) -> LibvirtView {
        let (state, versions) = match &self.contact {
            Contact::Off => (LibvirtState::Off, None),
            Contact::Looking => (LibvirtState::Looking, None),
            Contact::Absent(_) => (LibvirtState::Absent, None),
            Contact::Lost(_) => (LibvirtState::Unreachable, None),
            Contact::Connected {
                daemon, hypervisor, ..
            } => {
                let versions = (daemon.clone(), hypervisor.clone());
                (LibvirtState::Connected, Some(versions))
            }
        };
        let (version, hypervisor) = versions.unzip();
        LibvirtView {
            state,
            uri: self.uri.clone(),
            version,
            hypervisor,
            domains: u64::try_from(self.count()).unwrap_or(u64::MAX),
            problem: self.problem().map(str::to_owned),
        }
    }
}

/// What a watch tells. It is begun where libvirt is named or has a socket: without a library that can be used nothing is known of it.
pub(super) fn told(standing: Standing) -> Told {
    match standing {
        Standing::Unknown => Contact::Looking.into(),
        Standing::NotThere(why) | Standing::Unreachable(why) => Contact::Lost(why).into(),
        Standing::Reached {
            connection,
            domains,
            late,
        } => Told {
            contact: Contact::Connected {
                daemon: connection.daemon().to_string(),
                hypervisor: connection.hypervisor().to_string(),
                late,
            },
            domains: Some(domains),
            connection: Some(connection),
        },
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use drover_libvirt::{Domain, DomainState, Untold};
    use drover_types::Bytes;
    use uuid::Uuid;

    pub fn domain(name: &str, state: DomainState) -> Domain {
        Domain {
            name: name.to_owned(),
            uuid: Uuid::from_u128(u128::try_from(name.len()).unwrap()),
            state,
            persistent: true,
            autostart: false,
            memory: Bytes(4 << 30),
            vcpus: 2,
        }
    }

    /// One domain with this number as its id, of which libvirt does not tell.
    pub fn untold(name: &str, id: u128) -> Domains {
        let why = drover_libvirt::Refusal {
            words: "not this".to_owned(),
            domain: 10,
            code: 29,
        };
        let untold = Untold {
            name: name.to_owned(),
            uuid: Uuid::from_u128(id),
            why,
        };
        Domains {
            told: Vec::new(),
            untold: vec![untold],
        }
    }

    pub fn connected() -> Contact {
        Contact::Connected {
            daemon: "9.0.0".to_owned(),
            hypervisor: "7.2.0".to_owned(),
            late: None,
        }
    }

    fn reached(domains: Domains) -> Told {
        Told {
            domains: Some(Arc::new(domains)),
            ..connected().into()
        }
    }

    /// Of a libvirt that is reached and has these.
    pub fn seen(told: Vec<Domain>) -> Seen {
        let untold = Vec::new();
        let mut seen = Seen::looking("qemu:///system");
        seen.hear(reached(Domains { told, untold }));
        seen
    }

    pub fn lost() -> Contact {
        Contact::Lost("no socket".to_owned())
    }

    #[test]
    fn domains_stay_known_when_libvirt_is_lost_and_go_when_it_says_so() {
        let mut seen = seen(vec![domain("web", DomainState::Running)]);
        seen.hear(lost().into());
        assert_eq!((seen.count(), seen.problem()), (1, Some("no socket")));
        assert_eq!(seen.view().state, LibvirtState::Unreachable);
        seen.hear(reached(Domains::default()));
        assert_eq!((seen.count(), seen.problem()), (0, None));
        assert_eq!(seen.view().version.as_deref(), Some("9.0.0"));
    }

    #[test]
    fn a_libvirt_that_goes_with_domains_is_lost_and_one_without_is_absent() {
        let absent = || Contact::Absent("no socket".to_owned());
        let mut had_domains = seen(vec![domain("web", DomainState::ShutOff)]);
        had_domains.hear(absent().into());
        assert_eq!(had_domains.contact, lost());
        let mut had_none = seen(Vec::new());
        had_none.hear(absent().into());
        assert_eq!(had_none.view().state, LibvirtState::Absent);
    }

    #[test]
    fn a_libvirt_that_comes_is_not_known_until_it_is_reached_and_one_that_is_lost_stays_so() {
        let mut had_none = seen(Vec::new());
        had_none.hear(Contact::Absent("no socket".to_owned()).into());
        had_none.look_again();
        assert_eq!(had_none.contact, Contact::Looking);
        assert!(had_none.domains.is_none());
        let mut had_domains = seen(vec![domain("web", DomainState::Running)]);
        had_domains.hear(lost().into());
        had_domains.look_again();
        assert_eq!(had_domains.contact, lost());
        assert_eq!(had_domains.count(), 1);
    }

    #[test]
    fn when_libvirt_told_of_its_domains_is_known_and_what_is_late_is_not_new() {
        let mut seen = Seen::looking("qemu:///system");
        assert_eq!(seen.said_last(), "said last");
        seen.hear(reached(Domains::default()));
        seen.heard = Some(Timestamp::UNIX_EPOCH);
        let late = Contact::Connected {
            daemon: "9.0.0".to_owned(),
            hypervisor: "7.2.0".to_owned(),
            late: Some("it hangs".to_owned()),
        };
        seen.hear(Told {
            domains: seen.domains.clone(),
            ..late.into()
        });
        assert_eq!(seen.said_last(), "said last, at 1970-01-01T00:00:00Z,");
    }

    #[test]
    fn a_libvirt_whose_library_cannot_be_used_is_there() {
        let words = || "no library".to_owned();
        let unusable = told(Standing::NotThere(words()));
        assert_eq!(unusable.contact, Contact::Lost(words()));
        let unreachable = told(Standing::Unreachable(words()));
        assert_eq!(unreachable.contact, Contact::Lost(words()));
        assert_eq!(told(Standing::Unknown).contact, Contact::Looking);
    }

    #[test]
    fn one_that_is_off_says_nothing_but_that() {
        let view = Seen::off().view();
        assert_eq!((view.state, view.uri), (LibvirtState::Off, None));
        assert_eq!((view.problem, view.domains), (None, 0));
    }
}
