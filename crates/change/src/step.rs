//! Steps as this crate looks at them.

use drover_tune::{Disruption, Negotiation, NicSetting, Step, disruption};

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
    if matches!(
        step,
        Step::Nic {
            what: NicSetting::Negotiation,
            ..
        }
    ) {
        return Negotiation::is(read, said);
    }
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
    let (read_words, said_words): (Vec<String>, Vec<String>) = (words(read), words(said));
    read_words == said_words || (is_mask(step) && digits(read) == digits(said))
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

/// Whether it has an interface send larger packets than it does.
pub(crate) fn raises_mtu(step: &Step) -> bool {
    let Step::Nic {
        what: NicSetting::Mtu,
        from,
        to,
        ..
    } = step
    else {
        return false;
    };
    // What is no number is not known to be lower.
    match (from.parse::<u32>(), to.parse::<u32>()) {
        (Ok(from), Ok(to)) => to > from,
        _ => true,
    }
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
}
