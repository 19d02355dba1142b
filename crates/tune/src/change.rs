//! What would be changed on a host, and what is there until then.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::Pause;

/// What a change does to those who use the host meanwhile, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disruption {
    /// Nothing.
    Safe,
    /// The link may go for some seconds.
    BouncesLink,
    /// It lasts beyond a restart, or is firmware's.
    Persistent,
    /// Only people can: at the switch, at the cable, in the machine's setup.
    ByHand,
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "safe",
            Self::BouncesLink => "may bounce the link",
            Self::Persistent => "persistent",
            Self::ByHand => "by hand",
        })
    }
}

/// A change of one host that makes a finding go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it does to others.
    pub disruption: Disruption,
    /// What is done, in this order; undone in the other.
    pub steps: Vec<Step>,
}

/// One thing that is set: from what is there to what is to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A file of `/sys` or `/proc`.
    File {
        /// Its path from the root, without a slash at the beginning.
        path: String,
        /// What is in it.
        from: String,
        /// What is to be in it.
        to: String,
    },
    /// A setting of an interface, by the words of `ethtool` or `ip`.
    Nic {
        /// The interface.
        nic: String,
        /// What is set.
        what: NicSetting,
        /// What it is.
        from: String,
        /// What it is to be.
        to: String,
    },
}

/// A setting of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicSetting {
    /// Its largest packet.
    Mtu,
    /// How its rate comes about ([`crate::Negotiation`]).
    Negotiation,
    /// Which errors are corrected, and how.
    Fec,
    /// Whether pause frames are obeyed and sent.
    Pause,
    /// Queues for both directions.
    CombinedChannels,
    /// Places for packets that arrive.
    ReceiveRing,
    /// Whether interrupts follow what arrives.
    AdaptiveReceive,
    /// One of ethtool's features, by the kernel's name.
    Feature(String),
}

/// Modes of error correction as `ethtool --set-fec` takes them.
#[must_use]
pub fn fec_words(configured: &BTreeSet<String>) -> String {
    if configured.is_empty() {
        return "off".to_owned();
    }
    let words: Vec<String> = configured.iter().map(|mode| mode.to_lowercase()).collect();
    words.join(" ")
}

/// `on` or `off`, as ethtool says it.
pub(crate) const fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Whether ends agree on pause frames, where that is told, and whether these are obeyed and sent, as `ethtool -A NIC` takes it.
#[must_use]
pub fn pause_words(pause: &Pause) -> String {
    let both = format!("rx {} tx {}", switch(pause.receive), switch(pause.send));
    match pause.agreed {
        Some(on) => format!("autoneg {} {both}", switch(on)),
        None => both,
    }
}

/// The same from its words; none of other words.
#[must_use]
pub fn read_pause(words: &str) -> Option<Pause> {
    let on = |word: &str| match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    let (agreed, receive, send) = match words.split(' ').collect::<Vec<_>>()[..] {
        ["autoneg", agreed, "rx", receive, "tx", send] => (Some(on(agreed)?), receive, send),
        ["rx", receive, "tx", send] => (None, receive, send),
        _ => return None,
    };
    Some(Pause {
        receive: on(receive)?,
        send: on(send)?,
        agreed,
        ..Pause::default()
    })
}

impl Step {
    /// A setting of the kernel, from its name in sysctl.
    pub(crate) fn setting(name: &str, from: &str, to: impl Into<String>) -> Self {
        Self::File {
            path: format!("proc/sys/{}", name.replace('.', "/")),
            from: from.to_owned(),
            to: to.into(),
        }
    }

    /// What takes it back.
    #[must_use]
    pub fn undo(&self) -> Self {
        let mut undo = self.clone();
        match &mut undo {
            Self::File { from, to, .. } | Self::Nic { from, to, .. } => std::mem::swap(from, to),
        }
        undo
    }
}

/// The command that does it, for a shell.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, to, .. } => match path.strip_prefix("proc/sys/") {
                Some(name) => {
                    let setting = format!("{}={to}", name.replace('/', "."));
                    write!(f, "sysctl -w {}", quoted(&setting))
                }
                None => write!(f, "echo {} > {}", quoted(to), quoted(&format!("/{path}"))),
            },
            Self::Nic { nic, what, to, .. } => of_nic(f, &quoted(nic), what, &words(to)),
        }
    }
}

fn of_nic(f: &mut fmt::Formatter<'_>, nic: &str, what: &NicSetting, to: &str) -> fmt::Result {
    match what {
        NicSetting::Mtu => write!(f, "ip link set dev {nic} mtu {to}"),
        NicSetting::Negotiation => write!(f, "ethtool -s {nic} autoneg {to}"),
        NicSetting::Fec => write!(f, "ethtool --set-fec {nic} encoding {to}"),
        NicSetting::Pause => write!(f, "ethtool -A {nic} {to}"),
        NicSetting::CombinedChannels => write!(f, "ethtool -L {nic} combined {to}"),
        NicSetting::ReceiveRing => write!(f, "ethtool -G {nic} rx {to}"),
        NicSetting::AdaptiveReceive => write!(f, "ethtool -C {nic} adaptive-rx {to}"),
        NicSetting::Feature(name) => write!(f, "ethtool -K {nic} {} {to}", quoted(name)),
    }
}

/// A word for a shell, whatever is in it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._/:=@%+,-".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Several of them.
fn words(text: &str) -> String {
    let words: Vec<String> = text.split_ascii_whitespace().map(quoted).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_as_the_command_that_does_it_and_undone_by_what_was_there() {
        let setting = Step::setting("net.core.rmem_max", "212992", "16777216");
        assert_eq!(setting.to_string(), "sysctl -w net.core.rmem_max=16777216");
        assert_eq!(
            setting.undo().to_string(),
            "sysctl -w net.core.rmem_max=212992"
        );
        assert_eq!(setting.undo().undo(), setting);
        let queues = Step::Nic {
            nic: "ens1f0".into(),
            what: NicSetting::CombinedChannels,
            from: "1".into(),
            to: "8".into(),
        };
        assert_eq!(queues.to_string(), "ethtool -L ens1f0 combined 8");
        assert_eq!(queues.undo().to_string(), "ethtool -L ens1f0 combined 1");
    }

    #[test]
    fn pause_frames_are_read_as_they_are_written_and_nothing_else_is() {
        for words in ["rx on tx off", "autoneg on rx off tx on"] {
            let read = read_pause(words).unwrap();
            assert_eq!(pause_words(&read), words);
        }
        for strange in ["", "rx on", "autoneg x rx on tx on", "rx on tx on "] {
            assert_eq!(read_pause(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn what_was_read_elsewhere_does_nothing_in_a_shell() {
        let setting = Step::setting("net.ipv4.tcp_wmem", "x", "1 2'; reboot; '");
        let shown = r"sysctl -w 'net.ipv4.tcp_wmem=1 2'\''; reboot; '\'''";
        assert_eq!(setting.to_string(), shown);
        let mtu = Step::Nic {
            nic: "x;reboot".into(),
            what: NicSetting::Mtu,
            from: "1500".into(),
            to: "9000 $(reboot)".into(),
        };
        assert_eq!(
            mtu.to_string(),
            "ip link set dev 'x;reboot' mtu 9000 '$(reboot)'"
        );
    }
}
