//! A domain's `<cpu>`.

use super::super::{Cpu, CpuWritten};
use super::{beside, made};
use crate::domain::{changed, is_accelerated};
use crate::facts::{Domain, Element, Guest};
use crate::finding::{Because, Line};

/// What it has while it runs, where libvirt names all that belongs to it.
pub fn cpu<'g>(guest: &Guest, domain: &'g Domain) -> Result<Option<Cpu<'g>>, Because> {
    let next = domain.next.get()?.part("cpu");
    let made = made(guest, domain)?;
    if beside(made).any(|arg| arg == "-cpu") {
        return Err("its processor is in QEMU's arguments that libvirt knows nothing of".into());
    }
    let Some(cpu) = made.part("cpu") else {
        return Ok(None);
    };
    let emulated = !is_accelerated(made).map_err(Because)?;
    let Some(model) = model(cpu)? else {
        return Ok(None);
    };
    Ok(Some(Cpu {
        model: model.to_owned(),
        words: cpu.all("feature").flat_map(words).collect(),
        emulated,
        written: CpuWritten::Libvirt(next),
    }))
}

/// QEMU's name of its model; none where it asks for nothing but its topology.
fn model(cpu: &Element) -> Result<Option<&str>, Because> {
    match cpu.get("mode") {
        Some("host-passthrough") => Ok(Some("host")),
        Some("maximum") => Ok(Some("max")),
        Some("host-model") => Err(
            "it is given its host's processor as libvirt knows it (host-model) when it is started"
                .into(),
        ),
        _ if cpu.get("match") == Some("minimum") => Err(
            "it is given all that its host has beyond its model (minimum) when it is started"
                .into(),
        ),
        _ => Ok(cpu.part("model").and_then(|model| model.text.as_deref())),
    }
}

/// A feature as `-cpu` has it, or several of one policy.
fn words(feature: &Element) -> impl Iterator<Item = String> {
    let sign = match feature.get("policy").unwrap_or("require") {
        "force" | "require" => Some("+"),
        "disable" | "forbid" => Some("-"),
        // It has it where its host does.
        _ => None,
    };
    let names = feature.get("name").unwrap_or_default();
    let names = names.split_ascii_whitespace();
    names.filter_map(move |name| Some(format!("{}{}", sign?, qemus(name))))
}

/// QEMU's name of a feature (`virQEMUCapsCPUFeaturesX86` in libvirt's `qemu_capabilities.c`).
fn qemus(name: &str) -> String {
    match name {
        "pclmuldq" => "pclmulqdq".to_owned(),
        _ => name.replace('_', "-"),
    }
}

/// Whether all hosts have what it asks for.
fn suits(cpu: &Element, may_stay: impl Fn(&str) -> bool, all_have: impl Fn(&str) -> bool) -> bool {
    let Ok(model) = model(cpu) else {
        return false;
    };
    let mut words = cpu.all("feature").flat_map(words);
    model.is_none_or(all_have) && words.all(|word| may_stay(&word))
}

/// Whatever belongs to the old model goes with it.
pub fn with_model(
    next: Option<&Element>,
    wanted: &str,
    may_stay: impl Fn(&str) -> bool,
    all_have: impl Fn(&str) -> bool,
) -> Vec<Line> {
    if next.is_none_or(|cpu| suits(cpu, &may_stay, all_have)) {
        return Vec::new();
    }
    let named = Element {
        text: Some(wanted.to_owned()),
        ..Element::named("model").with("fallback", "forbid")
    };
    let stays = |part: &&Element| match part.name.as_str() {
        "model" | "vendor" => false,
        // What is the host's is for models that are the host's (`qemuValidateDomainDefCpu`).
        "cache" | "maxphysaddr" => part.get("mode") != Some("passthrough"),
        "feature" => words(part).all(|word| may_stay(&word)),
        _ => true,
    };
    let old = next.into_iter().flat_map(|cpu| &cpu.parts);
    let new = Element {
        parts: [named]
            .into_iter()
            .chain(old.filter(stays).cloned())
            .collect(),
        ..Element::named("cpu")
            .with("mode", "custom")
            .with("match", "exact")
    };
    changed(next, &new)
}
