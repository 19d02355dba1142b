//! Which values a plan may set: those that rules want, and nothing by which a host could be cut off for good.

use drover_tune::{MTU_LEAST, NicSetting, Step};
use drover_types::CpuSet;

use crate::check::PlanError;
use crate::step::{ends, named, raises_mtu};

/// Whether a step sets what a rule may want.
pub(crate) fn check_value(step: &Step) -> Result<(), PlanError> {
    let (from, to) = ends(step);
    let (fits, expected) = match step {
        Step::File { path, .. } => of_file(path, from, to),
        Step::Nic { what, .. } => match what {
            NicSetting::Mtu => return check_mtu(step),
            // A rate by hand that the other end has not leaves a link down that tells nothing any more.
            NicSetting::Negotiation => (to == "on", "on"),
            NicSetting::Fec => (to == "auto", "auto"),
            NicSetting::Pause => (to == "rx off tx off", "rx off tx off"),
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
        Some("rps_cpus") => (to == "0", "0"),
        Some("smp_affinity_list") => {
            let cpus = to.parse();
            (
                cpus.is_ok_and(|cpus: CpuSet| !cpus.is_empty()),
                "a list of processors",
            )
        }
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
