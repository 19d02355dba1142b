//! Whether what is left of a domain on the host that handed it off may be the last definition that there is.

use drover_api::DomainHeld;
use drover_libvirt::Why;
use drover_types::HostName;

/// What becomes of a definition that is left.
#[derive(Debug, PartialEq, Eq)]
pub enum Last {
    /// It may go: the destination has one.
    No,
    /// That is not known yet; why.
    NotKnown(String),
    /// It is left; why.
    Left(String),
}

impl Last {
    /// By what the destination said of the domain, and why that is off here.
    ///
    /// One that libvirt let go of, or does not tell why it is off, is what the migration left, and the destination is to have it: it is
    /// asked again. Anything else has happened here since.
    pub fn by(destination: &HostName, there: Result<DomainHeld, String>, here: Why) -> Self {
        let why = match there {
            Ok(DomainHeld::Off | DomainHeld::InMemory) => return Self::No,
            Ok(DomainHeld::Absent) => format!("libvirt of {destination} has no such domain"),
            Ok(DomainHeld::NotKnown) => {
                format!("what libvirt of {destination} has of it is not known")
            }
            Err(why) => why,
        };
        match here {
            Why::Left | Why::Unfollowed | Why::Crashed | Why::Other(_) => Self::NotKnown(format!(
                "{why}: the definition that is left here may be the last one, and does not go before {destination} has one (`virsh undefine` \
                 takes it away, where that is right)"
            )),
            here => Self::Left(format!(
                "the domain was handed off, and its definition is here, off, because {here}: it has been here since; {why}, so it is left, \
                 as it may be the last one"
            )),
        }
    }

    /// Of one that the destination gave up: whatever is here is the last.
    pub fn given_up(why: &str) -> Self {
        Self::Left(format!(
            "{why}: the definition of it that is left here stays, as it may be the last one"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_goes_only_where_the_destination_has_one() {
        let b = "b".parse().unwrap();
        let by = |there, here| Last::by(&b, there, here);
        for here in [Why::Left, Why::Unfollowed, Why::ShutDown, Why::Other(0)] {
            for there in [DomainHeld::Off, DomainHeld::InMemory] {
                assert_eq!(by(Ok(there), here), Last::No, "{here}");
            }
        }
        let unknown = || {
            [
                Ok(DomainHeld::Absent),
                Ok(DomainHeld::NotKnown),
                Err("b is silent".to_owned()),
            ]
        };
        for there in unknown() {
            let asked = by(there, Why::Unfollowed);
            assert!(matches!(asked, Last::NotKnown(_)), "{asked:?}");
        }
        for there in unknown() {
            let Last::Left(why) = by(there, Why::ShutDown) else {
                panic!();
            };
            assert!(why.contains("off, because it was shut down"), "{why}");
        }
    }
}
