//! What is still to be done with a domain whose migration has ended, for as long as it takes.

use std::time::Duration;

use drover_libvirt::{CallError, Connection, Look, Why};
use drover_types::{MigrationId, with_sources};
use uuid::Uuid;

use super::line::Line;
use super::record::DomainRecord;
use super::turns::Turn;
use crate::agent::Context;
use crate::disks;
use crate::libvirt::is_in_memory;

/// What this host has of a domain that did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// A definition; it is off.
    Definition,
    /// It is in memory, by somebody's doing.
    InMemory,
}

/// A domain, over a connection of its own, whose migration has ended.
///
/// # Invariant
/// What is changed of it is changed in its turn. That is taken for a few calls to libvirt, and for no question to another host:
/// whoever wants to move the domain meanwhile is refused.
#[derive(Debug)]
pub struct Ended<'a> {
    context: &'a Context,
    migration: MigrationId,
    record: &'a DomainRecord,
    uuid: Uuid,
    connection: Connection,
}

impl<'a> Ended<'a> {
    /// # Errors
    /// libvirt is not reached.
    pub async fn reach(
        context: &'a Context,
        migration: MigrationId,
        record: &'a DomainRecord,
    ) -> Result<Self, String> {
        let uuid = record.moving.uuid.parse::<Uuid>();
        let uuid = uuid.map_err(|error| error.to_string())?;
        let line = Line::new(context.libvirt.whereabouts());
        Ok(Self {
            context,
            migration,
            record,
            uuid,
            connection: line.connect().await?,
        })
    }

    fn turn(&self) -> Result<Turn, String> {
        let turns = self.context.libvirt.turns();
        let turn = turns.settle_it(self.uuid, self.migration);
        turn.map_err(|taken| format!("it {taken}"))
    }

    /// Has what was changed of it so that it could move be as before.
    ///
    /// # Errors
    /// It moves again, libvirt's reason, or no answer.
    pub async fn give_back(&self) -> Result<Given, String> {
        let _turn = self.turn()?;
        let given = give_back(&self.connection, self.uuid, self.record).await;
        given.map_err(|error| with_sources(&error))
    }

    /// What there is of it.
    ///
    /// # Errors
    /// libvirt's reason, or no answer.
    pub async fn left(&self) -> Result<Left, String> {
        let left = left(&self.connection, self.uuid).await;
        left.map_err(|error| with_sources(&error))
    }

    /// Notes how what was made here for its disks stands, once nobody has it open.
    ///
    /// # Errors
    /// It is not known, or cannot be written down.
    pub async fn settle_disks(&self) -> Result<(), String> {
        let works = &self.context.disk_works;
        disks::settle(works, &self.context.config.state, self.migration).await
    }

    /// Takes away what was made here for its disks, unless it is in memory: in words; none where it is.
    ///
    /// # Errors
    /// It moves again, libvirt's reason or no answer, or some of it stays for now.
    pub async fn remove_disks(&self) -> Result<Option<String>, String> {
        let _turn = self.turn()?;
        // Somebody may have started it while its source was asked.
        if self.left().await? == Left::InMemory {
            return Ok(None);
        }
        let works = &self.context.disk_works;
        let removed = disks::remove(works, &self.context.config.state, self.migration).await?;
        Ok(Some(removed.told()))
    }

    /// What was made here for its disks is its own.
    pub fn keep_disks(&self) {
        disks::give(&self.context.config.state, self.migration);
    }

    /// Takes its definition away, if it is off: what is left then.
    ///
    /// # Errors
    /// It moves again, libvirt's reason, or no answer.
    pub async fn undefine(&self) -> Result<Left, String> {
        let _turn = self.turn()?;
        let undefined = self.connection.undefine(self.uuid).await;
        let undefined = undefined.map_err(|error| with_sources(&error))?;
        Ok(undefined.map_or(Left::Nothing, |_| Left::InMemory))
    }
}

/// What came of having a domain be as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// It is.
    Back,
    /// There is no such domain here any more.
    NoSuch,
    /// Its definition is what it left behind when somebody moved it: started with this host it would run twice.
    LeftBehind,
}

impl Given {
    /// As it is told.
    pub fn told(self) -> &'static str {
        match self {
            Self::Back => "what was changed of the domain is as it was before",
            Self::NoSuch => {
                "libvirt has no such domain here any more: what was changed of it is not as it was before, wherever it is"
            }
            Self::LeftBehind => {
                "libvirt says that the domain has left for another host, and has a definition of it here still: that is not started \
                 with this host, as it would run twice"
            }
        }
    }
}

/// What can be as before of what is here.
pub(super) async fn give_back(
    connection: &Connection,
    domain: Uuid,
    record: &DomainRecord,
) -> Result<Given, CallError> {
    let look = connection.look(domain).await?;
    let given = given(look.as_ref());
    let Some(look) = look.filter(|_| given == Given::Back) else {
        return Ok(given);
    };
    if record.moving.autostart && look.domain.persistent {
        connection.set_autostart(domain, true).await?;
    }
    if let Some(millis) = record.downtime_limit_ms
        && is_in_memory(look.domain.state)
    {
        let limit = Duration::from_millis(millis);
        connection.set_max_downtime(domain, limit).await?;
    }
    Ok(given)
}

fn given(look: Option<&Look>) -> Given {
    match look {
        None => Given::NoSuch,
        Some(look) if !is_in_memory(look.domain.state) && look.why == Why::Left => {
            Given::LeftBehind
        }
        Some(_) => Given::Back,
    }
}

pub(super) async fn left(connection: &Connection, domain: Uuid) -> Result<Left, CallError> {
    let look = connection.look(domain).await?;
    Ok(match look {
        None => Left::Nothing,
        Some(look) if is_in_memory(look.domain.state) => Left::InMemory,
        Some(_) => Left::Definition,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;
    use drover_libvirt::DomainState;

    #[test]
    fn what_is_only_left_behind_is_not_started_with_its_host() {
        let of = |state, why| {
            given(Some(&Look {
                domain: domain("web", state),
                why,
            }))
        };
        assert_eq!(of(DomainState::Running, Why::Other(1)), Given::Back);
        assert_eq!(of(DomainState::ShutOff, Why::ShutDown), Given::Back);
        assert_eq!(of(DomainState::ShutOff, Why::Other(0)), Given::Back);
        assert_eq!(of(DomainState::ShutOff, Why::Left), Given::LeftBehind);
        assert_eq!(given(None), Given::NoSuch);
        assert!(Given::NoSuch.told().contains("is not as it was before"));
    }
}
