//! Asks of a run, put to the agents and the planner, one request each.
//!
//! This host's own agent is asked like the others, over its socket.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::{
    Client, ClientError, CordonRequest, DomainHeld, ErrorCode, GuestPlace, HeldView,
    MigrateRequest, MigrationPhase, MigrationView, Refusal, VmSource, VmState, VmView,
};
use drover_execute::journal::Blame;
use drover_execute::{Answer, Ask, Guest, GuestAt, Look, Phase, Place};
use drover_plan::Text;
use drover_plan::inventory::VmState as Planned;
use drover_types::{ByteRate, Convergence, HostName, MigrationId, RunId, VmName, with_sources};
use futures_util::future::join_all;
use uuid::Uuid;

use super::parking;
use super::standing::Standing;
use crate::agent::Context;
use crate::cordon;
use crate::migration::{CANCELLED_BY_OPERATOR, PAST_DEADLINE};

/// Whoever can be asked.
#[derive(Debug, Clone)]
pub struct Agents {
    pub context: Arc<Context>,
    pub run: RunId,
    pub standing: Standing,
}

impl Agents {
    /// Puts an ask to the agents that it is for; planning is none of theirs.
    pub async fn put(&self, ask: &Ask) -> Answer {
        let answered = match ask {
            Ask::Cordon { host } => self.cordon(host).await,
            Ask::Uncordon { host } => self.uncordon(host).await,
            Ask::Lift { host } => self.lift(host).await,
            Ask::Order {
                migration,
                vm,
                from,
                to,
                with_disks,
                ..
            } => self.order(*migration, vm, [from, to], *with_disks).await,
            Ask::Look {
                migration, from, ..
            } => self.look(*migration, from).await,
            Ask::CallBack {
                migration, from, ..
            } => self.call_back(*migration, from).await,
            Ask::Place { vm, from, to, .. } => self.place(vm, from, to).await,
            Ask::Park {
                park,
                vm,
                host,
                how,
                begin,
                ..
            } => {
                let order = (*park, *how, *begin);
                parking::park(&self.standing, self.client(host), vm, order).await
            }
            Ask::Unpark {
                park,
                start,
                vm,
                host,
                begin,
                ..
            } => {
                let order = (*park, *start, *begin);
                parking::unpark(&self.standing, self.client(host), vm, order).await
            }
            Ask::Census { hosts, .. } => self.census(hosts).await,
            Ask::Plan { .. } => Err(Text::from("a plan is no agent's to make".to_owned())),
        };
        answered.unwrap_or_else(|why| Answer::Silence { why })
    }

    fn client(&self, host: &HostName) -> Result<Client, Text> {
        let client = if *host == self.context.config.host {
            Client::unix(self.context.config.socket.clone())
        } else {
            let client = self.context.peers.client(host);
            client.map_err(|refusal| Text::from(refusal.message))?
        };
        Ok(match self.standing.generation() {
            Some(generation) => client.leading(generation),
            None => client,
        })
    }

    /// Why, as the others see it; and how the run knows its own cordon again.
    fn reason(&self) -> String {
        cordon::reason_of(self.run)
    }

    async fn cordon(&self, host: &HostName) -> Result<Answer, Text> {
        let reason = Some(self.reason());
        let request = CordonRequest {
            reason: reason.clone(),
        };
        self.standing.check()?;
        let view = self.client(host)?.cordon(&request).await;
        let cordon = view.map_err(|error| said(&error))?.cordon;
        // One that was there before stays as it was.
        let before = cordon.is_some_and(|cordon| cordon.reason != reason);
        Ok(Answer::Cordoned { before })
    }

    async fn uncordon(&self, host: &HostName) -> Result<Answer, Text> {
        self.standing.check()?;
        let asked = self.client(host)?.uncordon().await;
        asked.map_err(|error| said(&error))?;
        Ok(Answer::Uncordoned)
    }

    /// A cordon that somebody set meanwhile, or before, stays.
    async fn lift(&self, host: &HostName) -> Result<Answer, Text> {
        let view = self
            .client(host)?
            .host()
            .await
            .map_err(|error| said(&error))?;
        let reason = self.reason();
        let own = view
            .cordon
            .is_some_and(|cordon| cordon.reason == Some(reason));
        if own {
            return self.uncordon(host).await;
        }
        Ok(Answer::Uncordoned)
    }

    async fn order(
        &self,
        id: MigrationId,
        vm: &VmName,
        [from, to]: [&HostName; 2],
        with_disks: bool,
    ) -> Result<Answer, Text> {
        let request = MigrateRequest {
            to: to.clone(),
            convergence: Convergence::default(),
            channels: None,
            lanes_per_path: None,
            reduction: None,
            with_disks,
            id: Some(id),
        };
        self.standing.check()?;
        match self.client(from)?.migrate(vm, &request).await {
            Ok(view) => Ok(Answer::Look(look(&view))),
            Err(ClientError::Refused(refusal)) => {
                // One that a destination refuses has ended, and its source knows it.
                let may_be_either = refusal.code == ErrorCode::LibvirtNotKnown;
                let answer = refused(refusal);
                if answer.is_ok() && !may_be_either {
                    return answer;
                }
                match self.look(id, from).await? {
                    Answer::NoSuchMigration => answer.map(of_source),
                    known => Ok(known),
                }
            }
            Err(error) => Err(said(&error)),
        }
    }

    async fn look(&self, id: MigrationId, from: &HostName) -> Result<Answer, Text> {
        match self.client(from)?.migration(id).await {
            Ok(view) => Ok(Answer::Look(look(&view))),
            Err(error) if error.is_refused_with(ErrorCode::NoSuchMigration) => {
                Ok(Answer::NoSuchMigration)
            }
            Err(error) => Err(said(&error)),
        }
    }

    async fn call_back(&self, id: MigrationId, from: &HostName) -> Result<Answer, Text> {
        self.standing.check()?;
        match self.client(from)?.cancel(id).await {
            Ok(_) => Ok(Answer::GoesItsWay),
            Err(error) if error.is_refused_with(ErrorCode::NoSuchMigration) => {
                Ok(Answer::CalledBack)
            }
            Err(error)
                if error.is_refused_with(ErrorCode::TooLate)
                    || error.is_refused_with(ErrorCode::MigrationEnded) =>
            {
                Ok(Answer::GoesItsWay)
            }
            Err(error) => Err(said(&error)),
        }
    }

    async fn place(&self, vm: &VmName, from: &HostName, to: &HostName) -> Result<Answer, Text> {
        let (source, destination) = (self.client(from)?, self.client(to)?);
        let (here, there) = tokio::join!(source.held(vm), destination.held(vm));
        let on_source = in_memory(vm, &here.map_err(|error| said(&error))?)?;
        // Where it has no process, to show it would be to show a domain of libvirt's that is called so, or to ask all hosts for it.
        let on_destination = match in_memory(vm, &there.map_err(|error| said(&error))?)? {
            true => match destination.vm(vm).await {
                Ok(view) => runs(vm, &view)?,
                Err(error) if error.refusal().is_some_and(is_not_there) => None,
                Err(error) => return Err(said(&error)),
            },
            false => None,
        };
        Ok(Answer::Place(Place {
            on_source,
            on_destination,
        }))
    }

    async fn census(&self, hosts: &BTreeSet<HostName>) -> Result<Answer, Text> {
        let asked = hosts.iter().map(async |host| {
            let view = self.client(host)?.inventory().await;
            let view = view.map_err(|error| said(&error))?;
            let here = view.vms.into_iter();
            // One that arrives, or has arrived and waits for its source's word, is here as well.
            let here = here.filter(|vm| {
                let arrives = vm.moving_to.as_ref() == Some(host);
                arrives || (vm.host == *host && vm.state != Planned::Stopped)
            });
            let guests = here.map(|vm| Guest {
                host: host.clone(),
                moving: vm.moving_to.is_some(),
                vm: vm.name,
            });
            Ok::<Vec<Guest>, Text>(guests.collect())
        });
        let answers: Result<Vec<_>, Text> = join_all(asked).await.into_iter().collect();
        Ok(Answer::Census(answers?.into_iter().flatten().collect()))
    }
}

pub(super) fn said(error: &ClientError) -> Text {
    Text::from(with_sources(error))
}

/// Whether a host has something in memory of a guest that a run moved. Domains of libvirt's are moved by their ids: one that has a
/// guest's name is another guest, which the run has not moved.
///
/// # Errors
/// That is not known there.
fn in_memory(vm: &VmName, held: &HeldView) -> Result<bool, Text> {
    if held.process || !is_id(vm) {
        return Ok(held.process);
    }
    match held.domain {
        Some(DomainHeld::InMemory) => Ok(true),
        Some(DomainHeld::NotKnown) => Err(Text::from(
            "its libvirt does not tell whether it has the domain in memory".to_owned(),
        )),
        Some(DomainHeld::Absent | DomainHeld::Off) | None => Ok(false),
    }
}

/// As plans name a domain.
fn is_id(vm: &VmName) -> bool {
    let id = vm.as_str().parse::<Uuid>();
    id.is_ok_and(|id| id.to_string() == vm.as_str())
}

/// Whether a guest runs where this was said of it; none where it has no process there.
///
/// # Errors
/// It is a domain of which libvirt does not tell there.
fn runs(vm: &VmName, view: &VmView) -> Result<Option<bool>, Text> {
    let running = view.state == VmState::Running;
    match (view.source, view.state) {
        (VmSource::Drover, _) => Ok(view.pid.map(|_| running)),
        (VmSource::Libvirt, _) if view.uuid.as_deref() != Some(vm.as_str()) => Ok(None),
        (VmSource::Libvirt, VmState::Unknown | VmState::Unreachable) => {
            let why = view.problem.as_deref();
            let why = why.unwrap_or("libvirt does not tell whether it runs");
            Err(Text::from(why.to_owned()))
        }
        (VmSource::Libvirt, VmState::Stopped) => Ok(None),
        (VmSource::Libvirt, _) => Ok(Some(running)),
        _ => Ok(None),
    }
}

/// A refusal for which no destination is to blame.
fn of_source(answer: Answer) -> Answer {
    match answer {
        Answer::Refused { why, .. } => Answer::Refused {
            why,
            blame: Blame::Moment,
        },
        other => other,
    }
}

fn is_not_there(refusal: &Refusal) -> bool {
    matches!(refusal.code, ErrorCode::NoSuchVm | ErrorCode::VmElsewhere)
}

/// What a refusal of an order means: that it was not heard, or that it will not be done.
fn refused(refusal: Refusal) -> Result<Answer, Text> {
    let why = match refusal.next {
        Some(next) => format!("{}; {next}", refusal.message),
        None => refusal.message,
    };
    let why = Text::from(why);
    match blame(refusal.code) {
        Some(blame) => Ok(Answer::Refused { why, blame }),
        None => Err(why),
    }
}

/// What is to blame where an order was refused; nothing where it may be taken a moment later.
fn blame(code: ErrorCode) -> Option<Blame> {
    use ErrorCode as Code;
    match code {
        Code::ShuttingDown | Code::TooManyRequests | Code::Timeout | Code::Superseded => None,
        // This host coordinates no longer, or the agent has not heard yet that it does.
        Code::NotAPeer => None,
        Code::VmBusy | Code::MigrationUnderWay | Code::Internal => Some(Blame::Moment),
        // The source says so of what it has. That there is no room for it beside libvirt's domains is the destination's word.
        Code::OfLibvirt => Some(Blame::Guest),
        Code::NoSuchVm
        | Code::VmNotRunning
        | Code::VmElsewhere
        | Code::VmHandedOff
        | Code::DefinitionInvalid
        | Code::LocalOnly
        | Code::BadRequest => Some(Blame::Guest),
        _ => Some(Blame::Destination),
    }
}

/// A migration as a run sees it.
fn look(view: &MigrationView) -> Look {
    let text = |fallback: &str| {
        let cause = view.cause.as_deref().unwrap_or(fallback);
        Text::from(cause.to_owned())
    };
    let failed = |blame| Phase::Failed {
        why: text("its agent tells no cause"),
        guest: match view.guest {
            Some(GuestPlace::Source) => GuestAt::Source,
            _ => GuestAt::Elsewhere,
        },
        blame,
    };
    let phase = match view.phase {
        MigrationPhase::Preparing | MigrationPhase::Connecting => Phase::Preparing,
        // Pages follow a guest that runs there already: for as long as there are some.
        MigrationPhase::Transferring | MigrationPhase::Serving => Phase::Transferring,
        MigrationPhase::Cancelling => Phase::CallingBack,
        MigrationPhase::Completed => Phase::Completed,
        MigrationPhase::Cancelled if view.cause.as_deref() == Some(CANCELLED_BY_OPERATOR) => {
            Phase::Cancelled
        }
        // Its agent was stopped before the first byte.
        MigrationPhase::Cancelled => failed(Blame::Moment),
        // It writes as fast wherever it is to go.
        MigrationPhase::Failed if view.cause.as_deref() == Some(PAST_DEADLINE) => {
            failed(Blame::Guest)
        }
        MigrationPhase::Failed
        | MigrationPhase::Refused
        | MigrationPhase::GivenUp
        | MigrationPhase::CutOff => failed(Blame::Destination),
        _ => Phase::HandingOff,
    };
    let rate = match phase {
        Phase::Transferring => view.rate,
        _ => ByteRate(0),
    };
    Look {
        phase,
        bytes: [
            view.bytes.transferred,
            view.bytes.remaining,
            view.bytes.total,
        ],
        rate,
        left_ms: view.time_left_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_domain_of_libvirts_is_not_taken_for_the_guest_that_a_run_moved() {
        let said = |source: &str, pid: Option<u32>| {
            let view = json!({"name": "web", "state": "running", "source": source, "pid": pid});
            runs(
                &"web".parse().unwrap(),
                &serde_json::from_value(view).unwrap(),
            )
        };
        assert_eq!(said("drover", Some(7)), Ok(Some(true)));
        assert_eq!(said("drover", None), Ok(None));
        assert_eq!(said("libvirt", Some(7)), Ok(None));
    }

    #[test]
    fn a_domain_that_a_run_moved_by_its_id_is_seen_where_it_is() {
        let id: VmName = "00000000-0000-0000-0000-000000000007".parse().unwrap();
        let held = |domain: &str| {
            let held = json!({"process": false, "definition": false, "domain": domain});
            in_memory(&id, &serde_json::from_value(held).unwrap())
        };
        assert_eq!(held("in-memory"), Ok(true));
        assert_eq!((held("off"), held("absent")), (Ok(false), Ok(false)));
        assert!(held("not-known").is_err(), "it is asked again");
        let web = "web".parse().unwrap();
        let named = json!({"process": false, "definition": false, "domain": "in-memory"});
        let named = in_memory(&web, &serde_json::from_value(named).unwrap());
        assert_eq!(named, Ok(false), "a domain that is called as a guest");
        let said = |state: &str, uuid: &str| {
            let view =
                json!({"name": "Käfer 1", "state": state, "source": "libvirt", "uuid": uuid});
            runs(&id, &serde_json::from_value(view).unwrap())
        };
        assert_eq!(said("running", id.as_str()), Ok(Some(true)));
        assert_eq!(said("paused", id.as_str()), Ok(Some(false)));
        assert_eq!(said("stopped", id.as_str()), Ok(None));
        assert_eq!(said("running", "another"), Ok(None));
        for state in ["unknown", "unreachable"] {
            assert!(
                said(state, id.as_str()).is_err(),
                "{state}: it is asked again"
            );
        }
    }

    #[test]
    fn a_sources_libvirt_that_does_not_answer_is_no_destinations_fault() {
        let (code, message) = (ErrorCode::LibvirtNotKnown, "no answer");
        let answer = refused(Refusal::new(code, message)).unwrap();
        let Answer::Refused { blame, .. } = of_source(answer) else {
            panic!("it is refused");
        };
        assert_eq!(blame, Blame::Moment);
    }

    #[test]
    fn a_guest_that_is_libvirts_is_not_tried_again_and_one_in_whose_way_it_is_goes_elsewhere() {
        assert_eq!(blame(ErrorCode::OfLibvirt), Some(Blame::Guest));
        let theirs = [
            ErrorCode::DomainInMemory,
            ErrorCode::HostLacks,
            ErrorCode::LibvirtNotKnown,
        ];
        for code in theirs {
            assert_eq!(blame(code), Some(Blame::Destination), "{code}");
        }
    }
}
