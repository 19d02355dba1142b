//! Steps as this crate looks at them.

use drover_tune::{Disruption, Negotiation, NicSetting, Step, disruption, read_pause};

use crate::sizes::Mtu;

/// What was there, and what is to be there.
pub(crate) fn ends(step: &Step) -> (&str, &str) {
    let (Step::File { from, to, .. } | Step::Nic { from, to, .. }) = step;
    (from, to)
}

/// Whether it may take a link away for a while.
pub(crate) fn bounces(step: &Step) -> bool {
    disruption(step) >= Disruption::BouncesLink
}

/// Whether both set the same thing.
#[must_use]
pub fn same_setting(one: &Step, other: &Step) -> bool {
    match (one, other) {
        (Step::File { path: one, .. }, Step::File { path: other, .. }) => one == other,
        (
            Step::Nic { nic, what, .. },
            Step::Nic {
                nic: of,
                what: other,
                ..
            },
        ) => nic == of && what == other,
        _ => false,
    }
}

/// Whether what was read is what a step says, whatever way the kernel writes it.
#[must_use]
pub fn is(step: &Step, read: &str, said: &str) -> bool {
    match what(step) {
        Some(NicSetting::Negotiation) => return Negotiation::is(read, said),
        Some(NicSetting::Pause) => return is_pause(read, said),
        _ => {}
    }
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
    let (read_words, said_words): (Vec<String>, Vec<String>) = (words(read), words(said));
    read_words == said_words || (is_mask(step) && digits(read) == digits(said))
}

/// Whether what is there is what was before a step, which is ordered back if that `is_done`. Once ends are to agree on pause frames again,
/// some drivers tell what they have agreed on so far, which is nothing while a link comes up.
pub(crate) fn is_back(undo: &Step, read: &str, is_done: bool) -> bool {
    let (_, before) = ends(undo);
    let agree = |words: &str| read_pause(words).is_some_and(|pause| pause.agreed == Some(true));
    let is_pause = what(undo) == Some(&NicSetting::Pause);
    is(undo, read, before) || (is_done && is_pause && agree(before) && agree(read))
}

fn what(step: &Step) -> Option<&NicSetting> {
    match step {
        Step::File { .. } => None,
        Step::Nic { what, .. } => Some(what),
    }
}

/// Pause frames by their words: those of earlier versions do not say whether ends agree on them, which may then be either way.
fn is_pause(read: &str, said: &str) -> bool {
    match (read_pause(read), read_pause(said)) {
        (Some(read), Some(said)) => {
            let is_agreed = said.agreed.is_none() || read.agreed == said.agreed;
            is_agreed && (read.receive, read.send) == (said.receive, said.send)
        }
        _ => read == said,
    }
}

/// A set of processors in hexadecimal: the kernel writes as many digits as it has processors.
fn is_mask(step: &Step) -> bool {
    let Step::File { path, .. } = step else {
        return false;
    };
    let ends = ["/rps_cpus", "/xps_cpus", "/smp_affinity"];
    ends.iter().any(|end| path.ends_with(end))
}

fn digits(mask: &str) -> String {
    let digits: String = mask.chars().filter(|digit| *digit != ',').collect();
    digits.trim().trim_start_matches('0').to_ascii_lowercase()
}

/// The interface that it is of, if it is of one.
pub(crate) fn nic(step: &Step) -> Option<&str> {
    match step {
        Step::File { path, .. } => path.strip_prefix("sys/class/net/")?.split('/').next(),
        Step::Nic { nic, .. } => Some(nic),
    }
}

/// What is set, in a word for people.
#[must_use]
pub fn named(step: &Step) -> String {
    match step {
        Step::File { path, .. } => match path.strip_prefix("proc/sys/") {
            Some(name) => name.replace('/', "."),
            None => format!("/{path}"),
        },
        Step::Nic { nic, what, .. } => format!("{nic} {}", of_nic(what)),
    }
}

fn of_nic(what: &NicSetting) -> &str {
    match what {
        NicSetting::Mtu => "mtu",
        NicSetting::Negotiation => "autoneg",
        NicSetting::Fec => "fec",
        NicSetting::Pause => "pause",
        NicSetting::CombinedChannels => "combined",
        NicSetting::ReceiveRing => "rx",
        NicSetting::AdaptiveReceive => "adaptive-rx",
        NicSetting::Feature(name) => name,
    }
}

/// What it makes of an interface's largest packet, if it is about that.
pub(crate) fn mtu(step: &Step) -> Option<Mtu<'_>> {
    let Step::Nic {
        nic,
        what: NicSetting::Mtu,
        from,
        to,
    } = step
    else {
        return None;
    };
    Some(Mtu {
        nic,
        // What is no number is not known to be as large as what it becomes.
        from: from.parse().unwrap_or(0),
        to: to.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_the_same_with_any_number_of_digits_and_other_words_are_not() {
        let file = |path: &str| Step::File {
            path: path.into(),
            from: String::new(),
            to: String::new(),
        };
        let mask = file("sys/class/net/a/queues/rx-0/rps_cpus");
        assert!(is(&mask, "f", "00000000,0000000F"));
        assert!(is(&mask, "00", "0"));
        assert!(!is(&mask, "f", "e"));
        let buffers = file("proc/sys/net/ipv4/tcp_wmem");
        assert!(is(&buffers, "4096\t16384\t1", "4096 16384 1"));
        assert!(!is(&buffers, "00", "0"));
        assert_eq!(named(&buffers), "net.ipv4.tcp_wmem");
    }

    fn pause(from: &str, to: &str) -> Step {
        Step::Nic {
            nic: "a".into(),
            what: NicSetting::Pause,
            from: from.into(),
            to: to.into(),
        }
    }

    #[test]
    fn words_that_do_not_say_whether_ends_agree_on_pause_frames_are_about_these_alone() {
        let step = pause("rx on tx on", "rx off tx off");
        for read in [
            "rx off tx off",
            "autoneg off rx off tx off",
            "autoneg on rx off tx off",
        ] {
            assert!(is(&step, read, "rx off tx off"), "{read}");
            assert!(!is(&step, read, "rx on tx on"), "{read}");
            assert!(!is(&step, read, "rx off tx on"), "{read}");
        }
        let agreed = "autoneg on rx off tx off";
        assert!(is(&step, agreed, agreed));
        assert!(!is(&step, "autoneg off rx off tx off", agreed));
        assert!(!is(&step, "rx off tx off", agreed));
        assert!(!is(&step, "", agreed));
    }

    #[test]
    fn pause_frames_are_back_once_ends_agree_on_them_again_and_not_before_that_was_ordered() {
        let undo = pause("autoneg off rx off tx off", "autoneg on rx on tx on");
        let agreed = "autoneg on rx off tx off";
        assert!(is_back(&undo, "autoneg on rx on tx on", false));
        assert!(!is_back(&undo, agreed, false));
        assert!(is_back(&undo, agreed, true));
        assert!(!is_back(&undo, "autoneg off rx off tx off", true));
        // What is set by hand is told as it was set.
        let undo = pause("autoneg off rx off tx off", "autoneg off rx on tx on");
        assert!(!is_back(&undo, "autoneg off rx off tx off", true));
        assert!(!is_back(&undo, "autoneg on rx on tx on", true));
    }
}
