//! What only the agent of a host knows of it, which is captured beside what was read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use drover_tune::facts::{Fact, Guest, Host, Kind, Listening, Neighbour, Nic, Offers, Waking};
use serde::{Deserialize, Serialize};

/// The file of a captured host that has it.
const FILE: &str = "guests.json";

/// As much as an agent may answer.
const MOST: u64 = drover_api::limits::ANSWER_BYTES as u64;

/// It.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsWord {
    /// Guests of Drover's.
    pub guests: Fact<Vec<Guest>>,
    /// Domains of libvirt's.
    pub domains: Fact<Vec<Guest>>,
    /// What its QEMUs give guests as their processor.
    pub offers: Fact<Offers>,
    /// Who keeps its processors from sleeping deeply.
    #[serde(default)]
    pub waking: Fact<Waking>,
    /// What it heard by LLDP, by the adapter: since it runs, and nobody else listens as long.
    #[serde(default)]
    pub heard: BTreeMap<String, HeardAt>,
}

/// What an agent heard by LLDP at an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardAt {
    /// Who is at the other end of its cable.
    pub neighbours: Fact<Vec<Neighbour>>,
    /// Since when it listens; none where it does not.
    pub listening: Option<Listening>,
}

impl HeardAt {
    fn of(nic: Nic) -> Option<(String, Self)> {
        let heard = Self {
            neighbours: nic.neighbours,
            listening: nic.listening,
        };
        (nic.kind == Kind::Adapter).then_some((nic.name, heard))
    }
}

impl AgentsWord {
    /// That of an agent which told this.
    pub fn of(told: Host) -> Self {
        Self {
            guests: told.guests,
            domains: told.domains,
            offers: told.offers,
            waking: told.waking,
            heard: told.nics.into_iter().filter_map(HeardAt::of).collect(),
        }
    }

    /// That of one which does not answer, for this reason.
    pub fn unknown(why: &str) -> Self {
        Self {
            guests: Fact::unknown(why),
            domains: Fact::unknown(why),
            offers: Fact::unknown(why),
            waking: Fact::unknown(why),
            heard: BTreeMap::new(),
        }
    }

    /// That host with it.
    pub fn given_to(mut self, mut host: Host) -> Host {
        for nic in &mut host.nics {
            if let Some(heard) = self.heard.remove(&nic.name) {
                nic.neighbours = heard.neighbours;
                nic.listening = heard.listening;
            }
        }
        Host {
            guests: self.guests,
            domains: self.domains,
            offers: self.offers,
            waking: self.waking,
            ..host
        }
    }

    /// The same without what guests are called, and without what switches say.
    pub fn nameless(&self) -> Self {
        // Why may have names in it.
        const NOT_KNOWN: &str = "they were not known when it was captured";
        let of = |guests: &Fact<Vec<Guest>>, first: usize| match guests {
            Fact::Unknown(_) => Fact::unknown(NOT_KNOWN),
            Fact::Known(guests) => {
                let numbered = (first..).zip(guests);
                let made = numbered.map(|(number, guest)| guest.nameless(number));
                Fact::Known(made.collect())
            }
        };
        let own = self.guests.known().map_or(0, Vec::len);
        Self {
            guests: of(&self.guests, 1),
            domains: of(&self.domains, 1 + own),
            offers: match &self.offers {
                Fact::Unknown(_) => Fact::unknown(NOT_KNOWN),
                known => known.clone(),
            },
            waking: match &self.waking {
                Fact::Unknown(_) => Fact::unknown(NOT_KNOWN),
                known => known.clone(),
            },
            // Switches say who they are.
            heard: BTreeMap::new(),
        }
    }

    /// Writes it into a captured host's folder.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        fs::write(directory.join(FILE), text)
    }

    /// That of a captured host; none where no agent was asked.
    ///
    /// # Errors
    /// Why its file says nothing, with its name.
    pub fn read(directory: &Path) -> Result<Option<Self>, String> {
        let failed = |why: String| format!("{FILE}: {why}");
        let file = match fs::File::open(directory.join(FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let mut text = String::new();
        let read = file.take(MOST).read_to_string(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        let word = serde_json::from_str(&text);
        word.map(Some).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_tune::facts::{Definition, HeardBy, Own};
    use drover_types::Bytes;

    fn word() -> AgentsWord {
        let guest = |name: &str| Guest {
            name: name.to_owned(),
            vcpus: 1,
            memory: Bytes(1 << 30),
            definition: Definition::Own(Own {
                file: format!("/etc/drover/vms/{name}.toml"),
                machine: None,
                arguments: Vec::new(),
                page_sizes: [].into(),
            }),
            seen: Fact::unknown("payroll does not run"),
        };
        AgentsWord {
            guests: Fact::Known(vec![guest("payroll"), guest("payroll2")]),
            domains: Fact::unknown("payroll is not reached"),
            offers: Fact::Known(Offers::default()),
            waking: Fact::Known(Waking {
                wished_us: None,
                held_us: Fact::Known(20),
            }),
            heard: [("ens1f0".to_owned(), heard())].into(),
        }
    }

    fn heard() -> HeardAt {
        let neighbour = Neighbour {
            switch: "02:00:00:00:00:aa".to_owned(),
            name: Some("payroll-leaf".to_owned()),
            port: "Ethernet1/7".to_owned(),
            frame: Some(9216),
            negotiates: None,
            dcbx: [].into(),
            heard_by: Some(HeardBy::Agent),
        };
        HeardAt {
            neighbours: Fact::Known(vec![neighbour]),
            listening: Some(Listening {
                since: "2026-11-27T09:00:00Z".to_owned(),
                uptime_s: 600,
            }),
        }
    }

    #[test]
    fn what_an_agent_said_is_read_as_it_was_written_and_nothing_where_none_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(AgentsWord::read(folder.path()), Ok(None));
        word().write(folder.path()).unwrap();
        assert_eq!(AgentsWord::read(folder.path()), Ok(Some(word())));
        // One of before has nothing that was heard.
        let before = r#"{ "guests": { "known": [] }, "domains": { "known": [] }, "offers": { "unknown": "" } }"#;
        fs::write(folder.path().join(FILE), before).unwrap();
        let read = AgentsWord::read(folder.path()).unwrap().unwrap();
        assert_eq!(read.heard, BTreeMap::new());
        fs::write(folder.path().join(FILE), "{").unwrap();
        let why = AgentsWord::read(folder.path()).unwrap_err();
        assert!(why.starts_with("guests.json: "), "{why}");
    }

    #[test]
    fn what_guests_are_called_is_nowhere_in_an_anonymous_capture() {
        let nameless = word().nameless();
        let text = serde_json::to_string(&nameless).unwrap();
        assert!(!text.contains("payroll"), "{text}");
        let names = nameless.guests.known().unwrap().iter();
        let names: Vec<_> = names.map(|guest| guest.name.as_str()).collect();
        assert_eq!(names, ["guest1", "guest2"]);
        let offers = Fact::unknown("the QEMU of payroll does not answer");
        let without = AgentsWord { offers, ..word() }.nameless();
        let why = without.offers.get().unwrap_err();
        assert!(!why.contains("payroll"), "{why}");
    }
}
