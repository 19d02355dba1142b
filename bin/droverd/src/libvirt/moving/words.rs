//! What a person does with a domain whose migration is over, or in doubt.

use std::path::Path;

use drover_api::MovingDomain;
use drover_migrate::{KeptGuest, Outcome};
use drover_types::HostName;

use super::disks::of;
use crate::disks;
use crate::libvirt::virsh::Place;

/// A domain that leaves, on its host.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    pub place: Place<'a>,
    pub domain: &'a MovingDomain,
    pub destination: &'a HostName,
    /// Where its definition is kept.
    pub kept: &'a Path,
}

impl Left<'_> {
    fn command(&self, text: &str) -> String {
        self.place.command(text, &self.domain.name)
    }

    /// How the migration left it, with what to do.
    pub fn after(&self, outcome: &Outcome) -> Option<String> {
        match outcome {
            Outcome::Completed => disks::told(self.place.host, of(self.domain)),
            Outcome::Refused { .. } => None,
            Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. } => {
                Some(self.kept(*guest))
            }
            Outcome::Lost { .. } | Outcome::CutOff { .. } | Outcome::GivenUp { .. } => {
                Some(self.lost())
            }
        }
    }

    fn kept(&self, guest: KeptGuest) -> String {
        match guest {
            KeptGuest::Runs if self.domain.paused => {
                "the domain stands still on the source, as it did before".to_owned()
            }
            KeptGuest::Runs => "the domain runs on the source, unharmed".to_owned(),
            KeptGuest::Stopped => format!(
                "the domain stands still on the source: {} tells why, {} has it run",
                self.command("domstate --reason {}"),
                self.command("resume {}")
            ),
            KeptGuest::Gone if !self.domain.persistent => {
                "the domain has ended on the source, and has no definition there".to_owned()
            }
            KeptGuest::Gone => {
                let start = self.command("start {}");
                let not_started = match self.domain.autostart {
                    true => "; it is started with its host again, and was not while it moved",
                    false => "",
                };
                format!("the domain has ended on the source: {start} boots it{not_started}")
            }
        }
    }

    /// Its definition left with it, and what it had in memory is nowhere.
    fn lost(&self) -> String {
        let disks = of(self.domain).iter().map(|disk| &disk.path);
        let disks = disks::listed(disks);
        let newer = match disks.is_empty() {
            true => String::new(),
            false => format!(
                ". Its disks were copied: those on {} ({disks}) are newer than those here if it has run there, and to boot it here begins \
                 with these",
                self.destination
            ),
        };
        let there = format!(
            "what it had in memory is lost; see what {} has of it (`virsh list --all`)",
            self.destination
        );
        if !self.domain.persistent {
            return format!("{there}. It had no definition: whoever made it makes it anew{newer}");
        }
        let define = self
            .place
            .command("define {}", &self.kept.display().to_string());
        let start = self.command("start {}");
        let autostart = match self.domain.autostart {
            true => format!(
                ", {} has it started with its host as it was before",
                self.command("autostart {}")
            ),
            false => String::new(),
        };
        format!(
            "{there}. If nothing of it runs or is defined there, on the source {define} has its definition back{autostart}, and {start} \
             boots it, as after a loss of power{newer}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_migrate::{CancelledBy, Reason};

    fn domain(persistent: bool, autostart: bool) -> MovingDomain {
        MovingDomain {
            uuid: "6b2c8a1e-0000-4000-8000-000000000007".to_owned(),
            name: "it's 1".to_owned(),
            persistent,
            autostart,
            paused: false,
            needs: Vec::new(),
            files_told: true,
        }
    }

    fn after(domain: &MovingDomain, outcome: &Outcome) -> Option<String> {
        let (source, destination) = ("a".parse().unwrap(), "b".parse().unwrap());
        let left = Left {
            place: Place {
                host: &source,
                uri: None,
            },
            domain,
            destination: &destination,
            kept: Path::new("/var/lib/drover/departed/7.xml"),
        };
        left.after(outcome)
    }

    fn cancelled(guest: KeptGuest) -> Outcome {
        let by = CancelledBy::Operator;
        Outcome::Cancelled { by, guest }
    }

    #[test]
    fn what_is_left_of_a_domain_is_told_with_libvirts_own_commands() {
        let web = domain(true, true);
        assert_eq!(after(&web, &Outcome::Completed), None);
        let runs = after(&web, &cancelled(KeptGuest::Runs)).unwrap();
        assert_eq!(runs, "the domain runs on the source, unharmed");
        let stopped = after(&web, &cancelled(KeptGuest::Stopped)).unwrap();
        assert!(stopped.contains(r"`virsh resume 'it'\''s 1'`"), "{stopped}");
        let gone = after(&web, &cancelled(KeptGuest::Gone)).unwrap();
        assert!(gone.contains("was not while it moved"), "{gone}");
        let gone = after(&domain(true, false), &cancelled(KeptGuest::Gone)).unwrap();
        assert!(gone.ends_with("boots it"), "{gone}");
    }

    #[test]
    fn a_domain_that_is_lost_has_its_definition_where_it_is_said_to_be() {
        let lost = Outcome::Lost {
            reason: Reason::from("its host lost power"),
        };
        let told = after(&domain(true, true), &lost).unwrap();
        let define = "`virsh define /var/lib/drover/departed/7.xml`";
        assert!(told.contains(define), "{told}");
        assert!(told.contains("`virsh autostart "), "{told}");
        let told = after(&domain(true, false), &lost).unwrap();
        assert!(!told.contains("autostart"), "{told}");
        let told = after(&domain(false, false), &lost).unwrap();
        assert!(told.contains("had no definition"), "{told}");
    }
}
