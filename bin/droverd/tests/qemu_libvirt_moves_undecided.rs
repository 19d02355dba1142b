//! Domains whose source's libvirtd dies when the destination has everything, and nobody has been told yet whose they are.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::{Path, PathBuf};

use common::host::Host;
use common::until;
use drover_api::{GuestPlace, MigrationPhase};
use drover_libvirt::DomainState;
use drover_types::MigrationId;
use pair::{Pair, verified_on};

on_each_libvirt! {
    a_domain_that_arrived_stays_when_the_sources_libvirtd_dies_before_it_hears_of_that
    a_domain_that_arrived_runs_there_when_the_sources_libvirtd_dies_after_it_has_heard_of_that
    what_libvirt_left_of_a_domain_that_was_handed_off_goes_though_the_agent_is_started_again
    what_arrived_waits_where_nobody_knows_whether_it_ran_on_at_its_source_until_that_is_decided
    what_arrived_is_given_up_where_its_copy_is_destroyed_as_nobody_knows_whether_it_ran_on
}

/// What libvirtd writes down of a domain that is in memory, and of its migration.
const STATUS: &str = "/run/libvirt/qemu/web.xml";

async fn a_domain_that_arrived_stays_when_the_sources_libvirtd_dies_before_it_hears_of_that(
    libvirt: PathBuf,
) {
    let Some((mut pair, id)) = Pair::arrived_untold(&libvirt).await else {
        return;
    };
    pair.restart_libvirtd_of_a().await;
    let view = pair.a.phase_is(id, MigrationPhase::Failed).await;
    assert_eq!(view.guest, Some(GuestPlace::Source), "{view:#?}");
    pair.b.phase_is(id, MigrationPhase::Abandoned).await;
    pair.has_stayed().await;
    assert!(pair.a.web().await.unwrap().autostart, "it is as before");
    verified_on(&pair.a.host).await;
}

async fn a_domain_that_arrived_runs_there_when_the_sources_libvirtd_dies_after_it_has_heard_of_that(
    libvirt: PathBuf,
) {
    let Some((mut pair, id)) = Pair::arrived_untold(&libvirt).await else {
        return;
    };
    // So it leaves it from when it has heard until its QEMU has ended.
    pair.a
        .host
        .shell(&format!("sed -i s/perform3_done/confirm3/ {STATUS}"));
    assert!(pair.a.host.is_at("confirm3"));
    pair.restart_libvirtd_of_a().await;
    pair.has_moved(id, DomainState::Running).await;
    assert!(pair.b.web().await.unwrap().autostart);
    verified_on(&pair.b.host).await;
}

async fn what_libvirt_left_of_a_domain_that_was_handed_off_goes_though_the_agent_is_started_again(
    libvirt: PathBuf,
) {
    let Some((mut pair, id)) = Pair::arrived_untold(&libvirt).await else {
        return;
    };
    pair.a
        .host
        .shell(&format!("sed -i s/perform3_done/confirm3/ {STATUS}"));
    assert!(pair.a.host.is_at("confirm3"));
    // It does not run there before the source's agent is gone.
    pair.b.host.signal_libvirtd("STOP");
    pair.restart_libvirtd_of_a().await;
    pair.a.phase_is(id, MigrationPhase::HandingOff).await;
    pair.a.kill_agent();
    let left = pair.a.web().await.unwrap();
    assert_eq!((left.state, left.persistent), (DomainState::ShutOff, true));
    pair.b.host.signal_libvirtd("CONT");
    pair.b.connect_again().await;
    pair.a.start_agent().await;
    pair.has_moved(id, DomainState::Running).await;
}

async fn what_arrived_waits_where_nobody_knows_whether_it_ran_on_at_its_source_until_that_is_decided(
    libvirt: PathBuf,
) {
    let Some((mut pair, id)) = Pair::arrived_untold(&libvirt).await else {
        return;
    };
    pair.power_of_a_fails().await;
    pair.is_in_doubt(id).await;
    // Whoever knows that it did not run on here says so by that.
    pair.a.host.virsh(&["undefine", "web"]);
    pair.has_moved(id, DomainState::Running).await;
    verified_on(&pair.b.host).await;
}

async fn what_arrived_is_given_up_where_its_copy_is_destroyed_as_nobody_knows_whether_it_ran_on(
    libvirt: PathBuf,
) {
    let Some((mut pair, id)) = Pair::arrived_untold(&libvirt).await else {
        return;
    };
    pair.power_of_a_fails().await;
    pair.is_in_doubt(id).await;
    pair.b.host.virsh(&["destroy", "web"]);
    let view = pair.a.phase_is(id, MigrationPhase::Failed).await;
    assert_eq!(view.guest, Some(GuestPlace::Nowhere), "{view:#?}");
    let left = pair.a.web().await.unwrap();
    assert_eq!(left.state, DomainState::ShutOff);
    assert!(left.autostart, "it is as before");
}

/// The guest finds all of its memory as it left it, and goes on.
impl Host {
    /// Whether libvirtd has written down that the migration is in this phase.
    fn is_at(&self, phase: &str) -> bool {
        let grep = format!("grep -c \"phase='{phase}'\" {STATUS} || true");
        self.shell(&grep).trim() == "1"
    }
}

impl Pair {
    /// All of a domain is at the destination; the source's libvirtd had asked for that, has not heard of it, and is dead. None where
    /// guests that verify themselves cannot run here.
    async fn arrived_untold(libvirt: &Path) -> Option<(Self, MigrationId)> {
        let mut pair = Self::busy(libvirt).await?;
        pair.a.host.virsh(&["autostart", "web"]);
        let id = pair.begun_and_sent().await;
        assert!(pair.a.host.is_at("perform3_done"));
        pair.a.host.signal_libvirtd("STOP");
        pair.b.host.signal_libvirtd("CONT");
        // Ours may have been given up meanwhile.
        pair.b.connect_again().await;
        pair.b.phase_is(id, MigrationPhase::Arrived).await;
        pair.a.host.signal_libvirtd("KILL");
        Some((pair, id))
    }

    async fn restart_libvirtd_of_a(&mut self) {
        self.a.host.start_libvirtd();
        self.a.connect_again().await;
    }

    /// The first host is as after a loss of power: nothing of what was in memory is left.
    async fn power_of_a_fails(&mut self) {
        self.a.kill_agent();
        self.a.host.shell("pkill -KILL -x droverd-relay");
        for qemu in self.a.host.qemus() {
            self.a.host.shell(&format!("kill -KILL {qemu}"));
        }
        until("nothing runs there", async || {
            self.a.host.qemus().is_empty()
        })
        .await;
        self.a.host.shell(&format!("rm {STATUS}"));
        self.restart_libvirtd_of_a().await;
        assert_eq!(self.a.state().await, Some(DomainState::ShutOff));
        self.a.start_agent().await;
    }

    /// The source tells what it does not know and what can be done, and the copy stands still.
    async fn is_in_doubt(&self, id: MigrationId) {
        until("the doubt is told", async || {
            let next = self.a.migration(id).await.next;
            next.is_some_and(|next| next.contains("may have run on here"))
        })
        .await;
        assert_eq!(self.b.state().await, Some(DomainState::Paused));
        let view = self.b.migration(id).await;
        assert_eq!(view.phase, MigrationPhase::Arrived, "{view:#?}");
    }
}
