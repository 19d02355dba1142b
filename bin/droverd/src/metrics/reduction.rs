//! What became of the bytes of guests, where fewer of them cross.

use std::sync::atomic::AtomicU64;

use drover_api::{ExpansionView, MigrationView, ReductionView, SharedPagesView};
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
struct OfCodec {
    vm: String,
    peer: String,
    class: &'static str,
    codec: String,
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
struct Looked {
    vm: String,
    role: &'static str,
    peer: String,
    pages: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Opaque {
    vm: String,
    peer: String,
    reason: String,
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
    changes: Family<Moving, Counter>,
    pages: Family<Pages, Counter>,
    section: Family<Section, Counter>,
    packed: Family<Section, Counter>,
    codec: Family<OfCodec, Counter>,
    codec_packed: Family<OfCodec, Counter>,
    codec_seconds: Family<OfCodec, Counter<f64, AtomicU64>>,
    seconds: Family<Stage, Counter<f64, AtomicU64>>,
    kept: Family<Moving, Gauge>,
    used: Family<Used, Gauge>,
    opaque: Family<Opaque, Gauge>,
    found: Family<Found, Counter>,
    looked: Family<Looked, Counter>,
    waiting: Family<Moving, Gauge>,
    expanded_raw: Family<Moving, Counter>,
    expanded_wire: Family<Moving, Counter>,
    expanding: Family<Stage, Counter<f64, AtomicU64>>,
}

pub(super) fn register(registry: &mut Registry, views: &[&MigrationView]) {
    let families = Families::default();
    for view in views {
        if let Some(reduction) = &view.reduction {
            families.add(labels(view), reduction);
        }
        if let Some(expansion) = &view.expansion {
            families.add_expansion(labels(view), expansion);
        }
        if let Some(shared) = &view.shared_pages {
            families.add_found(labels(view), shared);
            families.add_looked(labels(view), shared);
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
            (&self.changes, view.change_bytes),
        ] {
            family.get_or_create(&moving).inc_by(bytes.0);
        }
        let kept = i64::try_from(view.kept_bytes.0).unwrap_or(i64::MAX);
        self.kept.get_or_create(&moving).set(kept);
        let Moving { vm, peer, .. } = moving;
        self.add_pages(&vm, &peer, view);
        for (class, section) in [("ordinary", view.ordinary), ("dense", view.dense)] {
            let (vm, peer) = (vm.clone(), peer.clone());
            let labels = Section { vm, peer, class };
            self.section.get_or_create(&labels).inc_by(section.bytes.0);
            self.packed.get_or_create(&labels).inc_by(section.packed.0);
        }
        self.add_codecs(&vm, &peer, view);
        self.add_times(&vm, &peer, view);
        self.add_opaque(&vm, &peer, view);
        let mode = view
            .decided
            .as_ref()
            .map_or(view.mode, |decided| decided.mode);
        let mode = mode.to_string();
        self.used.get_or_create(&Used { vm, peer, mode }).set(1);
    }

    fn add_pages(&self, vm: &str, peer: &str, view: &ReductionView) {
        for (pages, number) in view.pages.kinds() {
            let (vm, peer) = (vm.to_owned(), peer.to_owned());
            let labels = Pages { vm, peer, pages };
            self.pages.get_or_create(&labels).inc_by(number);
        }
    }

    fn add_codecs(&self, vm: &str, peer: &str, view: &ReductionView) {
        for of in &view.codecs {
            let labels = OfCodec {
                vm: vm.to_owned(),
                peer: peer.to_owned(),
                class: of.class.as_str(),
                codec: of.codec.clone(),
            };
            self.codec.get_or_create(&labels).inc_by(of.bytes.0);
            let packed = self.codec_packed.get_or_create(&labels);
            packed.inc_by(of.packed.0);
            let seconds = self.codec_seconds.get_or_create(&labels);
            seconds.inc_by(of.took_ms as f64 / 1000.0);
        }
    }

    fn add_opaque(&self, vm: &str, peer: &str, view: &ReductionView) {
        for channel in &view.opaque {
            let reason = channel.word.clone();
            let labels = Opaque {
                vm: vm.to_owned(),
                peer: peer.to_owned(),
                reason: reason.unwrap_or_else(|| "unknown".to_owned()),
            };
            self.opaque.get_or_create(&labels).inc();
        }
    }

    fn add_expansion(&self, moving: Moving, view: &ExpansionView) {
        let raw = self.expanded_raw.get_or_create(&moving);
        raw.inc_by(view.raw_bytes.0);
        let wire = self.expanded_wire.get_or_create(&moving);
        wire.inc_by(view.wire_bytes.0);
        let Moving { vm, peer, .. } = moving;
        for (stage, milliseconds) in view.times.stages() {
            let (vm, peer) = (vm.clone(), peer.clone());
            let labels = Stage { vm, peer, stage };
            let seconds = self.expanding.get_or_create(&labels);
            seconds.inc_by(milliseconds as f64 / 1000.0);
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

    fn add_looked(&self, moving: Moving, view: &SharedPagesView) {
        let waiting = i64::try_from(view.waiting).unwrap_or(i64::MAX);
        self.waiting.get_or_create(&moving).set(waiting);
        for (pages, number) in [
            ("told", view.told),
            ("untold", view.untold),
            ("added", view.added),
            ("left_out", view.left_out),
            ("recorded", view.recorded),
            ("unrecorded", view.unrecorded),
            ("compared", view.compared),
        ] {
            let Moving { vm, role, peer } = moving.clone();
            let labels = Looked {
                vm,
                role,
                peer,
                pages,
            };
            self.looked.get_or_create(&labels).inc_by(number);
        }
    }

    fn add_times(&self, vm: &str, peer: &str, view: &ReductionView) {
        for (stage, milliseconds) in view.times.stages() {
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
        let help = "What the changes of pages took before their codec";
        registry.register("migration_reduction_change_bytes", help, self.changes);
        let help = "Pages by what became of them";
        registry.register("migration_reduction_pages", help, self.pages);
        let help = "Bytes before their codec";
        registry.register("migration_reduction_section_bytes", help, self.section);
        let help = "The same behind it";
        registry.register("migration_reduction_packed_bytes", help, self.packed);
        let help = "Bytes that a codec was given";
        registry.register("migration_reduction_codec_bytes", help, self.codec);
        let help = "What it made of them";
        let name = "migration_reduction_codec_packed_bytes";
        registry.register(name, help, self.codec_packed);
        let help = "What that took of processors";
        let name = "migration_reduction_codec_seconds";
        registry.register(name, help, self.codec_seconds);
        let help = "Time of the threads that read channels, by what they did";
        registry.register("migration_reduction_seconds", help, self.seconds);
        let help = "Memory that pages take now which are kept to refer to them";
        registry.register("migration_reduction_kept_bytes", help, self.kept);
        let help = "How bytes are reduced now: 1";
        registry.register("migration_reduction_mode", help, self.used);
        let help = "Channels in which pages are no longer found, by the kind of reason";
        registry.register("migration_opaque_channels", help, self.opaque);
        let help = "Pages that a guest found at its destination";
        registry.register("migration_stored_pages", help, self.found);
        let help =
            "Pages that were looked at to store them, or by what is stored, by what became of them";
        registry.register("migration_storing_pages", help, self.looked);
        let help = "Pages that wait in memory to be stored";
        registry.register("migration_storing_waiting_pages", help, self.waiting);
        let help = "Bytes of QEMU out of what arrived, where it may be reduced";
        registry.register("migration_expansion_raw_bytes", help, self.expanded_raw);
        let help = "Bytes that arrived for them";
        registry.register("migration_expansion_wire_bytes", help, self.expanded_wire);
        let help = "Time of the threads that write channels, by what they did";
        registry.register("migration_expansion_seconds", help, self.expanding);
    }
}
