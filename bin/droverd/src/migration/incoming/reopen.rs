//! Another session for pages that are still to follow a guest that runs here.

use std::sync::Arc;
use std::time::Instant;

use drover_api::{ErrorCode, EventKind, IncomingOffer, Refusal};
use drover_carrier::Side;
use drover_hypervisor::{MachineError, MigrationAddress, Movable};
use drover_migrate::destination::Input;
use drover_types::{Path, with_sources};
use tokio::sync::oneshot;

use super::{Asked, Incoming, Message, prepare};
use crate::limits::{POSTCOPY_PAUSES, SOON};
use crate::migration::relays::Relays;

impl Incoming {
    /// Ends what is left of the session, and makes ready for another.
    pub(super) fn reopen(&mut self, asked: &Asked) -> Result<IncomingOffer, Refusal> {
        let id = self.destination.migration().id;
        let (true, Some(reservation), Some(listener)) = (
            self.destination.may_reopen(),
            &self.reservation,
            &self.listener,
        ) else {
            let message = format!("migration {id} waits for no page here");
            return Err(Refusal::new(ErrorCode::WrongPhase, message));
        };
        let (sockets, listener) = (reservation.way_in(), Arc::clone(listener));
        let relays = Relays::of(&self.context.config.runtime);
        // Where the source knows it first.
        if !self.snapshot.borrow().events.pages_stand_still() {
            let reason = "the source opens another session".to_owned();
            self.record(EventKind::PagesStopped { reason });
        }
        self.following = None;
        self.expected = None;
        // QEMU sees its socket close before it is told to listen again. What the relay told by then was heard.
        tokio::task::block_in_place(|| {
            if let Some(before) = &self.carrier {
                before.relay.cut();
            }
            relays.end(id, Side::Destination);
        });
        self.doubt = self.doubt();
        self.carrier = None;
        self.session = self.session.wrapping_add(1);
        let reports = (self.inbox.clone(), self.session);
        let session = prepare::session(asked, sockets, &listener, &self.context, reports)?;
        self.lanes.begin_anew();
        self.carrier = Some(session.carrier);
        self.expected = Some(session.expected);
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.paths.clear();
        });
        Ok(session.offer)
    }

    /// QEMU listens for what is still to follow.
    pub(super) fn pages_go_on(&mut self) {
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.postcopy.get_or_insert_default().reopened += 1;
        });
        self.record(EventKind::PagesFollow);
        self.handle(Input::SessionReopened);
    }

    /// Has QEMU listen for the source's again.
    pub(super) fn recover(
        &mut self,
        paths: Vec<Path>,
        answer: oneshot::Sender<Result<(), Refusal>>,
    ) {
        let (true, Some(machine), Some(reservation)) = (
            self.destination.may_reopen(),
            self.machine.clone(),
            &self.reservation,
        ) else {
            let message = "the guest's QEMU does not answer here, or waits for no page";
            // The one who asked may have gone.
            let _ = answer.send(Err(Refusal::new(ErrorCode::WrongPhase, message)));
            return;
        };
        let address = MigrationAddress::Unix(reservation.way_in().qemu);
        self.set_paths(paths);
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let listens = listen_again(&*machine, &address).await;
            if listens.is_ok() {
                // The task ends only when the migration has: then nobody needs to know.
                let _ = inbox.send(Message::PagesFollow).await;
            }
            let _ =
                answer
                    .send(listens.map_err(|error| {
                        Refusal::new(ErrorCode::QemuFailed, with_sources(&error))
                    }));
        });
    }
}

/// It takes a moment until QEMU has noticed that its connection is closed.
async fn listen_again(
    machine: &dyn Movable,
    address: &MigrationAddress,
) -> Result<(), MachineError> {
    let begun = Instant::now();
    loop {
        let Err(error) = machine.recover_incoming(address).await else {
            return Ok(());
        };
        let refused = matches!(error, MachineError::Refused { .. });
        if !refused || begun.elapsed() > POSTCOPY_PAUSES {
            return Err(error);
        }
        tokio::time::sleep(SOON).await;
    }
}
