//! The guests of this host as a plan knows them.

use drover_hypervisor::RunState;
use drover_plan::inventory::{CopyDeadline, GuestCpu, HostCpu, Vm, VmState};
use drover_plan::limits::BLOCKERS;
use drover_plan::policy::VmPolicy;
use drover_types::{Bytes, Convergence, HostName};
use futures_util::future::join_all;

use super::processor::guest_cpu;
use crate::agent::Context;
use crate::limits;
use crate::parking;
use crate::registry::{Known, Purpose, Role};

/// What a QEMU has beyond its guest's memory is told in multiples of this: it changes all the time, and a plan must
/// not be outdated by that.
const QEMU_GRAIN: Bytes = Bytes(64 << 20);

/// What a QEMU said of its guest.
struct Said {
    state: VmState,
    blockers: Vec<String>,
}

/// All guests, those too that only arrive here.
pub async fn vms(context: &Context, cpu: &HostCpu, known: Vec<Known>) -> Vec<Vm> {
    let config = &context.config;
    let asked = known.into_iter().map(async |guest| {
        let (rate, working_set) = context.inventory.rates.of(&guest.name);
        let mut said = said(&guest).await;
        if guest.resident.is_some() {
            let yet = parking::may_shut_down(config, &guest.name);
            said.blockers.extend(yet);
        }
        let wished = guest.definition.as_ref();
        let wished = wished.map_or_else(Convergence::default, |definition| definition.convergence);
        let mut vm = vm(guest, said, &config.host, cpu)?;
        let runs = vm.state == VmState::Running;
        vm.dirty_rate = rate.filter(|_| runs);
        vm.working_set = working_set.filter(|_| runs);
        let wished = wished.or(config.migration.convergence);
        let limit = wished.downtime_limit().as_millis();
        vm.downtime_limit_ms = u64::try_from(limit).unwrap_or(u64::MAX);
        vm.throttle_most = wished.throttle().map(|(_, most)| most);
        vm.deadline = deadline(&wished);
        Some(vm)
    });
    join_all(asked).await.into_iter().flatten().collect()
}

pub(super) fn deadline(wished: &Convergence) -> Option<CopyDeadline> {
    let seconds = wished.deadline_s.filter(|seconds| seconds.get() > 0)?;
    let then = wished.at_deadline.unwrap_or_default();
    Some(CopyDeadline { seconds, then })
}

/// Asks the guest's QEMU, if there is one.
async fn said(guest: &Known) -> Said {
    let running = |blocker: String| Said {
        state: VmState::Running,
        blockers: vec![blocker],
    };
    let Some(machine) = &guest.machine else {
        return match (&guest.resident, &guest.reserved) {
            (Some(_), _) => running("its QEMU does not answer".to_owned()),
            (None, Some(Purpose::Start)) => running("it is being started".to_owned()),
            (None, _) => Said {
                state: VmState::Stopped,
                blockers: Vec::new(),
            },
        };
    };
    let asked = async { tokio::join!(machine.state(), machine.migration_blockers()) };
    match tokio::time::timeout(limits::SHOW, asked).await {
        Ok((Ok(state), Ok(blockers))) => Said {
            state: state_of(state),
            blockers,
        },
        Ok((Err(error), _) | (_, Err(error))) => running(error.to_string()),
        Err(_) => running("its QEMU does not answer".to_owned()),
    }
}

fn state_of(state: RunState) -> VmState {
    match state {
        // The last round of a migration stops the guest for some milliseconds.
        RunState::Running | RunState::Suspended | RunState::FinishMigrate => VmState::Running,
        _ => VmState::Paused,
    }
}

/// None of a guest of which neither a definition nor a process tells anything.
fn vm(guest: Known, said: Said, own: &HostName, cpu: &HostCpu) -> Option<Vm> {
    let (host, moving_to) = place(&guest, own);
    let resident = guest.resident.unwrap_or_default();
    let mut blockers = said.blockers;
    match guest.reserved {
        Some(Purpose::Stop) => blockers.push("it is being stopped".to_owned()),
        Some(Purpose::Suspend) => blockers.push("it is being suspended".to_owned()),
        _ => {}
    }
    // What keeps it here, or beside or apart from others, may stand there.
    if let Some(problem) = guest.unusable.filter(|_| guest.resident.is_some()) {
        blockers.push(format!("its definition cannot be used: {problem}"));
    }
    let (memory, vcpus, guest_cpu, policy) = match guest.definition {
        Some(definition) => {
            let cpu = guest_cpu(&definition, cpu);
            (definition.memory, definition.vcpus, cpu, definition.policy)
        }
        None => {
            guest.resident?;
            blockers
                .push("the agent's record of it was lost: stop it and start it again".to_owned());
            (resident, 1, GuestCpu::Passthrough, VmPolicy::default())
        }
    };
    blockers.truncate(BLOCKERS);
    Some(Vm {
        name: guest.name,
        called: None,
        host,
        moving_to,
        state: said.state,
        memory: taken(memory, resident),
        memory_used: memory.min(resident),
        vcpus,
        cpu: guest_cpu,
        needs: [].into(),
        disks: None,
        dirty_rate: None,
        working_set: None,
        downtime_limit_ms: 0,
        throttle_most: None,
        deadline: None,
        blockers: blockers.into_iter().map(Into::into).collect(),
        policy,
    })
}

/// QEMU's own comes on top of the guest's, where that has touched all of its memory.
pub(super) fn taken(memory: Bytes, resident: Bytes) -> Bytes {
    let beyond = resident.0.saturating_sub(memory.0);
    let grains = beyond.div_ceil(QEMU_GRAIN.0);
    Bytes(
        memory
            .0
            .saturating_add(grains.saturating_mul(QEMU_GRAIN.0))
            .max(1),
    )
}

/// Where a guest is, and where it goes.
fn place(guest: &Known, own: &HostName) -> (HostName, Option<HostName>) {
    let of_role = guest.role.as_ref().and_then(|role| match role {
        Role::Running => None,
        Role::Incoming { source, .. } => Some((source.clone(), Some(own.clone()))),
        Role::Outgoing { destination, .. } | Role::HandedOff { destination, .. } => {
            Some((own.clone(), Some(destination.clone())))
        }
    });
    of_role.unwrap_or_else(|| match &guest.reserved {
        Some(Purpose::Outgoing { destination, .. }) => (own.clone(), Some(destination.clone())),
        _ => (own.clone(), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::VmDefinition;
    use drover_types::MigrationId;

    const GIB: u64 = 1 << 30;

    fn definition() -> VmDefinition {
        serde_json::from_str(r#"{"name":"web","memory":"4GiB","vcpus":2}"#).unwrap()
    }

    fn known(resident: Option<u64>, role: Option<Role>) -> Known {
        Known {
            name: "web".parse().unwrap(),
            definition: Some(definition()),
            reserved: None,
            role,
            unusable: None,
            resident: resident.map(Bytes),
            machine: None,
        }
    }

    fn here(guest: Known) -> Option<Vm> {
        let cpu = HostCpu {
            model: "x".parse().unwrap(),
            features: [].into(),
            models: [].into(),
        };
        let said = Said {
            state: VmState::Running,
            blockers: Vec::new(),
        };
        vm(guest, said, &"a".parse().unwrap(), &cpu)
    }

    fn way(vm: &Vm) -> (&str, Option<&str>) {
        (
            vm.host.as_str(),
            vm.moving_to.as_ref().map(HostName::as_str),
        )
    }

    #[test]
    fn a_guest_takes_what_it_was_given_and_carries_what_it_has_touched() {
        let vm = here(known(Some(GIB), Some(Role::Running))).unwrap();
        assert_eq!((vm.memory, vm.memory_used), (Bytes(4 * GIB), Bytes(GIB)));
        assert_eq!(way(&vm), ("a", None));
        // QEMU itself needs some, too.
        let full = here(known(Some(5 * GIB - 1), Some(Role::Running))).unwrap();
        assert_eq!(
            (full.memory, full.memory_used),
            (Bytes(5 * GIB), Bytes(4 * GIB))
        );
    }

    #[test]
    fn a_guest_on_its_way_is_told_with_both_ends_by_both_of_them() {
        let migration = MigrationId(uuid::Uuid::from_u128(7));
        let (b, destination) = ("b".parse::<HostName>().unwrap(), "b".parse().unwrap());
        let leaving = here(known(
            Some(GIB),
            Some(Role::Outgoing {
                migration,
                destination,
            }),
        ));
        assert_eq!(way(&leaving.unwrap()), ("a", Some("b")));
        let (destination, source) = (b.clone(), b.clone());
        let left = here(known(
            Some(GIB),
            Some(Role::HandedOff {
                migration,
                destination,
            }),
        ));
        assert_eq!(way(&left.unwrap()), ("a", Some("b")));
        let arriving = here(known(Some(GIB), Some(Role::Incoming { migration, source })));
        assert_eq!(way(&arriving.unwrap()), ("b", Some("a")));
        let destination = b;
        let purpose = Purpose::Outgoing {
            migration,
            destination,
        };
        let asked = Known {
            reserved: Some(purpose),
            ..known(Some(GIB), Some(Role::Running))
        };
        assert_eq!(way(&here(asked).unwrap()), ("a", Some("b")));
    }

    #[test]
    fn a_guest_whose_record_was_lost_cannot_move_and_is_counted_with_what_it_has() {
        let lost = Known {
            definition: None,
            ..known(Some(GIB), None)
        };
        let vm = here(lost).unwrap();
        assert_eq!((vm.memory, vm.memory_used), (Bytes(GIB), Bytes(GIB)));
        assert!(vm.blockers[0].as_str().contains("record"), "{vm:?}");
    }

    #[test]
    fn a_guest_whose_definition_cannot_be_read_stays_while_it_runs() {
        let problem = || Some("/etc/drover/vms/web.toml: line 3".to_owned());
        let runs = Known {
            unusable: problem(),
            ..known(Some(GIB), Some(Role::Running))
        };
        let vm = here(runs).unwrap();
        let [blocker] = &vm.blockers[..] else {
            panic!("{vm:?}");
        };
        assert!(blocker.as_str().contains("web.toml: line 3"), "{blocker}");
    }

    #[tokio::test]
    async fn a_guest_that_is_in_no_memory_is_stopped_and_one_that_starts_is_not() {
        assert_eq!(said(&known(None, None)).await.state, VmState::Stopped);
        let starting = Known {
            reserved: Some(Purpose::Start),
            ..known(None, None)
        };
        let said_of_starting = said(&starting).await;
        assert_eq!(said_of_starting.state, VmState::Running);
        assert_eq!(said_of_starting.blockers, ["it is being started"]);
        let silent = said(&known(Some(GIB), None)).await;
        assert_eq!(silent.blockers, ["its QEMU does not answer"]);
    }
}
