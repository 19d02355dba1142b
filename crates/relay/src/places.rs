//! Where the threads of each interface's lanes run: on the CPUs near its hardware, as far as this
//! process may use them.
//!
//! Only a lane's own two threads are placed. All others serve several interfaces or none, so a
//! thread that a placed one starts goes back to where the process may run.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use drover_types::{CpuSet, NicPlacement, Placement};
use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};

use crate::limits::NICS_MAX;
use crate::pool::lock;

thread_local! {
    /// Where this thread could run before it was placed.
    static BEFORE: Cell<Option<Mask>> = const { Cell::new(None) };
}

/// What is known of this host's interfaces.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// As they are used: narrowed to what this process may use.
    known: Mutex<Vec<NicPlacement>>,
}

impl Places {
    /// Adds interfaces. Of an address that is known the first word counts, as lanes run by it.
    pub(crate) fn add(&self, nics: Vec<NicPlacement>) {
        let usable = usable().map_err(|error| {
            format!("the kernel does not tell which CPUs the relay may use: {error}")
        });
        let mut known = lock(&self.known);
        for mut nic in nics {
            let is_known =
                |address: &IpAddr| known.iter().any(|nic| nic.addresses.contains(address));
            nic.addresses.retain(|address| !is_known(address));
            if nic.addresses.is_empty() {
                continue;
            }
            if known.len() >= NICS_MAX {
                tracing::warn!(addresses = ?nic.addresses, "its lanes are not placed: {NICS_MAX} interfaces are known");
                continue;
            }
            nic.placement = match &usable {
                Ok(usable) => decide(nic.placement, usable),
                Err(why) => Placement::anywhere(why.clone()),
            };
            known.push(nic);
        }
    }

    /// What is done.
    pub(crate) fn report(&self) -> Vec<NicPlacement> {
        lock(&self.known).clone()
    }

    /// Moves this thread to where lanes with this address of ours run.
    pub(crate) fn enter(&self, address: IpAddr) {
        let address = address.to_canonical();
        let mut known = lock(&self.known);
        let nic = known
            .iter_mut()
            .find(|nic| nic.addresses.contains(&address));
        let Some(nic) = nic else {
            return;
        };
        if let Placement::Near { cpus, .. } = &nic.placement
            && let Err(error) = move_to(cpus)
        {
            let why = format!("the kernel refused to let its threads run on CPUs {cpus}: {error}");
            tracing::warn!(%address, why, "not placed");
            nic.placement = Placement::anywhere(why);
        }
    }
}

/// Where lanes run whose interface is placed so, in a process that may use these CPUs.
fn decide(near: Placement, usable: &CpuSet) -> Placement {
    let Placement::Near { nodes, cpus } = near else {
        return near;
    };
    let common = cpus.and(usable);
    if common.is_empty() {
        let why = format!("the relay may use CPUs {usable} only, and those near it are {cpus}");
        return Placement::anywhere(why);
    }
    if common == *usable {
        let why = format!("all CPUs that the relay may use, {usable}, are near it");
        return Placement::anywhere(why);
    }
    let cpus = common;
    Placement::Near { nodes, cpus }
}

/// The CPUs that this process may use, by its cpuset and by its affinity.
fn usable() -> io::Result<CpuSet> {
    let mask = BEFORE.get().map_or_else(|| sched_getaffinity(None), Ok)?;
    Ok((0..Mask::MAX_CPU as u32)
        .filter(|cpu| mask.is_set(*cpu as usize))
        .collect())
}

fn move_to(cpus: &CpuSet) -> io::Result<()> {
    let before = sched_getaffinity(None)?;
    let mut mask = Mask::new();
    for cpu in cpus.iter() {
        mask.set(cpu as usize); // within what the kernel told, which fits
    }
    sched_setaffinity(None, &mask)?;
    BEFORE.set(Some(before));
    Ok(())
}

/// What a thread that is started here does first, so that it runs wherever the process may.
pub(crate) fn leave() -> impl FnOnce() + Send + 'static {
    let before = BEFORE.get();
    move || {
        if let Some(before) = before
            && let Err(error) = sched_setaffinity(None, &before)
        {
            tracing::warn!(%error, "a thread stays where the one that started it was placed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::thread;

    const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn near(cpus: &str) -> Placement {
        let (nodes, cpus) = (vec![1], set(cpus));
        Placement::Near { nodes, cpus }
    }

    fn nic(address: IpAddr, placement: Placement) -> NicPlacement {
        let addresses = vec![address];
        NicPlacement {
            addresses,
            placement,
        }
    }

    fn own() -> CpuSet {
        let mask = sched_getaffinity(None).unwrap();
        (0..1024u32)
            .filter(|cpu| mask.is_set(*cpu as usize))
            .collect()
    }

    #[test]
    fn lanes_run_on_the_cpus_that_are_near_and_allowed() {
        assert_eq!(decide(near("16-31"), &set("0-31")), near("16-31"));
        assert_eq!(decide(near("16-31"), &set("8-23")), near("16-23"));
    }

    #[test]
    fn where_no_near_cpu_is_allowed_or_no_other_nothing_is_done_and_said_why() {
        let why = |placement| match placement {
            Placement::Anywhere { why } => why,
            other => panic!("{other:?}"),
        };
        let none = why(decide(near("16-31"), &set("0-15")));
        assert_eq!(
            none,
            "the relay may use CPUs 0-15 only, and those near it are 16-31"
        );
        let all = why(decide(near("16-31"), &set("16-19")));
        assert_eq!(all, "all CPUs that the relay may use, 16-19, are near it");
        let told = why(decide(Placement::anywhere("it is virtual"), &set("0-3")));
        assert_eq!(told, "it is virtual");
    }

    #[test]
    fn of_an_address_the_first_word_counts_and_interfaces_are_bounded() {
        let places = Places::default();
        places.add(vec![nic(NEAR, Placement::anywhere("one"))]);
        places.add(vec![nic(NEAR, Placement::anywhere("two"))]);
        assert_eq!(places.report(), [nic(NEAR, Placement::anywhere("one"))]);
        let many = (0..2000u32).map(|number| {
            let address = Ipv4Addr::from_bits(number).into();
            nic(address, Placement::anywhere("many"))
        });
        places.add(many.collect());
        assert_eq!(places.report().len(), NICS_MAX);
    }

    #[test]
    fn a_thread_runs_near_its_interface_and_those_that_it_starts_anywhere() {
        let all = own();
        let Some(last) = all.iter().last().filter(|_| all.count() > 1) else {
            eprintln!("skipped, because this process may use one CPU only");
            return;
        };
        let places = Places::default();
        places.add(vec![nic(NEAR, near(&last.to_string()))]);
        let placed = thread::spawn(move || {
            places.enter(NEAR);
            let here = own();
            let leave = leave();
            let started = thread::spawn(move || {
                let inherited = own();
                leave();
                (inherited, own())
            });
            (here, started.join().unwrap(), places)
        });
        let (here, (inherited, left), places) = placed.join().unwrap();
        assert_eq!(here, set(&last.to_string()));
        assert_eq!(
            (inherited, left),
            (here, all.clone()),
            "as Linux does, and then as we want it"
        );
        assert_eq!(own(), all);
        let unknown = Ipv4Addr::new(10, 9, 9, 9).into();
        let elsewhere = thread::spawn(move || {
            places.enter(unknown);
            own()
        });
        assert_eq!(elsewhere.join().unwrap(), all);
    }

    #[test]
    fn what_the_kernel_refuses_is_told_and_the_thread_goes_on() {
        let places = Places::default();
        // As if the process' cpuset had changed since it was asked.
        lock(&places.known).push(nic(NEAR, near("1023")));
        if own().iter().any(|cpu| cpu == 1023) {
            eprintln!("skipped, because this machine has a CPU 1023");
            return;
        }
        places.enter(NEAR);
        let told = places.report();
        let Placement::Anywhere { why } = &told[0].placement else {
            panic!("{told:?}");
        };
        assert!(
            why.starts_with("the kernel refused to let its threads run on CPUs 1023"),
            "{why}"
        );
    }
}
