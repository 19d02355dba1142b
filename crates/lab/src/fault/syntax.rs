//! The words for a fault, as a person writes them.
//!
//! ```text
//!   cut    nic=1 [from=source|destination] [every=250ms]   packets vanish, the link stays up
//!   down   nic=1 [from=source|destination] [every=2s]      the link is down
//!   flap   nic=1 every=250ms                               the same as cut with every=
//!   rate   nic=0 to=0.1 | to=100mbit                       the line is slower
//!   large  nic=1 above=1500                                larger packets vanish (MTU black hole)
//!   mtu    nic=all to=1500                                 both ends take no larger packets, and say so
//!   single nic=all                                         each packet is handed over alone, as without offloads
//!   kill   nic=1 every=250ms                               one connection is reset, at random
//!   rename nic=1                                           the interface has another name
//!
//!   nic=1 | nic=all
//!   at=50% | at=switchover | at=2s | at=before             default 0%: once QEMU has begun
//!   for=5s                                                 default: until the move has ended
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use drover_types::BitRate;
use serde::{Deserialize, Serialize};

use crate::limits;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fault {
    /// What.
    pub harm: Harm,
    /// To which NICs.
    pub nics: Which,
    /// When it begins.
    pub at: Moment,
    /// How long it lasts; until the move has ended without it.
    pub lasting: Option<Duration>,
}

/// What happens to a NIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Harm {
    /// Packets vanish on the wire: those that one end sent, or all. The link stays up.
    Cut {
        /// Whose packets; everybody's without it.
        from: Option<Side>,
        /// It comes and goes, being there and not for half of this time each.
        every: Option<Duration>,
    },
    /// One end is switched off, and the other sees its carrier gone.
    Down {
        /// Which end.
        from: Side,
        /// It comes and goes, being up and down for half of this time each.
        every: Option<Duration>,
    },
    /// The line has another rate, in both directions.
    Rate(NewRate),
    /// Larger packets vanish, without a word to the sender.
    Large {
        /// The largest that pass, in bytes.
        above: u32,
    },
    /// Both ends of the line take no larger packets, and their hosts know it.
    Mtu {
        /// The largest, in bytes.
        to: u32,
    },
    /// The kernel hands over each packet alone, and not up to 64 KiB at once, as where no adapter cuts and joins them.
    Single,
    /// One of the connections on the NIC is reset, at random, again and again.
    Kill {
        /// How often.
        every: Duration,
    },
    /// The source's interface has another name.
    Rename,
}

/// A line's rate from a fault on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NewRate {
    /// A part of what it was.
    Part(f64),
    /// So much.
    Fixed(BitRate),
}

/// One end of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host that the guest leaves.
    Source,
    /// The host that it goes to.
    Destination,
}

/// One NIC, or every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// That of this number.
    One(usize),
    /// All of them.
    All,
}

impl Which {
    /// Their numbers, of so many.
    pub fn of(self, nics: usize) -> impl Iterator<Item = usize> {
        (0..nics).filter(move |number| match self {
            Self::One(one) => one == *number,
            Self::All => true,
        })
    }
}

/// A moment of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// Before anybody is asked for it.
    Before,
    /// When so many hundredths of all bytes have been sent.
    Percent(f64),
    /// When the guest has stopped on the source.
    Switchover,
    /// So long after QEMU began.
    After(Duration),
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }
}

impl FromStr for Side {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "source" => Ok(Self::Source),
            "destination" => Ok(Self::Destination),
            other => bail!("{other:?} is no end of a move: source or destination"),
        }
    }
}

impl FromStr for Which {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "all" => Ok(Self::All),
            number => {
                let number = number.parse().ok().filter(|n| *n < limits::NICS);
                number.map(Self::One).with_context(|| {
                    let last = limits::NICS - 1;
                    format!("{text:?} is no NIC: a number from 0 to {last}, or all")
                })
            }
        }
    }
}

impl FromStr for Moment {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "before" => return Ok(Self::Before),
            "switchover" => return Ok(Self::Switchover),
            _ => {}
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().unwrap_or(f64::NAN);
            if !(0.0..100.0).contains(&percent) {
                bail!("{text:?} is no part of a move: 0% to 99%");
            }
            return Ok(Self::Percent(percent));
        }
        let words = || format!("{text:?} is no moment: write 50%, switchover, 2s, 500ms or before");
        duration(text).map(Self::After).with_context(words)
    }
}

impl FromStr for NewRate {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        if let Ok(part) = text.parse::<f64>() {
            if !(0.001..=1000.0).contains(&part) {
                bail!("{part} of a rate is not usable: from 0.001 to 1000");
            }
            return Ok(Self::Part(part));
        }
        let rate: BitRate = text.parse()?;
        if rate.0 == 0 {
            bail!("a rate of nothing is a cut: write `cut`");
        }
        Ok(Self::Fixed(rate))
    }
}

/// `250ms`, `5s`, `1.5s`.
fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(""), 1.0),
    };
    let seconds = number.parse::<f64>().unwrap_or(f64::NAN) * unit;
    let longest = limits::MOVE.as_secs_f64();
    if !(0.0..=longest).contains(&seconds) {
        bail!("{text:?} is no time: write 250ms or 5s, at most {longest} s");
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn period(text: &str) -> Result<Duration> {
    let period = duration(text)?;
    if period < limits::PERIOD {
        let least = limits::PERIOD.as_millis();
        bail!("every {text} is too often: at least {least} ms, since each change takes some 10 ms");
    }
    Ok(period)
}

/// The `key=value` of a fault, each taken once.
struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Options<'a> {
    fn of(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut options = BTreeMap::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .with_context(|| format!("{word:?} is no option: write key=value"))?;
            if options.insert(key, value).is_some() {
                bail!("{key} is given twice");
            }
        }
        Ok(Self(options))
    }

    fn take<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
        let Some(value) = self.0.remove(key) else {
            return Ok(None);
        };
        read(value).map(Some).with_context(|| key.to_owned())
    }

    fn need<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        self.take(key, read)?
            .with_context(|| format!("{key}= is missing"))
    }
}

fn harm(word: &str, options: &mut Options<'_>) -> Result<Harm> {
    Ok(match word {
        "cut" => Harm::Cut {
            from: options.take("from", str::parse)?,
            every: options.take("every", period)?,
        },
        "flap" => Harm::Cut {
            from: options.take("from", str::parse)?,
            every: Some(options.need("every", period)?),
        },
        "down" => Harm::Down {
            from: options.take("from", str::parse)?.unwrap_or(Side::Source),
            every: options.take("every", period)?,
        },
        "rate" => Harm::Rate(options.need("to", str::parse)?),
        "large" => Harm::Large {
            above: options.need("above", packet)?,
        },
        "mtu" => Harm::Mtu {
            to: options.need("to", packet_of_v6)?,
        },
        "single" => Harm::Single,
        "kill" => Harm::Kill {
            every: options.need("every", period)?,
        },
        "rename" => Harm::Rename,
        other => {
            bail!("{other:?} is no fault: cut, down, flap, rate, large, mtu, single, kill, rename")
        }
    })
}

/// The least is what IPv6 asks of every link, and it leaves room for a handshake.
fn packet(text: &str) -> Result<u32> {
    let bytes: u32 = text.parse().unwrap_or(0);
    if !(576..=65_535).contains(&bytes) {
        bail!("{text:?} is no size of a packet: 576 to 65535 bytes");
    }
    Ok(bytes)
}

/// Below the least of IPv6 an interface loses its addresses, and they do not come back.
fn packet_of_v6(text: &str) -> Result<u32> {
    match packet(text)? {
        bytes @ 1280.. => Ok(bytes),
        _ => bail!("{text:?} is too small for IPv6: 1280 to 65535 bytes"),
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || -> Result<Self> {
            let mut words = text.split_whitespace();
            let word = words.next().unwrap_or_default();
            let mut options = Options::of(words)?;
            let harm = harm(word, &mut options)?;
            let fault = Self {
                harm,
                nics: options.need("nic", str::parse)?,
                at: options
                    .take("at", str::parse)?
                    .unwrap_or(Moment::Percent(0.0)),
                lasting: options.take("for", duration)?,
            };
            if let Some(key) = options.0.keys().next() {
                bail!("`{word}` has no {key}=");
            }
            Ok(fault)
        };
        read().with_context(|| format!("fault {text:?}"))
    }
}

impl TryFrom<String> for Fault {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.harm.word())?;
        match self.nics {
            Which::One(number) => write!(f, " nic={number}")?,
            Which::All => f.write_str(" nic=all")?,
        }
        match self.harm {
            Harm::Cut { from, .. } => {
                if let Some(from) = from {
                    write!(f, " from={}", from.word())?;
                }
            }
            Harm::Down { from, .. } => write!(f, " from={}", from.word())?,
            Harm::Rate(NewRate::Part(part)) => write!(f, " to={part}")?,
            Harm::Rate(NewRate::Fixed(rate)) => write!(f, " to={}bit", rate.0)?,
            Harm::Large { above } => write!(f, " above={above}")?,
            Harm::Mtu { to } => write!(f, " to={to}")?,
            Harm::Single | Harm::Kill { .. } | Harm::Rename => {}
        }
        if let Some(every) = self.harm.every() {
            write!(f, " every={}", millis(every))?;
        }
        match self.at {
            Moment::Before => f.write_str(" at=before")?,
            Moment::Percent(percent) => write!(f, " at={percent}%")?,
            Moment::Switchover => f.write_str(" at=switchover")?,
            Moment::After(time) => write!(f, " at={}", millis(time))?,
        }
        if let Some(lasting) = self.lasting {
            write!(f, " for={}", millis(lasting))?;
        }
        Ok(())
    }
}

fn millis(time: Duration) -> String {
    match time.as_micros() % 1000 {
        0 => format!("{}ms", time.as_millis()),
        _ => format!("{}ms", time.as_micros() as f64 / 1e3),
    }
}

impl Harm {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Cut { .. } => "cut",
            Self::Down { .. } => "down",
            Self::Rate(_) => "rate",
            Self::Large { .. } => "large",
            Self::Mtu { .. } => "mtu",
            Self::Single => "single",
            Self::Kill { .. } => "kill",
            Self::Rename => "rename",
        }
    }

    /// How often it comes, when it comes and goes.
    #[must_use]
    pub fn every(self) -> Option<Duration> {
        match self {
            Self::Cut { every, .. } | Self::Down { every, .. } => every,
            Self::Kill { every } => Some(every),
            Self::Rate(_) | Self::Large { .. } | Self::Mtu { .. } | Self::Single | Self::Rename => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        text.parse().unwrap()
    }

    #[test]
    fn faults_are_read_as_people_write_them() {
        let cut = fault("cut nic=1 at=50%");
        let expected = Fault {
            harm: Harm::Cut {
                from: None,
                every: None,
            },
            nics: Which::One(1),
            at: Moment::Percent(50.0),
            lasting: None,
        };
        assert_eq!(cut, expected);
        let both = fault("cut nic=all at=2s for=5s");
        assert_eq!(both.lasting, Some(Duration::from_secs(5)));
        assert_eq!(both.at, Moment::After(Duration::from_secs(2)));
        assert_eq!(both.nics.of(3).collect::<Vec<_>>(), [0, 1, 2]);
        let slow = fault("rate nic=0 to=0.1 at=50%").harm;
        assert_eq!(slow, Harm::Rate(NewRate::Part(0.1)));
        let fixed = fault("rate nic=0 to=100mbit").harm;
        assert_eq!(fixed, Harm::Rate(NewRate::Fixed(BitRate(100_000_000))));
        let flap = fault("flap nic=1 every=250ms");
        assert_eq!(flap.harm.every(), Some(Duration::from_millis(250)));
        assert_eq!(flap, fault("cut nic=1 every=250ms"));
        assert_eq!(fault("cut nic=0 at=switchover").at, Moment::Switchover);
    }

    #[test]
    fn a_fault_in_json_is_what_a_person_would_write() {
        for text in [
            "cut nic=1 at=50%",
            "cut nic=0 from=destination every=500ms at=switchover for=1500ms",
            "down nic=2 from=source every=2000ms at=0%",
            "rate nic=0 to=0.1 at=50%",
            "rate nic=all to=100000000bit at=1000ms",
            "large nic=1 above=1500 at=before",
            "mtu nic=all to=1500 at=before",
            "single nic=all at=before",
            "kill nic=all every=250ms at=0%",
            "rename nic=1 at=30%",
            "cut nic=1 at=0.5ms for=2687ms",
        ] {
            assert_eq!(fault(text).to_string(), text);
            let json = serde_json::to_string(&fault(text)).unwrap();
            assert_eq!(serde_json::from_str::<Fault>(&json).unwrap(), fault(text));
        }
    }

    #[test]
    fn what_is_no_fault_is_refused_with_what_would_be_right() {
        for (text, word) in [
            ("", "cut, down, flap"),
            ("burn nic=1", "cut, down, flap"),
            ("cut", "nic= is missing"),
            ("cut nic=32", "0 to 31"),
            ("cut nic=1 nic=2", "twice"),
            ("cut nic=1 soon", "key=value"),
            ("cut nic=1 to=3", "has no to="),
            ("cut nic=1 at=100%", "0% to 99%"),
            ("cut nic=1 at=later", "switchover"),
            ("cut nic=1 from=a", "source or destination"),
            ("cut nic=1 for=1h", "250ms"),
            ("flap nic=1", "every= is missing"),
            ("flap nic=1 every=1ms", "too often"),
            ("rate nic=1 to=0", "0.001"),
            ("rate nic=1 to=0mbit", "cut"),
            ("large nic=1 above=40", "576"),
            ("mtu nic=1 to=1279", "1280"),
            ("mtu nic=1", "to= is missing"),
        ] {
            let refused = text.parse::<Fault>().unwrap_err();
            let refused = format!("{refused:#}");
            assert!(refused.contains(word), "{text:?}: {refused}");
        }
    }
}
