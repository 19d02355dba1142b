//! What became of the bytes of guests, where fewer of them cross.

use std::sync::atomic::AtomicU64;

use drover_api::{MigrationView, ReductionView, SharedPagesView};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::moment::{Moving, labels};

/// One of the things that are told apart in a family.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pages {
    vm: String,
    peer: String,
    pages: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Section {
    vm: String,
    peer: String,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stage {
    vm: String,
    peer: String,
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Found {
    vm: String,
    peer: String,
    found: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    vm: String,
    peer: String,
    mode: String,
}

#[derive(Default)]
struct Families {
    raw: Family<Moving, Counter>,
    wire: Family<Moving, Counter>,
    passed: Family<Moving, Counter>,
    pages: Family<Pages, Counter>,
    section: Family<Section, Counter>,
    packed: Family<Section, Counter>,
    seconds: Family<Stage, Counter<f64, AtomicU64>>,
    used: Family<Used, Gauge>,
    found: Family<Found, Counter>,
}

pub(super) fn register(registry: &mut Registry, views: &[&MigrationView]) {
    let families = Families::default();
    for view in views {
        if let Some(reduction) = &view.reduction {
            families.add(labels(view), reduction);
        }
        if let Some(shared) = &view.shared_pages {
            families.add_found(labels(view), shared);
        }
    }
    families.register(registry);
}

impl Families {
    fn add(&self, moving: Moving, view: &ReductionView) {
        for (family, bytes) in [
            (&self.raw, view.raw_bytes),
            (&self.wire, view.wire_bytes),
            (&self.passed, view.passed_bytes),
        ] {
            family.get_or_create(&moving).inc_by(bytes.0);
        }
        let Moving { vm, peer, .. } = moving;
        self.add_pages(&vm, &peer, view);
        for (class, section) in [("ordinary", view.ordinary), ("dense", view.dense)] {
            let (vm, peer) = (vm.clone(), peer.clone());
            let labels = Section { vm, peer, class };
            self.section.get_or_create(&labels).inc_by(section.bytes.0);
            self.packed.get_or_create(&labels).inc_by(section.packed.0);
        }
        self.add_times(&vm, &peer, view);
        let mode = view
            .decided
            .as_ref()
            .map_or(view.mode, |decided| decided.mode);
        let mode = mode.to_string();
        self.used.get_or_create(&Used { vm, peer, mode }).set(1);
    }

    fn add_pages(&self, vm: &str, peer: &str, view: &ReductionView) {
        let of = view.pages;
        for (pages, number) in [
            ("filled", of.filled),
            ("same", of.same),
            ("stored", of.stored),
            ("stored_changed", of.stored_changed),
            ("changed", of.changed),
            ("ordinary", of.ordinary),
            ("dense", of.dense),
        ] {
            let (vm, peer) = (vm.to_owned(), peer.to_owned());
            let labels = Pages { vm, peer, pages };
            self.pages.get_or_create(&labels).inc_by(number);
        }
    }

    fn add_found(&self, moving: Moving, view: &SharedPagesView) {
        let Moving { vm, peer, .. } = moving;
        for (found, number) in [
            ("shared", view.found),
            ("checkpoint", view.found_in_checkpoint),
        ] {
            let (vm, peer) = (vm.clone(), peer.clone());
            let labels = Found { vm, peer, found };
            self.found.get_or_create(&labels).inc_by(number);
        }
    }

    fn add_times(&self, vm: &str, peer: &str, view: &ReductionView) {
        let times = view.times;
        for (stage, milliseconds) in [
            ("lines", times.lines_ms),
            ("destination", times.destination_ms),
            ("hypervisor", times.hypervisor_ms),
            ("processors", times.processors_ms),
            ("describing", times.describing_ms),
            ("packing", times.packing_ms),
            ("trying", times.trying_ms),
            ("carrying", times.carrying_ms),
        ] {
            let (vm, peer) = (vm.to_owned(), peer.to_owned());
            let labels = Stage { vm, peer, stage };
            let seconds = milliseconds as f64 / 1000.0;
            self.seconds.get_or_create(&labels).inc_by(seconds);
        }
    }

    fn register(self, registry: &mut Registry) {
        let help = "Bytes of QEMU that were to be reduced";
        registry.register("migration_reduction_raw_bytes", help, self.raw);
        let help = "Bytes that crossed for them";
        registry.register("migration_reduction_wire_bytes", help, self.wire);
        let help = "Of them, bytes that were carried as they are, as that was faster";
        registry.register("migration_reduction_passed_bytes", help, self.passed);
        let help = "Pages by what became of them";
        registry.register("migration_reduction_pages", help, self.pages);
        let help = "Bytes before their codec";
        registry.register("migration_reduction_section_bytes", help, self.section);
        let help = "The same behind it";
        registry.register("migration_reduction_packed_bytes", help, self.packed);
        let help = "Time of the threads that read channels, by what they did";
        registry.register("migration_reduction_seconds", help, self.seconds);
        let help = "How bytes are reduced now: 1";
        registry.register("migration_reduction_mode", help, self.used);
        let help = "Pages that a guest found at its destination";
        registry.register("migration_stored_pages", help, self.found);
    }
}
