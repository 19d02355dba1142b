//! `drover lab up`: a lab that stays until `drover lab down`.

use anyhow::Result;
use clap::Args;
use drover_lab::breaks::Break;
use drover_lab::libvirt::Libvirt;
use drover_lab::settings::{AgentSettings, LabSettings};
use drover_lab::{State, operate, require};
use drover_types::Bytes;

use super::{MadeOf, NameArg, OK, breaks, interrupted, print, say, show, uninterrupted};

/// Examples.
pub(super) const EXAMPLES: &str = "\
Examples:
  drover lab up
  drover lab up --nics 4 --rate 500mbit --memory 2GiB --content 1GiB --dirty 64MiB@max
  drover lab up --rate none --mix random=100
  drover lab up --hosts 4 --guests 6                    a small cluster: drain, resume, top
  drover lab up --name small --hosts 3 --guests 2 --content 32MiB
  drover lab up --no-guest --break loss,slot            hosts badly set up, for the doctor to find
  drover lab up --checkpoints 3GiB                      a guest that comes back finds its pages
  drover lab up --no-guest --libvirt installed          hosts with a libvirt each, for domains of yours

";

/// The next step where hosts have a libvirt and no guests.
const DOMAINS: &str = "In a host's shell `virsh define FILE` and `virsh start NAME` make a domain of yours, which `drover vm list` shows there\n";

/// Options of `drover lab up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    #[command(flatten)]
    name: NameArg,
    /// Hosts, with an agent on each, in one cluster that the first coordinates
    ///
    /// More than two are joined by a switch. What is on them is moved by `drover drain`, `resume` and
    /// `migrate`, asked as is printed, and verified by `drover lab verify`; `drover lab migrate` is for the
    /// only guest of two hosts.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    hosts: u8,
    /// Guests, at home on the hosts in turn
    ///
    /// Several are of different sizes and differently busy, as in `drain` and `rounds`: --content, then
    /// 128MiB unless given, is the first one's. Others have 1 to 4 times as much, and memory as that takes;
    /// of the rate of --dirty, then 8MiB@8MiB, they have 0 to 4 times as much; each verifies 1MiB a
    /// second.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=32))]
    guests: u8,
    #[command(flatten)]
    made_of: MadeOf,
    /// Disk space of each host for pages of guests that left, or 0 [default: none]
    #[arg(long, value_name = "SIZE")]
    checkpoints: Option<Bytes>,
    /// Give each host this libvirt, which its agent sees: as `drover lab compare --libvirt` is told
    ///
    /// For domains of yours: the lab's own guests are none, so --no-guest goes with it.
    #[arg(long, value_name = "LIBVIRT", requires = "no_guest")]
    libvirt: Option<Libvirt>,
    /// Start no guest
    #[arg(long, conflicts_with = "guests")]
    no_guest: bool,
    /// Set the hosts up badly, for the doctor to find: names of `drover lab breaks --list`; may be repeated
    #[arg(long = "break", value_name = "NAME", value_delimiter = ',', value_parser = breaks::known)]
    breaks: Vec<&'static Break>,
}

impl UpArgs {
    fn state(&self) -> Result<State> {
        let guests = if self.no_guest { 0 } else { self.guests };
        let lab = self.made_of.lab(&self.name.name, self.hosts.into())?;
        let agents = AgentSettings {
            checkpoints: self.checkpoints,
            ..lab.agents
        };
        Ok(State {
            lab: LabSettings { agents, ..lab },
            guests: self.made_of.guest.many(guests.into())?,
        })
    }
}

pub(super) async fn up(args: &UpArgs, json: bool) -> Result<u8> {
    let state = args.state()?;
    require::check(&args.made_of.guest.qemu)?;
    if !args.breaks.is_empty() {
        drover_lab::breaks::check(&state.lab, &args.breaks)?;
        drover_lab::breaks::require(&args.breaks)?;
    }
    let lab = state.lab.clone();
    let work = async {
        let made = operate::up(state, args.libvirt.as_ref(), &mut say).await?;
        match breaks::break_hosts(&lab, &args.breaks).await {
            Ok(broken) => Ok((made, broken)),
            Err(error) => {
                // The error that led here is the one to tell.
                let _ = operate::down(&lab.name).await;
                Err(error)
            }
        }
    };
    let Some((made, broken)) = uninterrupted(work).await? else {
        return interrupted(&args.name.name).await;
    };
    print(json, &made, || {
        let broken = broken.map(|broken| breaks::next_steps(&made, &broken));
        let domains = args.libvirt.as_ref().map(|_| DOMAINS);
        let steps = show::next_steps(&made) + domains.unwrap_or_default();
        show::status(&made) + &steps + &broken.unwrap_or_default()
    })?;
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        up: UpArgs,
    }

    fn state(options: &str) -> Result<State> {
        let words = ["up"].into_iter().chain(options.split_whitespace());
        Line::try_parse_from(words)?.up.state()
    }

    fn refusal(options: &str) -> String {
        state(options).unwrap_err().to_string()
    }

    #[test]
    fn a_lab_of_which_nothing_is_said_has_two_hosts_and_one_guest() {
        let state = state("").unwrap();
        assert_eq!(state.lab.hosts, 2);
        let sizes: Vec<_> = state.guests.iter().map(|guest| guest.memory.0).collect();
        assert_eq!(sizes, [1 << 30]);
        assert_eq!(state.guests[0].content.0, 640 << 20);
    }

    #[test]
    fn several_guests_are_made_from_the_first_ones_content() {
        let state = state("--hosts 3 --guests 3 --content 32MiB").unwrap();
        let contents: Vec<_> = state.guests.iter().map(|guest| guest.content.0).collect();
        assert_eq!(contents, [32 << 20, 64 << 20, 96 << 20]);
        let homes: Vec<_> = (0..3).map(|guest| state.lab.home_of(guest)).collect();
        assert_eq!(homes, [0, 1, 2]);
        assert!(
            state
                .guests
                .iter()
                .all(|guest| guest.memory > guest.content)
        );
    }

    #[test]
    fn a_lab_may_have_hosts_and_no_guest() {
        assert!(state("--hosts 8 --no-guest").unwrap().guests.is_empty());
        assert!(refusal("--no-guest --guests 2").contains("cannot be used with"));
    }

    #[test]
    fn hosts_with_a_libvirt_have_no_guest_of_the_labs() {
        assert!(state("--no-guest --libvirt installed").is_ok());
        assert!(refusal("--libvirt installed").contains("--no-guest"));
    }

    #[test]
    fn hosts_and_guests_that_cannot_be_are_refused_with_what_can() {
        for (options, words) in [
            ("--hosts 0", "0 is not in 2..=8"),
            ("--hosts 1", "1 is not in 2..=8"),
            ("--hosts 9", "9 is not in 2..=8"),
            ("--guests 0", "0 is not in 1..=32"),
            ("--guests 33", "33 is not in 1..=32"),
        ] {
            let refused = refusal(options);
            assert!(refused.contains(words), "{options}: {refused}");
        }
    }

    #[test]
    fn memory_of_several_guests_is_refused_with_the_option_to_use() {
        let refused = refusal("--guests 3 --memory 2GiB");
        assert!(
            refused.contains("--memory 2 GiB is for one guest"),
            "{refused}"
        );
        assert!(refused.contains("--content"), "{refused}");
    }

    #[test]
    fn addresses_that_only_two_hosts_can_have_are_refused_for_more() {
        for way in ["duplicate", "asymmetric"] {
            assert!(state(&format!("--addressing v4,{way}")).is_ok());
            let refused = refusal(&format!("--hosts 3 --addressing v4,{way}"));
            let words = format!("only two hosts can be addressed {way}, not 3");
            assert!(refused.contains(&words), "{refused}");
        }
    }
}
