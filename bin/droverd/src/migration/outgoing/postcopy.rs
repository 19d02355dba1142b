//! A guest that goes on before its pages do: they follow it from here, over another session where one broke.

use drover_api::{ErrorCode, EventKind, IncomingPaths, IncomingReopen, Refusal};
use drover_hypervisor::{MachineError, MigrationAddress};
use drover_migrate::source::Input;
use drover_migrate::{Migration, Question};
use drover_types::{AtDeadline, with_sources};

use super::connect::{Networks, Opening, open_session};
use super::{Link, Message, Outgoing};
use crate::migration::carrier::{self, Carrier};
use crate::migration::held::Sockets;
use crate::migration::observe;
use crate::migration::relays::Relays;
use crate::migration::security::Own;
use crate::peers;

impl Outgoing {
    /// Their session is over.
    pub(super) fn pages_stopped(&mut self, reason: &str) {
        self.record(EventKind::PagesStopped {
            reason: reason.to_owned(),
        });
        let reason = reason.into();
        self.handle(Input::SessionFailed { reason });
    }

    /// There is none that was begun before this agent, for pages or for memory.
    pub(super) fn session_is_gone(&mut self, reason: &str) -> Input {
        if self.source.pages_follow() {
            self.pages_have_stopped(reason);
        }
        let reason = reason.into();
        Input::SessionFailed { reason }
    }

    /// Pages have stopped, as something else than their session's own word shows: that may come as well.
    fn pages_have_stopped(&mut self, reason: &str) {
        if !self.snapshot.borrow().events.pages_stand_still() {
            self.record(EventKind::PagesStopped {
                reason: reason.to_owned(),
            });
        }
    }

    /// Whether the guest may go on before its pages do is known by now: where it was to and cannot, that is told.
    pub(super) fn postcopy_is_agreed(&mut self) {
        if !self.link.options.wants_postcopy() {
            return;
        }
        if self.has_postcopy {
            return self.reckon_with_postcopy();
        }
        let what = "no postcopy for this guest: at its deadline the migration is given up";
        self.record(EventKind::Fallback {
            what: what.to_owned(),
        });
    }

    /// What is left at the deadline follows the guest.
    pub(super) fn reckon_with_postcopy(&mut self) {
        if let Some((deadline, AtDeadline::Postcopy)) = self.link.options.convergence.deadline() {
            self.estimator.goes_on_by_postcopy(deadline);
        }
    }

    /// It does not: what else is done at a deadline is done.
    pub(super) fn postcopy_refused(&mut self, error: &MachineError) {
        let why = with_sources(error);
        self.record(EventKind::Fallback {
            what: format!("no postcopy, the migration is given up: {why}"),
        });
        let reason = why.into();
        self.handle(Input::PostcopyRefused { reason });
    }

    /// A look that begins now.
    pub(super) fn look_again(&self, attempt: Question) {
        self.with_machine(move |link, machine| async move {
            if let Ok((seen, _)) = observe::look(&*machine).await {
                link.input(Input::LookedAgain { attempt, seen }).await;
            }
        });
    }

    /// Ends what is left of the session, and opens another.
    pub(super) fn reopen_session(&mut self, attempt: Question) {
        // Where the death of its relay shows first at QEMU.
        self.pages_have_stopped("the guest's QEMU here has lost its connection");
        // One that takes too long is done with: two at once would end each other's relays.
        if let Some(before) = self.reopening.take() {
            before.abort();
        }
        self.following = None;
        let before = self.carrier.take();
        let (link, migration) = (self.link.clone(), self.source.migration().clone());
        let reopening = tokio::spawn(async move {
            let input = match reopen(&link, &migration, before, attempt).await {
                Ok((carrier, port)) => {
                    link.tell(Message::Reopened(carrier, Some(port))).await;
                    Input::SessionReopened { attempt }
                }
                Err(refusal) => {
                    let reason = refusal.message.into();
                    Input::ReopenFailed { attempt, reason }
                }
            };
            link.input(input).await;
        });
        self.reopening = Some(reopening.abort_handle());
    }

    /// Another session carries.
    pub(super) fn reopened(&mut self, carrier: Carrier, port: Option<u16>) {
        // Before QEMU is told to go on.
        for (path, rate) in self.lanes.begin_anew() {
            carrier.limit(path, Some(rate));
        }
        self.carries(carrier, port);
    }

    /// QEMU goes on over it.
    pub(super) fn pages_go_on(&mut self) {
        self.snapshot.send_modify(|snapshot| {
            snapshot.view.postcopy.get_or_insert_default().reopened += 1;
        });
        self.record(EventKind::PagesFollow);
    }

    /// Has QEMU go on over it.
    pub(super) fn resume_migration(&mut self, attempt: Question) {
        if self.machine.is_none() {
            let reason = "there is no connection to the guest's QEMU here".into();
            return self.handle(Input::ReopenFailed { attempt, reason });
        }
        let socket = self.sockets().qemu;
        self.with_machine(move |link, machine| async move {
            let resumed = machine.migrate_again(&MigrationAddress::Unix(socket)).await;
            let input = match resumed {
                Err(error) if !error.is_unanswered() => {
                    let reason = with_sources(&error).into();
                    Input::ResumeRefused { attempt, reason }
                }
                _ => {
                    link.tell(Message::PagesFollow).await;
                    Input::MigrationResumed { attempt }
                }
            };
            link.input(input).await;
        });
    }
}

/// Opens another session in the place of `before`, and has the destination's QEMU listen for this host's; with
/// the destination's port for lanes.
async fn reopen(
    link: &Link,
    migration: &Migration,
    before: Option<Carrier>,
    attempt: Question,
) -> Result<(Carrier, u16), Refusal> {
    let config = &link.context.config;
    let (id, destination) = (migration.id, &migration.destination);
    end(link, migration, before).await?;
    let networks = Networks::of_this_host(link).await?;
    let own = Own::new(config.migration.protection)?;
    let request = IncomingReopen {
        session: carrier::session_sizes(&networks.rates(), 0, 0),
        lanes: own.told(),
        outage_limit_s: config.migration.outage_limit.as_secs(),
    };
    let offer = link.client.incoming_reopen(id, &request).await;
    let offer = offer.map_err(|error| peers::unreachable(destination, &error))?;
    let keys = own.accept(destination, &offer.lanes)?;
    let paths = networks.pair(&offer).await.paths;
    if paths.is_empty() {
        let message = format!("no interface of this host reaches one of {destination}");
        return Err(Refusal::new(ErrorCode::NoPath, message));
    }
    let (port, sizes) = (offer.data_port, offer.session);
    let own = Relays::of(&link.context.config.runtime).sockets(migration.id);
    let opening = Opening {
        migration: migration.clone(),
        paths: paths.clone(),
        offer,
        keys,
        sizes,
        attempt,
        kept: None,
        // Only guests of the agent's own get so far.
        sockets: Sockets::of(own.qemu),
    };
    let opened = open_session(link, opening).await;
    let carrier = opened.map_err(|reason| Refusal::new(ErrorCode::NoPath, reason))?;
    let listens = link
        .client
        .incoming_recover(id, &IncomingPaths { paths })
        .await;
    match listens {
        Ok(_) => Ok((carrier, port)),
        Err(error) => {
            carrier.close(false);
            Err(peers::unreachable(destination, &error))
        }
    }
}

/// When this returns nothing of a session of before reaches QEMU any more.
async fn end(link: &Link, migration: &Migration, before: Option<Carrier>) -> Result<(), Refusal> {
    let relays = Relays::of(&link.context.config.runtime);
    let id = migration.id;
    let ended = tokio::task::spawn_blocking(move || {
        if let Some(before) = before {
            before.relay.cut();
        }
        relays.end(id, drover_carrier::Side::Source);
    });
    ended.await.map_err(|error| {
        let message = format!("the relay of before was not ended: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })
}
