//! The same guest, moved to and fro by each method in turn, several times, in one go.
//!
//! Two guests that are the same from their seed on: one is QEMU's alone, one is an agent's. While
//! one is moved the other's CPUs are held, so that it costs nothing. A domain of libvirt's is one for all methods.
//!
//! # Invariant
//! A run counts as verified only when the guest itself verified every page after the move, found
//! none bad, and its heartbeat never went back.

mod by_drover;
mod by_qemu;
mod by_virsh;
mod disks;
mod foretold;
mod method;
mod ordeal;
mod reduced;
mod relays;
mod report;
mod stage;
mod summary;

pub use by_drover::move_guest as move_by_drover;
pub use by_qemu::{DOWNTIME_LIMIT_MS, Patience, move_guest as move_by_qemu};
pub use disks::DiskFacts;
pub use foretold::Foretold;
pub use method::{Method, Variant};
pub use ordeal::{FaultSummary, Faulted, Outcome};
pub use reduced::{CodecSummary, ReducedSummary};
pub use report::table;
pub use summary::{Comparison, DiskSummary, DroverFacts, Run, Skipped, Spread, Summary};

use std::time::Duration;

use anyhow::{Result, bail};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::guest::Image;
use crate::lab::{Lab, State};
use crate::libvirt::{self, Libvirt};
use crate::limits;
use crate::machine::Machine;
use crate::settings::{GuestSettings, LabSettings, LocalDisk};
use crate::{fault, network, require};
pub(crate) use by_drover::{check as check_move, follow as follow_move};
pub(crate) use by_qemu::{concrete_machine, hand_off, prepare};
pub(crate) use method::order;
pub(crate) use ordeal::clean;
pub(crate) use report::{aligned, spread};
pub(crate) use stage::{Stage, Task};

/// What to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Hosts and NICs.
    pub lab: LabSettings,
    /// The guest.
    pub guest: GuestSettings,
    /// The libvirt whose domain the guest is; without, it is a guest of QEMU's and of drover's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<Libvirt>,
    /// The methods.
    pub methods: Vec<Method>,
    /// How often each.
    pub repeats: usize,
    /// Whether to find each method's best channels first; otherwise the first of
    /// [`Method::variants`], or [`channels`](Self::channels).
    pub calibrate: bool,
    /// Multifd channels for every method that has them, instead of calibrating.
    pub channels: Option<u8>,
    /// Seconds that one move may take, [`limits::MOVE`] at most, which it is without; what has not ended then counts as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_s: Option<u64>,
    /// What is so in every move: how large packets are, and whether several are handed over at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<Fault>,
    /// What goes wrong in every second move; each method moves the guest once without and once with
    /// them in each repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// Told what is being done.
pub type Say<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Makes the lab, compares, and gives the result; the caller removes the lab of that name.
///
/// # Errors
/// What keeps any method from being measured at all. A run that fails is part of the result.
pub async fn compare(plan: &Plan, command: &str, say: Say<'_>) -> Result<Comparison> {
    if plan.repeats == 0 || plan.methods.is_empty() {
        bail!("nothing to compare: no methods, or no repeats");
    }
    check_methods(
        plan.libvirt.as_ref(),
        plan.guest.disk.as_ref(),
        &plan.methods,
    )?;
    plan.libvirt.as_ref().map_or(Ok(()), Libvirt::check)?;
    fault::check(&plan.lab, &plan.faults)?;
    fault::check_always(&plan.lab, &plan.always)?;
    if !plan.faults.is_empty() {
        require::check_faults()?;
    }
    plan.guest.probe()?;
    require::check_contents(std::slice::from_ref(&plan.guest))?;
    require::check_guest(&plan.guest.qemu).await?;
    let mut machine = Machine::look(&plan.guest.qemu).await;
    let mut lab = plan.lab.clone();
    // Or the guest would find at each host what the method before has just brought there.
    lab.agents.shared_pages.get_or_insert(Bytes(0));
    let state = State {
        lab,
        guests: vec![plan.guest.clone()],
    };
    let lab = Lab::create(state).await?;
    if let Some(disk) = &plan.guest.disk {
        require::check_disks(lab.folder(), disk)?;
    }
    let image = Image::build(lab.folder(), &lab.state().guests).await?;
    if let Some(libvirt) = &plan.libvirt {
        lab.start_libvirt(libvirt).await?;
        machine.libvirt = Some(libvirt::version(&lab.host(0)).await?);
    }
    let (methods, skipped) = possible(plan, &lab).await?;
    for one in &skipped {
        say(&format!("{} skipped, because {}", one.method, one.because));
    }
    if methods.is_empty() {
        bail!("no method is possible here");
    }

    let longest = plan.longest_s.map_or(limits::MOVE, Duration::from_secs);
    let stage = Stage::new(&lab, &plan.guest, &image).with_longest(longest);
    let mut stage = stage.with_libvirt(plan.libvirt.as_ref());
    if methods.iter().any(|method| method.encryption().is_some()) {
        stage.start_agents().await?;
    }
    have_always(plan).await?;
    let (variants, calibration) = calibrate(plan, &methods, &mut stage, say).await?;
    let mut runs = Vec::new();
    for repeat in 0..plan.repeats {
        for method in method::order(&methods, repeat) {
            let task = Task {
                method,
                variant: variants[&method],
                repeat,
                faults: &[],
                clean: None,
            };
            // What took a fault back may have taken this back with it.
            have_always(plan).await?;
            let run = stage.run(task).await?;
            say(&report::line(&run, plan.repeats));
            runs.push(run);
            if plan.faults.is_empty() {
                continue;
            }
            let task = Task {
                faults: &plan.faults,
                clean: ordeal::clean(&runs, method),
                ..task
            };
            let run = stage.run(task).await?;
            say(&report::line(&run, plan.repeats));
            runs.push(run);
        }
    }
    stage.end().await?;
    lab.remove().await?;
    Ok(Comparison::new(
        command,
        machine,
        plan.clone(),
        skipped,
        calibration,
        runs,
    ))
}

/// A method that does not move what it is to move.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(String);

/// A method moves a domain of libvirt's, with a disk of its own or without, or a guest of none.
///
/// # Errors
/// One that moves another, with those that do; a disk of a guest that is no domain.
pub fn check_methods(
    libvirt: Option<&Libvirt>,
    disk: Option<&LocalDisk>,
    methods: &[Method],
) -> Result<(), Unfit> {
    if libvirt.is_none() && disk.is_some() {
        return Err(Unfit(
            "only a domain of libvirt's has a disk of its own here: say of which, such as --libvirt 11.3".to_owned(),
        ));
    }
    for method in methods {
        let fits =
            |method: &Method| method.moves_domains() && method.moves_disks() == disk.is_some();
        if libvirt.is_some() && !fits(method) {
            let others = Method::ALL.into_iter().filter(fits);
            let others: Vec<_> = others.map(Method::name).collect();
            let (what, with) = match disk {
                Some(_) => ("disk of a domain's", "--disk"),
                None if method.moves_disks() => {
                    ("domain without a disk of its own", "--libvirt alone")
                }
                None => ("domain of libvirt's", "--libvirt"),
            };
            return Err(Unfit(format!(
                "{method} moves no {what}: with {with} methods are {}",
                others.join(", ")
            )));
        }
        if libvirt.is_none() && *method == Method::DroverDisks {
            return Err(Unfit(format!(
                "{method} moves a domain with a disk of its own: say of which libvirt and how large, such as --libvirt 11.3 --disk 1GiB"
            )));
        }
        if libvirt.is_none() && method.is_virsh() {
            return Err(Unfit(format!(
                "{method} moves a domain of libvirt's: say of which, such as --libvirt 11.3"
            )));
        }
    }
    Ok(())
}

/// Has what is so in every move be so.
async fn have_always(plan: &Plan) -> Result<()> {
    for fault in &plan.always {
        fault::harm(&plan.lab, 0, fault).await?;
    }
    Ok(())
}

async fn possible(plan: &Plan, lab: &Lab) -> Result<(Vec<Method>, Vec<Skipped>)> {
    let (mut methods, mut skipped) = (Vec::new(), Vec::new());
    // Once for all methods: the kernel refuses an address that it has already.
    let mptcp = if plan.methods.iter().any(|method| method.is_mptcp()) {
        network::enable_mptcp(&plan.lab).await.err()
    } else {
        None
    };
    for &method in &plan.methods {
        let because = match &mptcp {
            Some(error) if method.is_mptcp() => Some(format!("{error:#}")),
            _ if method == Method::VirshParallelZstd => lacks_zstd(lab).await?,
            _ => None,
        };
        match because {
            Some(because) => skipped.push(Skipped { method, because }),
            None => methods.push(method),
        }
    }
    Ok((methods, skipped))
}

async fn lacks_zstd(lab: &Lab) -> Result<Option<String>> {
    let knows = by_virsh::knows(lab, by_virsh::ZSTD).await?;
    Ok((!knows).then(|| "this libvirt compresses no parallel migration".to_owned()))
}

type Variants = std::collections::BTreeMap<Method, Variant>;

/// Tries the variants of each method once and keeps the fastest.
async fn calibrate(
    plan: &Plan,
    methods: &[Method],
    stage: &mut Stage<'_>,
    say: Say<'_>,
) -> Result<(Variants, Vec<Run>)> {
    let (mut chosen, mut runs) = (Variants::new(), Vec::new());
    for &method in methods {
        let all = method.variants();
        let fixed = match plan.channels {
            Some(_) if all.len() > 1 => Variant {
                channels: plan.channels,
            },
            _ => all[0],
        };
        chosen.insert(method, fixed);
        if !plan.calibrate || plan.channels.is_some() || all.len() == 1 {
            continue;
        }
        let mut best = f64::INFINITY;
        for &variant in all {
            let task = Task {
                method,
                variant,
                repeat: 0,
                faults: &[],
                clean: None,
            };
            let run = stage.run(task).await?;
            say(&format!(
                "trying {method} with {variant}: {}",
                report::brief(&run)
            ));
            if let Some(total) = run.total_ms().filter(|total| *total < best) {
                best = total;
                chosen.insert(method, variant);
            }
            runs.push(run);
        }
    }
    Ok((chosen, runs))
}
