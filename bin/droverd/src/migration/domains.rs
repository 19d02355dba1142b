//! Migrations of libvirt's domains: in what they differ from those of the agent's own guests.

use std::sync::Arc;

use drover_api::{
    ErrorCode, EventKind, IncomingRequest, MigrateRequest, MigrationRole, MigrationView, Refusal,
};
use drover_migrate::{Migration, WaitingOn};
use drover_types::{AtDeadline, Convergence, VmName};

use super::Migrations;
use super::held::Held;
use super::outgoing::Options;
use super::security;
use super::snapshot::Snapshot;
use crate::libvirt::{self, DomainRecord};
use crate::registry::Reservation;

impl Migrations {
    /// The right to a domain that is to leave, and how it is moved; `no_such` is what is answered where there is none.
    ///
    /// # Errors
    /// It cannot be moved, or not as it is asked for.
    pub(super) async fn domain_to_leave(
        &self,
        migration: &Migration,
        request: &MigrateRequest,
        no_such: Refusal,
        snapshot: &mut Snapshot,
    ) -> Result<(Arc<dyn Held>, Options), Refusal> {
        let leaving = libvirt::to_leave(&self.context, migration, no_such).await?;
        self.settle_before(&leaving).await?;
        let (held, notes) = leaving.held(request.with_disks).await?;
        not_built(&migration.vm, request)?;
        let configured = self.context.config.migration.protection.encryption;
        let encrypted = security::note_of_domain(configured);
        for what in notes.into_iter().chain(encrypted) {
            snapshot.record(EventKind::Fallback { what });
        }
        let mut options = self.options(request, Convergence::default());
        options.disks = held.disks();
        if let Some(what) = without(&mut options) {
            snapshot.record(EventKind::Fallback { what });
        }
        Ok((Arc::new(held), options))
    }

    /// The right to a guest that arrives.
    ///
    /// # Errors
    /// It is a domain, and cannot be taken in.
    pub(super) async fn guest_to_arrive(
        &self,
        migration: &Migration,
        request: &IncomingRequest,
        reservation: Reservation,
    ) -> Result<Arc<dyn Held>, Refusal> {
        let Some(domain) = &request.domain else {
            return self.own_to_arrive(migration, request, reservation).await;
        };
        let held = libvirt::arrive(&self.context, migration, request, domain, reservation).await?;
        Ok(Arc::new(held))
    }
}

/// By what other hosts are asked for a domain.
pub(super) fn id(domain: &DomainRecord) -> Option<VmName> {
    domain.moving.uuid.parse().ok()
}

/// What was asked for and cannot be had is not left out in silence.
fn not_built(vm: &VmName, request: &MigrateRequest) -> Result<(), Refusal> {
    if request.convergence.at_deadline != Some(AtDeadline::Postcopy) {
        return Ok(());
    }
    let message = format!("guest {vm} is libvirt's: postcopy is not possible for its domains yet");
    let instead = "migrate it with another end, such as `--at-deadline give-up`";
    Err(Refusal::new(ErrorCode::OfLibvirt, message).next(instead))
}

/// Takes out of what is configured for all guests what cannot be had; what that is.
fn without(options: &mut Options) -> Option<String> {
    options.wants_postcopy().then(|| {
        options.convergence.at_deadline = Some(AtDeadline::GiveUp);
        "no postcopy for libvirt's domains: at its deadline the migration is given up".to_owned()
    })
}

/// What an operator can do when a wait takes long; `None` where a deadline ends it. Of a domain, libvirt is between.
pub(super) fn what_to_do(on: WaitingOn, is_domain: bool) -> Option<&'static str> {
    let advice = on.what_to_do();
    if !is_domain {
        return advice;
    }
    match on {
        WaitingOn::HypervisorToCancel | WaitingOn::HypervisorToAnswer => Some(
            "libvirt does not tell, and only it knows whether the domain has left: nothing is resumed or ended until it does. See that \
             libvirtd runs, and whether the domain's QEMU answers it",
        ),
        WaitingOn::SourceToForget | WaitingOn::SourceToTakeBack => Some(
            "see what keeps libvirt from letting go of the domain: nothing of it is ended by force",
        ),
        WaitingOn::HypervisorToEnd | WaitingOn::HypervisorToSettle => {
            Some("see what keeps libvirt from ending what came of the domain")
        }
        _ => advice,
    }
}

/// What is answered to who would decide in the place of a host that is silent.
pub(super) fn by_hand(view: &MigrationView) -> Refusal {
    let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
    let commands = view.ambiguity.as_ref().map(|doubt| doubt.commands.clone());
    let message = format!(
        "guest {vm} is libvirt's, of which the agents do not take an operator's decision yet"
    );
    let next = match view.role {
        MigrationRole::Destination => format!(
            "make sure that it runs neither on {source} nor will; then one of these on {destination} has it run, or gives it up, and the \
             agent sees either: {}",
            commands.unwrap_or_default().join(", ")
        ),
        MigrationRole::Source => format!(
            "`virsh domstate {vm}` on {destination} tells whether it runs there; nothing of it can run on {source} any more"
        ),
    };
    Refusal::new(ErrorCode::OfLibvirt, message).next(next)
}

#[cfg(test)]
mod tests {
    use drover_types::ReductionMode;

    use super::*;

    fn request(json: &str) -> MigrateRequest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_cannot_be_had_for_a_domain_is_refused_where_it_is_asked_for() {
        let vm = "web".parse().unwrap();
        let refused = |json| not_built(&vm, &request(json));
        assert_eq!(refused(r#"{"to": "b"}"#), Ok(()));
        assert_eq!(refused(r#"{"to": "b", "reduction": "zstd:1"}"#), Ok(()));
        let postcopy = r#"{"to": "b", "convergence": {"at_deadline": "postcopy"}}"#;
        let postcopy = refused(postcopy).unwrap_err();
        assert_eq!(postcopy.code, ErrorCode::OfLibvirt);
        assert!(postcopy.message.contains("postcopy"), "{postcopy}");
    }

    #[test]
    fn what_to_do_for_a_domain_is_not_told_of_a_qemu_of_drovers() {
        let told = |on| what_to_do(on, true).unwrap();
        for on in [
            WaitingOn::HypervisorToCancel,
            WaitingOn::SourceToForget,
            WaitingOn::HypervisorToEnd,
        ] {
            assert!(told(on).contains("libvirt"), "{on:?}");
            assert_eq!(what_to_do(on, false), on.what_to_do());
        }
        assert_eq!(
            what_to_do(WaitingOn::Journal, true),
            WaitingOn::Journal.what_to_do()
        );
        assert_eq!(what_to_do(WaitingOn::Lanes, true), None);
    }

    #[test]
    fn what_is_configured_for_all_guests_and_cannot_be_had_is_left_out_and_told() {
        let mut options = Options {
            convergence: Convergence::defaults(),
            channels: None,
            lanes_per_path: (1, 4),
            reduction: ReductionMode::Auto,
            disks: 0,
        };
        assert_eq!(without(&mut options), None);
        let wished = r#"{"deadline_s": 60, "at_deadline": "postcopy"}"#;
        options.convergence = serde_json::from_str(wished).unwrap();
        let told = without(&mut options).unwrap();
        assert!(told.contains("no postcopy"), "{told}");
        assert!(!options.wants_postcopy());
    }
}
