//! Does harm to the NICs of a lab, and takes it back.
//!
//! Packets vanish where they arrive, as on a broken wire: the sender's kernel counts them as sent
//! and hears nothing. Dropped on the way out instead, TCP would be told.

use anyhow::Result;
use drover_types::BitRate;

use super::syntax::{Fault, Harm, NewRate, Side, Which};
use crate::command::run;
use crate::dice::Dice;
use crate::network::{self, HOSTS, nic};
use crate::settings::LabSettings;

/// The agents' port for each other: what is killed are lanes.
const CONTROL: &str = ":7470";

/// A move's NICs, seen from its source.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    lab: LabSettings,
    source: usize,
}

/// The name of NIC `number` while it has been renamed.
pub(crate) fn renamed(number: usize) -> String {
    format!("renamed{number}")
}

impl Hand {
    pub(super) fn new(lab: LabSettings, source: usize) -> Self {
        Self { lab, source }
    }

    /// How many NICs each host has.
    pub(super) fn nics(&self) -> usize {
        self.lab.nics.len()
    }

    /// The rate of a NIC as the lab made it.
    pub(super) fn rate_of(&self, number: usize) -> Option<BitRate> {
        self.lab.nics.get(number).copied().flatten()
    }

    fn host(&self, side: Side) -> usize {
        match side {
            Side::Source => self.source,
            Side::Destination => 1 - self.source,
        }
    }

    /// Where packets from a side, or from everybody, arrive.
    fn receivers(&self, from: Option<Side>) -> Vec<usize> {
        from.map_or(vec![0, 1], |side| vec![1 - self.host(side)])
    }

    fn space(&self, host: usize) -> String {
        network::namespace(&self.lab.name, HOSTS[host])
    }

    /// Does it, to one NIC.
    pub(super) async fn harm(&self, harm: Harm, number: usize) -> Result<()> {
        match harm {
            Harm::Cut { from, .. } => {
                let drops = |host| self.nft(host, drop_packets("cut", number, ""));
                each(self.receivers(from).into_iter().map(drops)).await
            }
            Harm::Large { above } => {
                each([0, 1].map(|host| self.single_packets(host, number))).await?;
                let condition = format!("meta length > {above}");
                let drops = |host| self.nft(host, drop_packets("large", number, &condition));
                each([0, 1].map(drops)).await
            }
            Harm::Down { from, .. } => self.link(self.host(from), number, "down").await,
            Harm::Rate(to) => self.rate(number, Some(to)).await,
            Harm::Rename => self.rename(&nic(number), &renamed(number)).await,
            Harm::Kill { .. } => Ok(()),
        }
    }

    /// Takes it back.
    pub(super) async fn heal(&self, harm: Harm, number: usize) -> Result<()> {
        match harm {
            Harm::Cut { from, .. } => {
                let passes = |host| self.nft(host, let_pass("cut", number));
                each(self.receivers(from).into_iter().map(passes)).await
            }
            Harm::Large { .. } => {
                each([0, 1].map(|host| self.nft(host, let_pass("large", number)))).await
            }
            Harm::Down { from, .. } => self.link(self.host(from), number, "up").await,
            Harm::Rate(_) => self.rate(number, None).await,
            Harm::Rename => self.rename(&renamed(number), &nic(number)).await,
            Harm::Kill { .. } => Ok(()),
        }
    }

    async fn nft(&self, host: usize, script: String) -> Result<()> {
        let space = self.space(host);
        let words = ["netns", "exec", &space, "nft", &script];
        run("ip", &words).await.map(drop)
    }

    async fn link(&self, host: usize, number: usize, state: &str) -> Result<()> {
        let (space, nic) = (self.space(host), nic(number));
        // Otherwise the kernel forgets the addresses of IPv6, which no cable does.
        let keep = format!("net.ipv6.conf.{nic}.keep_addr_on_down=1");
        let words = ["netns", "exec", &space, "sysctl", "-q", "-w", &keep];
        run("ip", &words).await?;
        run("ip", &["-n", &space, "link", "set", &nic, state])
            .await
            .map(drop)
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let space = self.space(self.source);
        run("ip", &["-n", &space, "link", "set", from, "name", to])
            .await
            .map(drop)
    }

    async fn rate(&self, number: usize, to: Option<NewRate>) -> Result<()> {
        let own = self.lab.nics[number];
        let rate = match to {
            None => own,
            Some(NewRate::Fixed(rate)) => Some(rate),
            Some(NewRate::Part(part)) => own.map(|own| BitRate((own.0 as f64 * part) as u64)),
        };
        each([0, 1].map(|host| network::shape(&self.lab, number, host, rate))).await
    }

    /// No packet is larger than the MTU: the kernel otherwise hands over up to 64 KiB at once, and
    /// its length tells nothing of what would be on the wire.
    async fn single_packets(&self, host: usize, number: usize) -> Result<()> {
        self.offload(host, number, "1").await
    }

    async fn offload(&self, host: usize, number: usize, segments: &str) -> Result<()> {
        let (space, nic) = (self.space(host), nic(number));
        let words = ["-n", &space, "link", "set", &nic, "gso_max_segs", segments];
        run("ip", &words).await.map(drop)
    }

    /// Resets one of the connections on a NIC of the source; which, if there was one.
    pub(super) async fn kill_one(&self, number: usize, dice: &mut Dice) -> Result<Option<String>> {
        let space = self.space(self.source);
        let Some(own) = network::address_of(&self.lab, number, self.source) else {
            return Ok(None);
        };
        let own = own.to_string();
        let words = ["-N", &space, "-tnH", "state", "established"];
        let found = run("ss", &words).await?;
        let lanes: Vec<_> = lanes(&found)
            .filter(|(local, _)| is_at(local, &own))
            .collect();
        let Some((local, peer)) = dice.pick(&lanes).copied() else {
            return Ok(None);
        };
        let words = [
            "-N",
            &space,
            "-tnHK",
            "src",
            &bare(local),
            "dst",
            &bare(peer),
        ];
        run("ss", &words).await?;
        Ok(Some(format!("{local} to {peer}")))
    }
}

/// The ends of connections that `ss -tnH state established` lists, those of control left out.
fn lanes(listed: &str) -> impl Iterator<Item = (&str, &str)> {
    listed.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().skip(2);
        let (local, peer) = (columns.next()?, columns.next()?);
        let control = [local, peer].iter().any(|end| end.ends_with(CONTROL));
        (!control).then_some((local, peer))
    })
}

/// Whether `10.77.1.1%nic1:4242` or `[fd77::1]%nic1:4242` is at this address.
fn is_at(end: &str, address: &str) -> bool {
    let Some((host, _)) = end.rsplit_once(':') else {
        return false;
    };
    let host = host.split('%').next().unwrap_or(host);
    host.trim_matches(['[', ']']) == address
}

/// An end without its interface.
fn bare(end: &str) -> String {
    let Some((host, port)) = end.rsplit_once(':') else {
        return end.to_owned();
    };
    let host = host.split('%').next().unwrap_or(host);
    match host.strip_prefix('[') {
        Some(open) if !open.ends_with(']') => format!("{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// Drops what arrives on a NIC, or what of it meets a condition. Right also when it does already.
fn drop_packets(kind: &str, number: usize, condition: &str) -> String {
    let chain = format!("netdev fault {kind}_{}", nic(number));
    format!("{} add rule {chain} {condition} drop;", empty(kind, number))
}

fn let_pass(kind: &str, number: usize) -> String {
    let chain = format!("netdev fault {kind}_{}", nic(number));
    format!("{} delete chain {chain};", empty(kind, number))
}

fn empty(kind: &str, number: usize) -> String {
    let nic = nic(number);
    let chain = format!("netdev fault {kind}_{nic}");
    format!(
        "add table netdev fault; add chain {chain} {{ type filter hook ingress device {nic} \
         priority 0; }}; flush chain {chain};"
    )
}

async fn each(works: impl IntoIterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    // Two at most: one on each host, in turn and within some milliseconds.
    let mut first = Ok(());
    for work in works {
        let done = work.await;
        first = first.and(done);
    }
    first
}

/// Does at once what a fault says, whenever it says so; a NIC's connections are killed once. Until
/// [`heal`].
///
/// # Errors
/// What `nft`, `tc`, `ip` or `ss` say.
pub async fn harm(lab: &LabSettings, source: usize, fault: &Fault) -> Result<()> {
    check(lab, &[*fault])?;
    let hand = Hand::new(lab.clone(), source);
    for number in fault.nics.of(lab.nics.len()) {
        hand.harm(fault.harm, number).await?;
        if matches!(fault.harm, Harm::Kill { .. }) {
            hand.kill_one(number, &mut Dice::new(0)).await?;
        }
    }
    Ok(())
}

/// Makes every NIC that these faults can have harmed as the lab made it. Right in any state.
///
/// # Errors
/// What `nft`, `tc` or `ip` say; all of it was tried.
pub async fn heal(lab: &LabSettings, faults: &[Fault]) -> Result<()> {
    let hand = Hand::new(lab.clone(), 0);
    let mut worst = Ok(());
    for host in 0..HOSTS.len() {
        for fault in faults {
            for number in fault.nics.of(lab.nics.len()) {
                let healed = hand.restore(host, number, fault.harm).await;
                worst = worst.and(healed);
            }
        }
        let dropping = |fault: &Fault| matches!(fault.harm, Harm::Cut { .. } | Harm::Large { .. });
        if faults.iter().any(dropping) {
            let none = "add table netdev fault; delete table netdev fault;";
            worst = worst.and(hand.nft(host, none.to_owned()).await);
        }
    }
    worst
}

impl Hand {
    async fn restore(&self, host: usize, number: usize, harm: Harm) -> Result<()> {
        match harm {
            Harm::Cut { .. } | Harm::Kill { .. } => Ok(()),
            Harm::Large { .. } => self.offload(host, number, "65535").await,
            Harm::Down { .. } => self.link(host, number, "up").await,
            Harm::Rate(_) => network::shape(&self.lab, number, host, self.lab.nics[number]).await,
            Harm::Rename => {
                let (space, other) = (self.space(host), renamed(number));
                if run("ip", &["-n", &space, "link", "show", &other])
                    .await
                    .is_err()
                {
                    return Ok(());
                }
                let own = nic(number);
                run("ip", &["-n", &space, "link", "set", &other, "name", &own])
                    .await
                    .map(drop)
            }
        }
    }
}

/// Whether a fault asks for a part of a rate that a NIC does not have, or for a NIC that is not.
///
/// # Errors
/// It does.
pub(crate) fn check(lab: &LabSettings, faults: &[Fault]) -> Result<()> {
    for fault in faults {
        if let Which::One(number) = fault.nics
            && number >= lab.nics.len()
        {
            anyhow::bail!(
                "fault \"{fault}\": the lab's last NIC is number {}",
                lab.nics.len() - 1
            );
        }
        let unlimited = |number: usize| lab.nics[number].is_none();
        let part = matches!(fault.harm, Harm::Rate(NewRate::Part(_)));
        if part && fault.nics.of(lab.nics.len()).any(unlimited) {
            anyhow::bail!(
                "fault \"{fault}\": a part of an unlimited rate is no rate; write to=100mbit, or \
                 give the lab --rate"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::nic_rates;

    #[test]
    fn connections_are_found_by_their_own_address_and_control_is_spared() {
        let listed = "0      0      10.77.1.1%nic1:40001   10.77.1.2:50000 \n\
                      0      0           10.77.0.1:7470    10.77.0.2:50001\n\
                      0      4   [fd77:1::1]%nic1:40003 [fd77:1::2]:50000\n";
        let found: Vec<_> = lanes(listed).collect();
        assert_eq!(found.len(), 2);
        assert!(is_at(found[0].0, "10.77.1.1"));
        assert!(!is_at(found[0].0, "10.77.1.10"));
        assert!(is_at(found[1].0, "fd77:1::1"));
        assert_eq!(bare(found[0].0), "10.77.1.1:40001");
        assert_eq!(bare(found[1].0), "[fd77:1::1]:40003");
        assert_eq!(bare("[fe80::1%nic1]:7"), "[fe80::1]:7");
    }

    #[test]
    fn faults_that_the_lab_cannot_have_are_refused() {
        let lab = |rates| LabSettings {
            name: "x".parse().unwrap(),
            nics: nic_rates(rates, None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
        };
        let fault = |text: &str| [text.parse::<Fault>().unwrap()];
        let refused = |rates, text| check(&lab(rates), &fault(text)).unwrap_err().to_string();
        assert!(refused("1gbit,1gbit", "cut nic=2").contains("last NIC is number 1"));
        assert!(refused("1gbit,none", "rate nic=all to=0.5").contains("unlimited"));
        assert!(check(&lab("1gbit,none"), &fault("rate nic=0 to=0.5")).is_ok());
    }
}
