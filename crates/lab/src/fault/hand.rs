//! Does harm to the NICs of a lab, and takes it back.
//!
//! Packets vanish where they arrive, as on a broken wire: the sender's kernel counts them as sent
//! and hears nothing. Dropped on the way out instead, TCP would be told.

use anyhow::Result;
use drover_types::BitRate;

use super::syntax::{Fault, Harm, Moment, NewRate, Side, Which};
use crate::command::run;
use crate::dice::Dice;
use crate::network::{self, HOSTS, nic};
use crate::settings::LabSettings;
use crate::wire::{self, End};

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

    /// Both ends of the wire at one of the source's NICs: its own, and that of the other host or of
    /// the switch.
    fn ends(&self, number: usize) -> [End; 2] {
        wire::ends(&self.lab, number, self.source)
    }

    fn end(&self, side: Side, number: usize) -> End {
        let [source, other] = self.ends(number);
        match side {
            Side::Source => source,
            Side::Destination => other,
        }
    }

    /// Where packets from a side, or from everybody, arrive.
    fn receivers(&self, from: Option<Side>, number: usize) -> Vec<End> {
        let [source, other] = self.ends(number);
        match from {
            None => vec![source, other],
            Some(Side::Source) => vec![other],
            Some(Side::Destination) => vec![source],
        }
    }

    fn space(&self) -> String {
        network::namespace(&self.lab.name, HOSTS[self.source])
    }

    /// Does it, to one NIC.
    pub(super) async fn harm(&self, harm: Harm, number: usize) -> Result<()> {
        match harm {
            Harm::Cut { from, .. } => {
                let ends = self.receivers(from, number);
                each(ends.into_iter().map(|end| drop_packets("cut", end, None))).await
            }
            Harm::Large { above } => {
                each(self.ends(number).map(single_packets)).await?;
                let drops = |end| drop_packets("large", end, Some(above));
                each(self.ends(number).map(drops)).await
            }
            Harm::Down { from, .. } => link(&self.end(from, number), "down").await,
            Harm::Rate(to) => self.rate(number, Some(to)).await,
            Harm::Mtu { to } => each(self.ends(number).map(|end| largest(end, to))).await,
            Harm::Single => each(self.ends(number).map(single_packets)).await,
            Harm::Rename => self.rename(&nic(number), &renamed(number)).await,
            Harm::Kill { .. } => Ok(()),
        }
    }

    /// Takes it back.
    pub(super) async fn heal(&self, harm: Harm, number: usize) -> Result<()> {
        match harm {
            Harm::Cut { from, .. } => {
                let ends = self.receivers(from, number);
                each(ends.into_iter().map(|end| let_pass("cut", end))).await
            }
            Harm::Large { .. } => each(self.ends(number).map(|end| let_pass("large", end))).await,
            Harm::Mtu { .. } => {
                let own = self.lab.mtu;
                each(self.ends(number).map(|end| largest(end, own))).await
            }
            Harm::Single => each(self.ends(number).map(several_packets)).await,
            Harm::Down { from, .. } => link(&self.end(from, number), "up").await,
            Harm::Rate(_) => self.rate(number, None).await,
            Harm::Rename => self.rename(&renamed(number), &nic(number)).await,
            Harm::Kill { .. } => Ok(()),
        }
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let space = self.space();
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
        let shaped = |end: End| async move { wire::shape(&end, rate).await };
        each(self.ends(number).map(shaped)).await
    }

    /// Resets one of the connections on a NIC of the source; which, if there was one.
    pub(super) async fn kill_one(&self, number: usize, dice: &mut Dice) -> Result<Option<String>> {
        let space = self.space();
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

async fn nft(space: &str, script: &str) -> Result<()> {
    let words = ["netns", "exec", space, "nft", script];
    run("ip", &words).await.map(drop)
}

async fn link(end: &End, state: &str) -> Result<()> {
    let End { space, device } = end;
    // Otherwise the kernel forgets the addresses of IPv6, which no cable does.
    let keep = format!("net.ipv6.conf.{device}.keep_addr_on_down=1");
    let words = ["netns", "exec", space, "sysctl", "-q", "-w", &keep];
    run("ip", &words).await?;
    run("ip", &["-n", space, "link", "set", device, state])
        .await
        .map(drop)
}

/// No packet is larger than the MTU: the kernel otherwise hands over up to 64 KiB at once, and its
/// length tells nothing of what would be on the wire.
async fn single_packets(end: End) -> Result<()> {
    offload(&end, "1").await
}

async fn several_packets(end: End) -> Result<()> {
    offload(&end, "65535").await
}

/// The largest packet that an end takes.
async fn largest(End { space, device }: End, bytes: u32) -> Result<()> {
    let bytes = bytes.to_string();
    let words = ["-n", &space, "link", "set", &device, "mtu", &bytes];
    run("ip", &words).await.map(drop)
}

async fn offload(end: &End, segments: &str) -> Result<()> {
    let End { space, device } = end;
    let words = ["-n", space, "link", "set", device, "gso_max_segs", segments];
    run("ip", &words).await.map(drop)
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

/// Drops what arrives at an end, or only packets that are longer. Right also when it does already.
async fn drop_packets(kind: &str, end: End, above: Option<u32>) -> Result<()> {
    let chain = format!("netdev fault {kind}_{}", end.device);
    let which = above.map_or(String::new(), |above| format!("meta length > {above}"));
    let script = format!("{} add rule {chain} {which} drop;", empty(kind, &end));
    nft(&end.space, &script).await
}

async fn let_pass(kind: &str, end: End) -> Result<()> {
    let chain = format!("netdev fault {kind}_{}", end.device);
    let script = format!("{} delete chain {chain};", empty(kind, &end));
    nft(&end.space, &script).await
}

fn empty(kind: &str, End { device, .. }: &End) -> String {
    let chain = format!("netdev fault {kind}_{device}");
    format!(
        "add table netdev fault; add chain {chain} {{ type filter hook ingress device {device} \
         priority 0; }}; flush chain {chain};"
    )
}

async fn each(works: impl IntoIterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    // Two at most: one at each end of a wire, in turn and within some milliseconds.
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
    let mut worst = Ok(());
    for fault in faults {
        for number in fault.nics.of(lab.nics.len()) {
            for end in wire::wires(lab, number).as_flattened() {
                let restored = restore(lab, number, end, fault.harm).await;
                worst = worst.and(restored);
            }
            for host in lab.host_names() {
                let space = network::namespace(&lab.name, host);
                worst = worst.and(restore_name(&space, number, fault.harm).await);
            }
        }
    }
    let dropping = |fault: &Fault| matches!(fault.harm, Harm::Cut { .. } | Harm::Large { .. });
    if faults.iter().any(dropping) {
        for space in wire::spaces(lab) {
            let none = "add table netdev fault; delete table netdev fault;";
            worst = worst.and(nft(&space, none).await);
        }
    }
    worst
}

async fn restore(lab: &LabSettings, number: usize, end: &End, harm: Harm) -> Result<()> {
    match harm {
        Harm::Cut { .. } | Harm::Kill { .. } | Harm::Rename => Ok(()),
        Harm::Large { .. } | Harm::Single => several_packets(end.clone()).await,
        Harm::Mtu { .. } => largest(end.clone(), lab.mtu).await,
        Harm::Down { .. } => link(end, "up").await,
        Harm::Rate(_) => wire::shape(end, lab.nics[number]).await,
    }
}

async fn restore_name(space: &str, number: usize, harm: Harm) -> Result<()> {
    let other = renamed(number);
    let show = ["-n", space, "link", "show", &other];
    if harm != Harm::Rename || run("ip", &show).await.is_err() {
        return Ok(());
    }
    let own = nic(number);
    run("ip", &["-n", space, "link", "set", &other, "name", &own])
        .await
        .map(drop)
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

/// Whether something that is to be so in every move takes a line, or a part of it, or has a moment.
///
/// # Errors
/// It does; or as [`check`].
pub(crate) fn check_always(lab: &LabSettings, always: &[Fault]) -> Result<()> {
    check(lab, always)?;
    let is_of_packets = |fault: &Fault| matches!(fault.harm, Harm::Mtu { .. } | Harm::Single);
    let has_no_moment = |fault: &Fault| fault.at == Moment::Before && fault.lasting.is_none();
    let mut wrong = always
        .iter()
        .filter(|fault| !is_of_packets(fault) || !has_no_moment(fault));
    match wrong.next() {
        Some(fault) => anyhow::bail!(
            "\"{fault}\" cannot be so in every move: mtu and single can, with at=before and without for="
        ),
        None => Ok(()),
    }
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
            hosts: 2,
            nics: nic_rates(rates, None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
            agents: crate::settings::AgentSettings::default(),
        };
        let fault = |text: &str| [text.parse::<Fault>().unwrap()];
        let refused = |rates, text| check(&lab(rates), &fault(text)).unwrap_err().to_string();
        assert!(refused("1gbit,1gbit", "cut nic=2").contains("last NIC is number 1"));
        assert!(refused("1gbit,none", "rate nic=all to=0.5").contains("unlimited"));
        assert!(check(&lab("1gbit,none"), &fault("rate nic=0 to=0.5")).is_ok());
        let always = |text| {
            check_always(&lab("1gbit,1gbit"), &fault(text)).map_err(|error| error.to_string())
        };
        assert_eq!(always("single nic=all at=before"), Ok(()));
        assert_eq!(always("mtu nic=1 to=1500 at=before"), Ok(()));
        for wrong in [
            "cut nic=1 at=before",
            "single nic=all",
            "single nic=all at=before for=5s",
        ] {
            assert!(
                always(wrong).unwrap_err().contains("in every move"),
                "{wrong}"
            );
        }
        assert!(
            always("single nic=2 at=before")
                .unwrap_err()
                .contains("last NIC")
        );
    }
}
