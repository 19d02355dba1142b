//! Processors, in the words that a plan compares.
//!
//! What is emulated does not depend on the host's processor, only on QEMU. Its models and features carry
//! [`EMULATED`] in front of their names, so that neither is taken for the other.

use std::collections::BTreeSet;

use drover_api::VmDefinition;
use drover_hypervisor::{ProcessorOffer, Processors};
use drover_plan::inventory::{EMULATED, GuestCpu, HostCpu};
use drover_plan::limits::WORD_CHARS;
use drover_plan::{QemuVersion, Word};
use drover_tune::arguments::{arguments, is_emulated, last, turns_on};
use drover_tune::facts::{Offer, Offers};

/// What QEMU gives a guest that names no processor: `TARGET_DEFAULT_CPU_TYPE` in its `target/i386/cpu.h`.
const DEFAULT_MODEL: &str = "qemu64";

/// A host's processor: its own name, and what all of its QEMUs offer with it.
pub fn host_cpu(model: &str, offers: &[Processors]) -> HostCpu {
    let hardware = common(offers, hardware).unwrap_or_default();
    let emulated = common(offers, emulated).unwrap_or_default();
    HostCpu {
        model: word(model),
        features: words(&hardware.features, &emulated.features),
        models: words(&hardware.models, &emulated.models),
    }
}

/// The same for those who look for what keeps guests where they are.
pub fn offers(model: &str, offers: &[Processors]) -> Offers {
    let told = |offer: ProcessorOffer| Offer {
        models: offer.models,
        features: offer.features,
        lacking: offer.lacking,
    };
    Offers {
        processor: model.to_owned(),
        version: Some(oldest(offers))
            .filter(|version| *version != QemuVersion::NONE)
            .map(|version| version.to_string()),
        hardware: common(offers, hardware).map(told),
        emulated: common(offers, emulated).map(told),
    }
}

const fn hardware(offer: &Processors) -> Option<&ProcessorOffer> {
    offer.hardware.as_ref()
}

const fn emulated(offer: &Processors) -> Option<&ProcessorOffer> {
    offer.emulated.as_ref()
}

/// What all QEMUs offer of this kind. One that cannot do it at all takes nothing away from those that can.
fn common(
    offers: &[Processors],
    kind: impl Fn(&Processors) -> Option<&ProcessorOffer>,
) -> Option<ProcessorOffer> {
    let offers = offers.iter().filter_map(kind).cloned();
    offers.reduce(|common, other| {
        let models = &common.models & &other.models;
        let mut lacking = common.lacking;
        lacking.extend(other.lacking);
        lacking.retain(|model, _| !models.contains(model));
        ProcessorOffer {
            features: &common.features & &other.features,
            models,
            lacking,
        }
    })
}

/// The oldest version of these; 0.0 where there is none, which is older than any that a guest runs on.
pub fn oldest(offers: &[Processors]) -> QemuVersion {
    let versions = offers.iter().map(|offer| offer.version);
    let oldest = versions.min().map(|version| version.to_string());
    let parsed = oldest.and_then(|version| version.parse().ok());
    parsed.unwrap_or(QemuVersion::NONE)
}

fn words(hardware: &BTreeSet<String>, emulated: &BTreeSet<String>) -> BTreeSet<Word> {
    let emulated = emulated.iter().map(|name| format!("{EMULATED}{name}"));
    let all = hardware.iter().cloned().chain(emulated);
    all.filter_map(|name| name.parse().ok()).collect()
}

/// Somebody's name for something as a word: characters that a word does not take become dashes.
fn word(text: &str) -> Word {
    let mut plain = String::new();
    for c in text.chars().take(4 * WORD_CHARS) {
        if c.is_ascii_alphanumeric() || "._+/".contains(c) {
            plain.push(c);
        } else if !plain.ends_with('-') {
            plain.push('-');
        }
    }
    let begins = plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let short = &begins[..begins.len().min(WORD_CHARS)];
    let parsed = short.trim_end_matches('-').parse();
    parsed.unwrap_or_else(|_| Word::unknown())
}

/// What a guest was given as its processor, by its definition, on a host with this one.
pub fn guest_cpu(definition: &VmDefinition, here: &HostCpu) -> GuestCpu {
    let arguments = arguments(&definition.args);
    let of_cpu = last(&arguments, "-cpu").and_then(|argument| argument.value.as_deref());
    let mut parts = of_cpu.unwrap_or_default().split(',');
    let model = parts.next().filter(|model| !model.is_empty());
    let is_hardware = |model: &Word| !model.as_str().starts_with(EMULATED);
    let hardware = here.models.iter().any(is_hardware);
    let emulated = is_emulated(definition.machine.as_deref(), &arguments, hardware);
    if matches!(model, Some("host")) || (matches!(model, Some("max")) && !emulated) {
        return GuestCpu::Passthrough;
    }
    let prefix = if emulated { EMULATED } else { "" };
    let named = |name: &str| format!("{prefix}{name}").parse::<Word>().ok();
    // A guest that runs here has what it was given of what this host offers. Other words, such as
    // enlightenments for Windows, are no features that a processor could lack.
    let features = parts.filter_map(turns_on).filter_map(named);
    GuestCpu::Named {
        model: model.or_else(|| default_model(definition)).and_then(named),
        features: features
            .filter(|word| here.features.contains(word))
            .collect(),
    }
}

fn default_model(definition: &VmDefinition) -> Option<&'static str> {
    let binary = definition.qemu.file_name()?.to_string_lossy();
    binary.ends_with("x86_64").then_some(DEFAULT_MODEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_hypervisor::qmp::Version;

    fn offer(models: &[&str], features: &[&str]) -> ProcessorOffer {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        ProcessorOffer {
            models: owned(models),
            features: owned(features),
            lacking: [("EPYC-Turin".to_owned(), owned(&["avx512f"]))].into(),
        }
    }

    fn processors(major: u32, models: &[&str]) -> Processors {
        Processors {
            version: Version {
                major,
                minor: 0,
                micro: 2,
            },
            hardware: Some(offer(models, &["avx", "sse4.1"])),
            emulated: Some(offer(&["max", "qemu64"], &["avx2"])),
        }
    }

    fn here() -> HostCpu {
        host_cpu("AMD EPYC", &[processors(10, &["EPYC-v1", "host"])])
    }

    fn given(machine: &str, args: &[&str]) -> GuestCpu {
        let definition = VmDefinition {
            name: "web".parse().unwrap(),
            memory: drover_types::Bytes(1 << 30),
            vcpus: 1,
            qemu: drover_api::DEFAULT_QEMU.into(),
            machine: Some(machine.to_owned()),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            convergence: drover_types::Convergence::default(),
            checkpoint: true,
            policy: drover_plan::policy::VmPolicy::default(),
        };
        guest_cpu(&definition, &here())
    }

    fn named(model: &str, features: &[&str]) -> GuestCpu {
        GuestCpu::Named {
            model: Some(model.parse().unwrap()),
            features: features.iter().map(|word| word.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn what_several_qemus_offer_is_what_all_of_them_do_and_the_oldest_counts() {
        let both = [
            processors(10, &["EPYC-v1", "EPYC-Genoa", "host"]),
            processors(7, &["EPYC-v1", "host"]),
        ];
        let cpu = host_cpu("Intel(R) Xeon(R) CPU @ 2.20GHz", &both);
        let models: Vec<_> = cpu.models.iter().map(Word::as_str).collect();
        assert_eq!(models, ["EPYC-v1", "host", "tcg/max", "tcg/qemu64"]);
        assert_eq!(cpu.model.as_str(), "Intel-R-Xeon-R-CPU-2.20GHz");
        let told = offers("x", &both).hardware.unwrap();
        assert!(told.models.contains("EPYC-v1") && !told.models.contains("EPYC-Genoa"));
        assert!(told.lacking["EPYC-Turin"].contains("avx512f"), "{told:?}");
        assert_eq!(oldest(&both).to_string(), "7.0.2");
        assert_eq!(offers("x", &both).version.as_deref(), Some("7.0.2"));
        assert_eq!(offers("x", &[]).version, None);
        assert_eq!(oldest(&[]).to_string(), "0.0.0");
        assert_eq!(word("\u{e9}!").as_str(), "unknown");
        assert_eq!(word(&"x y".repeat(80)).as_str().len(), WORD_CHARS);
    }

    #[test]
    fn a_guest_with_all_of_its_hosts_processor_is_told_from_one_with_a_named_model() {
        assert_eq!(
            given("q35,accel=kvm", &["-cpu", "host"]),
            GuestCpu::Passthrough
        );
        assert_eq!(
            given("q35", &["-enable-kvm", "-cpu", "max"]),
            GuestCpu::Passthrough
        );
        let args = [
            "-accel",
            "kvm",
            "--cpu",
            "EPYC-v1,+sse4.1,avx=on,hv-relaxed,-x2apic,pmu=off",
        ];
        assert_eq!(given("q35", &args), named("EPYC-v1", &["avx", "sse4.1"]));
    }

    #[test]
    fn what_is_emulated_is_named_apart_from_what_the_hardware_does() {
        assert_eq!(given("q35", &[]), named("tcg/qemu64", &[]));
        let args = ["-accel", "tcg,thread=multi", "-cpu", "max,+avx2,+avx"];
        assert_eq!(given("q35", &args), named("tcg/max", &["tcg/avx2"]));
        assert_eq!(given("q35,accel=kvm:tcg", &[]), named("qemu64", &[]));
        assert_eq!(given("q35,accel=tcg:kvm", &[]), named("tcg/qemu64", &[]));
    }
}
