//! The cluster's inventory, as plans are made from it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use drover_api::ClusterInventoryView;
use drover_plan::inventory::{GuestCpu, Host, Inventory, Vm, VmState};
use drover_types::{Bytes, HostName};

use super::{or_dash, row, table, word};

/// Reasons of one host why it does not take all domains, before the rest is counted: `--json` has all.
const LACKS_SHOWN: usize = 8;

/// `drover inventory`
pub fn inventory(view: &ClusterInventoryView) -> String {
    let inventory = &view.inventory;
    let mut said = hosts(inventory);
    if !inventory.vms.is_empty() {
        let _ = write!(said, "\n{}", vms(&inventory.vms));
    }
    for host in inventory.hosts.iter().filter(|host| !host.lacks.is_empty()) {
        // Many needs may show alike.
        let lacks = host.lacks.values().map(drover_plan::Text::as_str);
        let lacks: Vec<&str> = lacks.collect::<BTreeSet<_>>().into_iter().collect();
        let shown = lacks.iter().take(LACKS_SHOWN).copied();
        let shown = shown.collect::<Vec<_>>().join("; ");
        let more = match lacks.len().saturating_sub(LACKS_SHOWN) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let name = &host.name;
        let _ = writeln!(said, "{name} does not take all domains: {shown}{more}");
    }
    let is_there = |host: &HostName| inventory.hosts.iter().any(|known| known.name == *host);
    for left in view.left_out.iter().filter(|left| !is_there(&left.host)) {
        let _ = writeln!(said, "not in it: {}: {}", left.host, left.why);
    }
    for note in &view.notes {
        let _ = writeln!(said, "note: {note}");
    }
    said
}

fn hosts(inventory: &Inventory) -> String {
    let mut rows = vec![row(&[
        "HOST",
        "STATE",
        "AGE",
        "MEMORY",
        "ITS OWN",
        "GUESTS'",
        "FREE",
        "CPUS",
        "VCPUS",
        "LINES",
        "QEMU",
        "PROCESSOR",
    ])];
    for host in &inventory.hosts {
        let on_it: Vec<&Vm> = inventory
            .vms
            .iter()
            .filter(|vm| takes_room(vm, host))
            .collect();
        let guests: Bytes = on_it.iter().map(|vm| vm.memory).sum();
        let vcpus: u64 = on_it.iter().map(|vm| u64::from(vm.vcpus)).sum();
        let taken = guests.0.saturating_add(host.memory_for_host.0);
        rows.push(vec![
            host.name.to_string(),
            word(&host.state),
            format!("{} s", host.facts_age_seconds),
            host.memory.to_string(),
            host.memory_for_host.to_string(),
            guests.to_string(),
            Bytes(host.memory.0.saturating_sub(taken)).to_string(),
            host.cpus.to_string(),
            vcpus.to_string(),
            host.bandwidth.to_string(),
            host.qemu.to_string(),
            host.cpu.model.to_string(),
        ]);
    }
    table(&rows)
}

/// Of a guest on its way each end keeps room.
fn takes_room(vm: &Vm, host: &Host) -> bool {
    let there = vm.host == host.name || vm.moving_to.as_ref() == Some(&host.name);
    there && vm.state != VmState::Stopped
}

fn vms(vms: &[Vm]) -> String {
    let mut rows = vec![row(&[
        "GUEST",
        "HOST",
        "STATE",
        "MEMORY",
        "WRITTEN",
        "DIRTY RATE",
        "VCPUS",
        "PROCESSOR",
        "CANNOT MOVE",
    ])];
    for vm in vms {
        let place = match &vm.moving_to {
            Some(to) => format!("{} > {to}", vm.host),
            None => vm.host.to_string(),
        };
        let why: Vec<&str> = vm.blockers.iter().map(drover_plan::Text::as_str).collect();
        rows.push(vec![
            match &vm.called {
                Some(called) => format!("{} ({called})", vm.name),
                None => vm.name.to_string(),
            },
            place,
            word(&vm.state),
            vm.memory.to_string(),
            vm.memory_used.to_string(),
            or_dash(vm.dirty_rate),
            vm.vcpus.to_string(),
            processor(&vm.cpu),
            or_dash((!why.is_empty()).then(|| why.join("; "))),
        ]);
    }
    table(&rows)
}

fn processor(cpu: &GuestCpu) -> String {
    match cpu {
        GuestCpu::Passthrough => "its host's".to_owned(),
        GuestCpu::Named {
            model: Some(model), ..
        } => model.to_string(),
        GuestCpu::Named { model: None, .. } => "any".to_owned(),
    }
}
