//! Carries steps of changes out, and says what is there.
//!
//! Decides nothing: which steps, in which order, and what becomes of them is for the caller, who writes down first what was there.

mod above;

use std::fs;
use std::io;
use std::path::Path;

use drover_tune::lasting::End;
use drover_tune::{Negotiation, NicSetting, Step, rate_of_mode};
use drover_types::in_short;
use futures_util::TryStreamExt;
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::LinkFlags;

use crate::error::HostError;
use crate::ethtool::{self, Ethtool, Order, OrderError, Question};
use crate::files;
use crate::interfaces::listed;
use crate::interrupts::is_managed;
use crate::limits::NETLINK;
use crate::stack::Stack;

/// Why a step was not done, or what is there cannot be said.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such interface.
    #[error("there is no interface {nic}")]
    NoNic {
        /// Its name.
        nic: String,
    },
    /// Interfaces are not listed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Nothing is set but what rules set.
    #[error("no rule sets what this does: {step}")]
    NotSet {
        /// The command that does it.
        step: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} /{path}")]
    File {
        /// Which way.
        what: &'static str,
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel spreads it by itself, such as one of queues for each processor (`IRQD_AFFINITY_MANAGED`).
    #[error("the kernel spreads it by itself")]
    Managed {
        /// Which file.
        path: String,
    },
    /// A value that the setting cannot have.
    #[error("{setting} cannot be {value:?}")]
    Value {
        /// What is set.
        setting: &'static str,
        /// As it was given.
        value: String,
    },
    /// The kernel does not tell what is there.
    #[error("it is not known what is set on {nic}, because {why}")]
    Untold {
        /// The interface.
        nic: String,
        /// Why.
        why: String,
    },
    /// The kernel does not do it.
    #[error("{nic} was not changed")]
    Order {
        /// The interface.
        nic: String,
        /// Why.
        source: OrderError,
    },
    /// The kernel does not set the largest packet.
    #[error("the largest packet of {nic} was not changed")]
    Mtu {
        /// The interface.
        nic: String,
        /// Why.
        source: rtnetlink::Error,
    },
    /// What stands on it gets smaller packets as well, and not larger ones again.
    #[error(
        "{upper} stands on {nic} with packets of {bytes} bytes: the kernel would make them smaller as well, and no undo larger again"
    )]
    Above {
        /// The interface.
        nic: String,
        /// What stands on it.
        upper: String,
        /// Its largest packet.
        bytes: u32,
    },
    /// What stands on it keeps its packets as they are.
    #[error(
        "{upper} stands on {nic} with packets of {bytes} bytes, and goes on sending them: {nic} would drop them; set {upper} first"
    )]
    Larger {
        /// The interface.
        nic: String,
        /// What stands on it.
        upper: String,
        /// Its largest packet.
        bytes: u32,
    },
    /// It takes too long.
    #[error("{nic} was not changed within {seconds} s")]
    Late {
        /// The interface.
        nic: String,
        /// The bound.
        seconds: u64,
    },
}

/// What is there now of what a step changes, in the step's words.
///
/// # Errors
/// [`ChangeError`].
pub async fn current(root: &Path, step: &Step) -> Result<String, ChangeError> {
    checked(step)?;
    match step {
        Step::File { path, .. } => {
            let text = files::text(&root.join(path));
            let text = text.map_err(|source| of_file("read", path, source))?;
            Ok(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
        }
        Step::Nic { nic, what, .. } => {
            let (index, mtu) = find(root, nic).await?;
            match what {
                NicSetting::Mtu => Ok(mtu.to_string()),
                what => told(nic, index, what),
            }
        }
    }
}

/// Has what a step changes be as it says, or as it was before: what is there afterwards is that, or it is an error.
///
/// # Errors
/// [`ChangeError`]. It may be set all the same where that is [`ChangeError::Larger`], which a bridge tells only then.
pub async fn perform(root: &Path, step: &Step, to: End) -> Result<(), ChangeError> {
    checked(step)?;
    let (Step::File {
        from, to: wanted, ..
    }
    | Step::Nic {
        from, to: wanted, ..
    }) = step;
    let value = match to {
        End::Before => from,
        End::After => wanted,
    };
    match step {
        Step::File { path, .. } => {
            fs::write(root.join(path), value).map_err(|source| not_written(path, source))
        }
        Step::Nic { nic, what, .. } if *what == NicSetting::Mtu => {
            let mtu = number("the largest packet", value)?;
            let stack = Stack::read().await?;
            let link = stack.find(nic).ok_or_else(|| no_nic(nic))?;
            above::check(&stack, link, mtu, to)?;
            set_mtu(nic, link.index, mtu).await?;
            if to == End::After && mtu < link.mtu {
                let stack = Stack::read().await?;
                let link = stack.find(nic).ok_or_else(|| no_nic(nic))?;
                above::followed(&stack, link)?;
            }
            Ok(())
        }
        Step::Nic { nic, what, .. } => {
            let (index, _) = find(root, nic).await?;
            match what {
                NicSetting::Negotiation => order(nic, index, &negotiation(nic, index, value)?),
                what => order(nic, index, &ordered(what, value)?),
            }
        }
    }
}

/// Whether an interface is on and has a carrier, by what the kernel tells; one that is not there has none.
///
/// # Errors
/// Why the kernel does not tell.
pub async fn carries(nic: &str) -> Result<bool, String> {
    let opened = rtnetlink::new_connection();
    let (connection, handle, _) = opened.map_err(|error| format!("netlink: {error}"))?;
    let connection = tokio::spawn(connection);
    let mut told = handle.link().get().match_name(nic.to_owned()).execute();
    let told = tokio::time::timeout(NETLINK, told.try_next()).await;
    connection.abort();
    let both = LinkFlags::Up | LinkFlags::LowerUp;
    match told {
        Ok(Ok(link)) => Ok(link.is_some_and(|link| link.header.flags.contains(both))),
        Ok(Err(rtnetlink::Error::NetlinkError(error))) if is_gone(&error) => Ok(false),
        Ok(Err(error)) => Err(format!("netlink: {}", in_short(error))),
        Err(_) => Err(format!("netlink told nothing for {} s", NETLINK.as_secs())),
    }
}

/// There is none of that name.
fn is_gone(error: &rtnetlink::packet_core::ErrorMessage) -> bool {
    error.to_io().raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn not_written(path: &str, source: io::Error) -> ChangeError {
    let of_interrupt = path.starts_with("proc/irq/");
    if of_interrupt && is_managed(&source) {
        let path = path.to_owned();
        return ChangeError::Managed { path };
    }
    of_file("write", path, source)
}

fn of_file(what: &'static str, path: &str, source: io::Error) -> ChangeError {
    let path = path.to_owned();
    ChangeError::File { what, path, source }
}

/// Whoever made the step may have read it from a file.
fn checked(step: &Step) -> Result<(), ChangeError> {
    let settable = drover_tune::settable(step);
    settable.then_some(()).ok_or_else(|| ChangeError::NotSet {
        step: in_short(step),
    })
}

/// Its index, and its largest packet.
async fn find(root: &Path, nic: &str) -> Result<(u32, u32), ChangeError> {
    let all = listed(root).await?;
    let found = all.into_iter().find(|listed| listed.interface.name == nic);
    let found = found.map(|listed| (listed.index, listed.interface.mtu));
    found.ok_or_else(|| no_nic(nic))
}

fn no_nic(nic: &str) -> ChangeError {
    let nic = nic.to_owned();
    ChangeError::NoNic { nic }
}

fn told(nic: &str, index: u32, what: &NicSetting) -> Result<String, ChangeError> {
    let untold = |why: String| ChangeError::Untold {
        nic: nic.to_owned(),
        why,
    };
    let ethtool = Ethtool::open().ok_or("the kernel has no ethtool netlink".to_owned());
    let mut ethtool = ethtool.map_err(untold)?;
    let mut ask = |question| ethtool.ask(index, question).map_err(untold);
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    match what {
        NicSetting::Mtu => Err(untold("netlink tells it otherwise".to_owned())),
        NicSetting::CombinedChannels => {
            let answer = ask(Question::Channels)?;
            Ok(ethtool::channels(&answer).combined.to_string())
        }
        NicSetting::ReceiveRing => {
            let rings = ethtool::rings(&ask(Question::Rings)?);
            let rings = rings.map_err(|why| untold(why.to_owned()))?;
            Ok(rings.receive.to_string())
        }
        NicSetting::AdaptiveReceive => {
            let told = ethtool::coalescing(&ask(Question::Coalesce)?).adaptive_receive;
            told.map(switch)
                .ok_or_else(|| untold("its driver cannot".to_owned()))
        }
        NicSetting::Feature(name) => {
            let features = ethtool::features(&ask(Question::Features)?);
            Ok(switch(features.active.contains(name)))
        }
        NicSetting::Fec => {
            let fec = ethtool::fec(&ask(Question::Fec)?);
            Ok(if fec.automatic {
                "auto".to_owned()
            } else {
                drover_tune::fec_words(&fec.configured)
            })
        }
        NicSetting::Pause => {
            let pause = ethtool::pause(&ask(Question::Pause)?);
            let pause = pause.map_err(|why| untold(why.to_owned()))?;
            Ok(drover_tune::pause_words(&pause))
        }
        NicSetting::Negotiation => {
            let link = ethtool::link(&ask(Question::Linkmodes)?);
            let now = Negotiation::of(&link).map_err(|why| untold(why.to_owned()))?;
            Ok(now.to_string())
        }
    }
}

fn ordered(what: &NicSetting, to: &str) -> Result<Order, ChangeError> {
    let wrong = |setting| ChangeError::Value {
        setting,
        value: to.to_owned(),
    };
    let switch = |setting| match to {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(wrong(setting)),
    };
    Ok(match what {
        NicSetting::Mtu | NicSetting::Negotiation => return Err(wrong("an order to ethtool")),
        NicSetting::CombinedChannels => {
            Order::combined_channels(number("the number of queues", to)?)
        }
        NicSetting::ReceiveRing => Order::receive_ring(number("the number of places", to)?),
        NicSetting::AdaptiveReceive => Order::adaptive_receive(switch("adaptive-rx")?),
        NicSetting::Feature(name) => Order::feature(name, switch("a feature")?),
        NicSetting::Fec => match to {
            "auto" => Order::fec(true, &[]),
            "off" => Order::fec(false, &["None".to_owned()]),
            words => {
                let modes = words.split(' ').map(str::to_uppercase);
                Order::fec(false, &modes.collect::<Vec<_>>())
            }
        },
        NicSetting::Pause => {
            let pause = drover_tune::read_pause(to).ok_or_else(|| wrong("pause frames"))?;
            Order::pause(pause.agreed, pause.receive, pause.send)
        }
    })
}

fn negotiation(nic: &str, index: u32, to: &str) -> Result<Order, ChangeError> {
    let wanted = Negotiation::read(to).ok_or_else(|| ChangeError::Value {
        setting: "negotiation",
        value: to.to_owned(),
    })?;
    Ok(match wanted {
        Negotiation::Rate(mbit) => Order::rate(true, mbit, true),
        Negotiation::ByHand { mbit, full } => Order::rate(false, mbit, full),
        Negotiation::Modes(modes) => Order::negotiates(&modes),
        // What is offered stays what it was, unless one says what is to be.
        Negotiation::All => {
            let untold = |why| ChangeError::Untold {
                nic: nic.to_owned(),
                why,
            };
            let ethtool = Ethtool::open().ok_or("the kernel has no ethtool netlink".to_owned());
            let mut ethtool = ethtool.map_err(untold)?;
            let answer = ethtool.ask(index, Question::Linkmodes).map_err(untold)?;
            let modes = ethtool::link(&answer).modes.supported.into_iter();
            let rates = modes.filter(|mode| rate_of_mode(mode).is_some());
            Order::negotiates(&rates.map(|mode| (mode, true)).collect::<Vec<_>>())
        }
    })
}

fn number(setting: &'static str, text: &str) -> Result<u32, ChangeError> {
    text.parse().map_err(|_| ChangeError::Value {
        setting,
        value: text.to_owned(),
    })
}

fn order(nic: &str, index: u32, order: &Order) -> Result<(), ChangeError> {
    let failed = |source| ChangeError::Order {
        nic: nic.to_owned(),
        source,
    };
    let mut ethtool = Ethtool::open().ok_or(OrderError::Strange).map_err(failed)?;
    ethtool.order(index, order).map_err(failed)
}

async fn set_mtu(nic: &str, index: u32, mtu: u32) -> Result<(), ChangeError> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|source| HostError::Socket { source })?;
    let connection = tokio::spawn(connection);
    let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
    let set = tokio::time::timeout(NETLINK, handle.link().change(message).execute()).await;
    connection.abort();
    let nic = nic.to_owned();
    match set {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(ChangeError::Mtu { nic, source }),
        Err(_) => Err(ChangeError::Late {
            nic,
            seconds: NETLINK.as_secs(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_the_kernel_spreads_is_its_own_and_no_other_file_is() {
        let irq = "proc/irq/7/smp_affinity_list";
        let refused = |path: &str, number: i32| {
            not_written(path, io::Error::from_raw_os_error(number)).to_string()
        };
        let (eperm, eio, einval) = (1, 5, 22);
        let managed = "the kernel spreads it by itself";
        assert_eq!(
            [eperm, eio].map(|number| refused(irq, number)),
            [managed; 2]
        );
        assert_eq!(refused(irq, einval), format!("cannot write /{irq}"));
        let other = "proc/sys/net/ipv4/tcp_wmem";
        assert_eq!(refused(other, eperm), format!("cannot write /{other}"));
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_has_no_carrier() {
        let up = std::fs::read_to_string("/sys/class/net/lo/operstate").unwrap_or_default();
        // It knows no other word while it is on.
        assert_eq!(carries("lo").await.unwrap(), up.trim() == "unknown");
        assert!(!carries("nobody").await.unwrap());
    }
}
