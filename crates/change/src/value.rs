//! Which values a plan may set: those that rules want, and nothing by which a host could be cut off for good.

use drover_tune::{MTU_LEAST, Negotiation, NicSetting, Step, read_pause};
use drover_types::CpuSet;

use crate::check::PlanError;
use crate::step::{ends, named, nic, raises_mtu};

/// Whether a step sets what a rule may want.
pub(crate) fn check_value(step: &Step) -> Result<(), PlanError> {
    let (from, to) = ends(step);
    let (fits, expected) = match step {
        Step::File { path, .. } => of_file(path, from, to),
        Step::Nic { what, .. } => match what {
            NicSetting::Mtu => return check_mtu(step),
            NicSetting::Negotiation => (
                Negotiation::read(to).is_some_and(|to| is_wanted(&to)),
                "on, or a rate for both directions at once",
            ),
            NicSetting::Fec => (
                ["auto", "off", "rs", "baser", "llrs"].contains(&to),
                "auto, off, rs, baser or llrs",
            ),
            NicSetting::Pause => (
                read_pause(to).is_some_and(|pause| !pause.receive && !pause.send),
                "rx off tx off, with autoneg on, off or left out",
            ),
            NicSetting::CombinedChannels | NicSetting::ReceiveRing => {
                (is_raised(from, to), "a larger number than is set")
            }
            NicSetting::AdaptiveReceive => (to == "on", "on"),
            NicSetting::Feature(name) if name == "rx-lro" => (to == "off", "off"),
            NicSetting::Feature(_) => (to == "on", "on"),
        },
    };
    let (setting, to) = (named(step), to.to_owned());
    fits.then_some(()).ok_or(PlanError::Value {
        setting,
        to,
        expected,
    })
}

/// Modes one by one are for taking back what was there.
fn is_wanted(to: &Negotiation) -> bool {
    matches!(
        to,
        Negotiation::All | Negotiation::Rate(_) | Negotiation::ByHand { full: true, .. }
    )
}

/// The interface whose link comes up only if the other end is as the step wants it: a rate or correction by hand.
pub(crate) fn by_hand(step: &Step) -> Option<&str> {
    let default = match step {
        Step::Nic {
            what: NicSetting::Negotiation,
            ..
        } => "on",
        Step::Nic {
            what: NicSetting::Fec,
            ..
        } => "auto",
        _ => return None,
    };
    nic(step).filter(|_| ends(step).1 != default)
}

fn check_mtu(step: &Step) -> Result<(), PlanError> {
    let (from, to) = ends(step);
    let (setting, to) = (named(step), to.to_owned());
    if raises_mtu(step) {
        let from = from.to_owned();
        return Err(PlanError::RaisesMtu { setting, from, to });
    }
    let large = to.parse().is_ok_and(|bytes: u32| bytes >= MTU_LEAST);
    large
        .then_some(())
        .ok_or(PlanError::SmallMtu { setting, to })
}

/// Whether a file may get that value, and what it may.
fn of_file(path: &str, from: &str, to: &str) -> (bool, &'static str) {
    match path.rsplit('/').next() {
        Some("tcp_rmem" | "tcp_wmem") => (
            is_larger(from, to),
            "three numbers, none below the last, and none below what is set",
        ),
        Some("rps_cpus" | "xps_cpus") => (to == "0", "0"),
        Some("smp_affinity_list") => {
            let cpus = to.parse();
            (
                cpus.is_ok_and(|cpus: CpuSet| !cpus.is_empty()),
                "a list of processors",
            )
        }
        Some("netdev_budget" | "netdev_budget_usecs" | "netdev_max_backlog") => {
            (is_raised(from, to), "a larger number than is set")
        }
        Some("tcp_congestion_control") => (to == "cubic", "cubic"),
        Some("scaling_governor") => (
            ["performance", "schedutil"].contains(&to),
            "performance, or schedutil",
        ),
        Some("energy_performance_preference") => (to == "performance", "performance"),
        _ => (to == "1", "1"),
    }
}

fn is_raised(from: &str, to: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    number(from)
        .zip(number(to))
        .is_some_and(|(from, to)| to > from)
}

/// Whether a buffer's least, usual and most bytes are in order, and none is less than it was.
fn is_larger(from: &str, to: &str) -> bool {
    let (Some(from), Some(to)) = (buffer(from), buffer(to)) else {
        return false;
    };
    to.is_sorted() && from.iter().zip(&to).all(|(from, to)| to >= from)
}

fn buffer(text: &str) -> Option<[u64; 3]> {
    let numbers: Result<Vec<u64>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}
