//! The agent's own guests, for those who look for what costs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drover_api::VmDefinition;
use drover_hypervisor::{Inside, Machine};
use drover_tune::arguments::{Value, arguments};
use drover_tune::facts::{Argument, Card, Definition, Fact, Guest, Own};
use drover_types::with_sources;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{inside, process};
use crate::agent::Context;
use crate::limits;
use crate::registry::{Known, Role, definitions};

/// All guests that are defined or run here, by their names; those that only arrive are their source's to tell of.
pub async fn guests(context: &Context, at_once: &Semaphore) -> Fact<Vec<Guest>> {
    let known = match context.registry.known().await {
        Ok((known, _)) => known,
        Err(refusal) => return Fact::unknown(refusal.message),
    };
    let is_here = |guest: &Known| {
        let role = guest.role.as_ref();
        !matches!(role, Some(Role::Incoming { .. } | Role::HandedOff { .. }))
    };
    let read = known.into_iter().filter(is_here).filter_map(|guest| {
        let definition = guest.definition?;
        // Its memory is walked through with a lock that QEMU needs, and its agent would answer at the destination.
        let moves = matches!(guest.role, Some(Role::Outgoing { .. }));
        let machine = guest.machine.filter(|_| !moves);
        let why = match (moves, guest.resident.is_some()) {
            (true, _) => "it is on its way to another host",
            (false, true) => "its QEMU does not answer",
            (false, false) => "it does not run",
        };
        Some(one(context, definition, machine, why, at_once))
    });
    let mut guests = join_all(read).await;
    guests.sort_by(|one, other| one.name.cmp(&other.name));
    Fact::Known(guests)
}

async fn one(
    context: &Context,
    definition: VmDefinition,
    machine: Option<std::sync::Arc<dyn Machine>>,
    why_not: &str,
    at_once: &Semaphore,
) -> Guest {
    let arguments = arguments(&definition.args);
    let pid = machine.as_ref().map(|machine| machine.process().pid);
    let (page_sizes, seen) = match (machine, pid) {
        (Some(machine), Some(pid)) => {
            let (process, cards) = tokio::join!(
                read_process(paths(&arguments), Some(pid), at_once),
                cards(machine.as_ref(), pid, &arguments)
            );
            let (page_sizes, process) = process;
            let (accelerated, cards) = cards;
            let seen = process.seen(accelerated, cards);
            (page_sizes, Fact::Known(seen))
        }
        _ => {
            let (page_sizes, _) = read_process(paths(&arguments), None, at_once).await;
            (page_sizes, Fact::unknown(why_not))
        }
    };
    let file = definitions::path_of(&context.config.definitions, &definition.name);
    Guest {
        name: definition.name.to_string(),
        vcpus: definition.vcpus,
        memory: definition.memory,
        definition: Definition::Own(Own {
            file: file.display().to_string(),
            machine: definition.machine,
            arguments,
            page_sizes,
        }),
        seen,
    }
}

/// Files that a guest's memory is in.
fn paths(arguments: &[Argument]) -> Vec<String> {
    let path = |argument: &Argument| {
        let text = argument.value.as_deref()?;
        match argument.option.as_str() {
            "-mem-path" => Some(text.to_owned()),
            "-object" => Value::of(text).get("mem-path").map(str::to_owned),
            _ => None,
        }
    };
    arguments.iter().filter_map(path).collect()
}

/// A few at once: the kernel walks through all of a process's memory.
pub(super) async fn read_process(
    paths: Vec<String>,
    pid: Option<u32>,
    at_once: &Semaphore,
) -> (BTreeMap<String, u64>, process::Process) {
    let read = async {
        let _turn = at_once.acquire().await.ok()?;
        let read = move || {
            let sizes = paths.into_iter().filter_map(|path| {
                let size = process::huge_page_size(Path::new(&path))?;
                Some((path, size))
            });
            (
                sizes.collect(),
                pid.map_or_else(process::Process::default, process::read),
            )
        };
        tokio::task::spawn_blocking(read).await.ok()
    };
    let read = tokio::time::timeout(limits::SHOW, read).await;
    read.ok().flatten().unwrap_or_default()
}

/// What its QEMU says, and what the guest itself does where an agent is in it.
async fn cards(
    machine: &dyn Machine,
    pid: u32,
    arguments: &[Argument],
) -> (Fact<bool>, Fact<Vec<Card>>) {
    let inside = match tokio::time::timeout(limits::SHOW, machine.inside()).await {
        Ok(Ok(inside)) => inside,
        Ok(Err(error)) => return both(with_sources(&error)),
        Err(_) => return both("its QEMU does not answer".to_owned()),
    };
    let Inside { accelerated, cards } = inside;
    let macs: Vec<String> = cards.iter().map(|card| card.mac.clone()).collect();
    let set = match socket(arguments) {
        None => Err("no guest agent is in its definition".to_owned()),
        Some(socket) => inside::mtus(&socket, pid, &macs).await,
    };
    let cards = cards.into_iter().map(|card| {
        let guest_mtu = match &set {
            Err(why) => Fact::unknown(why.clone()),
            Ok(set) => set.get(&card.mac).cloned().unwrap_or_default(),
        };
        Card {
            netdev: card.netdev,
            mac: card.mac,
            multiqueue: card.multiqueue,
            offered_mtu: card.offered_mtu,
            guest_mtu,
        }
    });
    (Fact::Known(accelerated), Fact::Known(cards.collect()))
}

fn both(why: String) -> (Fact<bool>, Fact<Vec<Card>>) {
    (Fact::unknown(why.clone()), Fact::unknown(why))
}

/// Where QEMU listens for whoever wants to talk to the agent inside (`org.qemu.guest_agent.0`).
fn socket(arguments: &[Argument]) -> Option<PathBuf> {
    let of = |option: &'static str| {
        let of = arguments
            .iter()
            .filter(move |argument| argument.option == option);
        of.filter_map(|argument| Some(Value::of(argument.value.as_deref()?)))
    };
    let port = of("-device").find(|port| port.get("name") == Some(inside::PORT))?;
    let name = port.get("chardev")?.to_owned();
    let chardev = of("-chardev").find(|chardev| chardev.get("id") == Some(&name))?;
    let listens = chardev.is_on("server") == Some(true);
    chardev.get("path").filter(|_| listens).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_the_agent_inside_is_the_one_that_its_port_is_connected_to_and_that_qemu_listens_on()
     {
        let given = |server: &str| {
            let args = [
                "-chardev",
                "socket,id=other,path=/run/other,server=on,wait=off",
                "-chardev",
                &format!("socket,id=qga,path=/run/q,,ga,{server}wait=off"),
                "-device",
                "virtserialport,chardev=other,name=other",
                "-device",
                "virtserialport,chardev=qga,name=org.qemu.guest_agent.0",
            ];
            arguments(&args.map(str::to_owned))
        };
        assert_eq!(socket(&given("server=on,")), Some("/run/q,ga".into()));
        assert_eq!(socket(&given("")), None);
        assert_eq!(socket(&[]), None);
    }
}
