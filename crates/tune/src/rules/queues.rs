//! How packets get from an adapter to processors.

use std::fmt;

use drover_types::BitRate;

use super::near::near;
use super::used::is_used;
use super::{LANES, of_nic};
use crate::change::{Disruption, NicSetting, switch};
use crate::cost::{of_interrupts, of_places, of_rate};
use crate::facts::{Coalescing, Host, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// What one processor gets done for a queue, at the least.
pub(super) const OF_QUEUE: BitRate = BitRate(10_000_000_000);

/// Places that hold what comes in 1 ms in packets of 1500 bytes, which is what a processor in rest takes to come: at 2.5 Gbit/s, and
/// at 10.
const PLACES: [(BitRate, u32); 2] = [(BitRate(2_500_000_000), 256), (BitRate(u64::MAX), 1024)];

/// Interrupts that wait for less take more of processors than they give: in 4 µs 8 packets of 1500 bytes come by a line of 25 Gbit/s, and
/// an interrupt takes some 2 µs.
const MICROS_LEAST: u32 = 4;
const PACKETS_LEAST: u32 = 4;

/// Packets that wait for longer wait more than twice the time of a round trip between hosts at one switch, 0.2 ms.
const MICROS_MOST: u32 = 500;

/// An adapter has queues for its rate, as far as there are cores near it.
pub fn channels(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let channels = nic.channels.get()?;
    if channels.combined_most == 0 {
        return Err(Because::from(
            "it has no queues for both directions that can be set",
        ));
    }
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let for_rate = u32::try_from(rate.0.div_ceil(OF_QUEUE.0)).unwrap_or(u32::MAX);
    let for_rate = for_rate.min(channels.combined_most);
    // However many cores are near it.
    if channels.combined >= for_rate {
        return Ok(Answer::Right);
    }
    let cores = host.processors.cores_of(&near(host, nic)?)?;
    let wanted = cores.min(for_rate);
    if channels.combined >= wanted {
        return Ok(Answer::Right);
    }
    let (now, most) = (channels.combined, channels.combined_most);
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("{now} of {most} queues for {rate}, {cores} cores near it"),
        expected: format!("{wanted}"),
        why: "a queue is served by one processor at a time: one carries some 10 to 25 Gbit/s"
            .into(),
        cost: of_rate(carries(now, rate), carries(wanted, rate)),
        change: Some(of_nic(
            Disruption::BouncesLink,
            nic,
            NicSetting::CombinedChannels,
            now.to_string(),
            wanted.to_string(),
        )),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// What so many queues carry of a line, at the least.
pub(super) fn carries(queues: u32, line: BitRate) -> BitRate {
    line.min(BitRate(OF_QUEUE.0.saturating_mul(u64::from(queues))))
}

/// An adapter has places for a burst of packets.
pub fn ring(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let rings = nic.rings.get()?;
    let rate = nic.link.get()?.speed.ok_or("it tells no rate")?;
    let places = PLACES.iter().find(|(most, _)| rate <= *most);
    let all = places.map_or(0, |(_, places)| *places);
    let queues = queues(nic);
    // Drivers take powers of two, and round up what is none.
    let each = all.div_ceil(queues).next_power_of_two();
    let wanted = each.min(rings.receive_most);
    // Some keep one free, and do not count it: bnxt_en has 511 and 2047.
    if rings.receive.saturating_add(1) >= wanted {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "{} of {} places for packets that arrive, in each of {queues} queues",
            rings.receive, rings.receive_most
        ),
        expected: format!("{wanted}, together {all} for {rate}"),
        why: "a burst is dropped while its processor comes, and TCP sends more slowly".into(),
        cost: of_places(
            rings.receive.saturating_mul(queues),
            wanted.saturating_mul(queues),
            rate,
        ),
        change: Some(of_nic(
            Disruption::BouncesLink,
            nic,
            NicSetting::ReceiveRing,
            rings.receive.to_string(),
            wanted.to_string(),
        )),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// Over how many rings a burst is spread: each of a path's connections comes by one. One where nothing tells of more.
fn queues(nic: &Nic) -> u32 {
    let combined = nic.channels.known().map(|channels| channels.combined);
    let told = nic.steering.known().map(|steering| steering.receive_queues);
    let queues = combined.filter(|queues| *queues > 0).or(told);
    queues.unwrap_or(1).clamp(1, LANES)
}

/// Interrupts follow what arrives, or wait for a while that is neither very short nor very long.
pub fn coalescing(host: &Host, nic: &Nic) -> Verdict {
    // That driver says off, and refuses on, where its host cannot.
    if !is_used(host, nic)
        || nic
            .driver
            .known()
            .is_some_and(|driver| driver == "virtio_net")
    {
        return Ok(Answer::NotAbout);
    }
    let coalescing = nic.coalescing.get()?;
    match coalescing.adaptive_receive {
        // Such drivers may follow what arrives by other means: igb by 1 and 3 for a number of microseconds.
        None => return Err(Because::from("its driver cannot")),
        Some(true) => return Ok(Answer::Right),
        Some(false) => {}
    }
    let wait = Wait::of(coalescing)?;
    let (often, late) = (wait.is_often(), wait.micros > MICROS_MOST);
    if !(often || late) {
        return Ok(Answer::Right);
    }
    let rate = nic.link.known().and_then(|link| link.speed);
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("adaptive-rx off, {wait}"),
        expected: "on".into(),
        why: if often {
            "an interrupt for each few packets takes processors that guests and codecs want"
        } else {
            "what arrives waits for longer than the way from the other host takes: answers come late, and places fill"
        }
        .into(),
        cost: if often {
            rate.and_then(|rate| of_interrupts(nic.mtu, wait.packets_at(rate, nic.mtu)))
        } else {
            Some(format!("what arrives waits up to {} µs", wait.micros))
        },
        change: Some(of_nic(
            Disruption::Safe,
            nic,
            NicSetting::AdaptiveReceive,
            switch(false),
            switch(true),
        )),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// How long an interrupt waits for more packets: until the first of both, where neither is 0 (`include/uapi/linux/ethtool.h`, `struct
/// ethtool_coalesce`).
struct Wait {
    micros: u32,
    packets: u32,
}

impl Wait {
    fn of(coalescing: &Coalescing) -> Result<Self, &'static str> {
        let (micros, packets) = (coalescing.receive_micros, coalescing.receive_packets);
        if micros.is_none() && packets.is_none() {
            return Err("its driver does not tell how long interrupts wait");
        }
        Ok(Self {
            micros: micros.unwrap_or(0),
            packets: packets.unwrap_or(0),
        })
    }

    /// By time or by packets; with neither, for each of them.
    fn is_often(&self) -> bool {
        let by_time = self.micros > 0 && self.micros < MICROS_LEAST;
        let by_packets = self.packets > 0 && self.packets < PACKETS_LEAST;
        by_time || by_packets || (self.micros, self.packets) == (0, 0)
    }

    /// Packets for each interrupt of a line that is full of those of so many bytes.
    fn packets_at(&self, line: BitRate, bytes: u32) -> u64 {
        let bits = u64::from(self.micros).saturating_mul(line.0) / 1_000_000;
        let by_time = bits.checked_div(u64::from(bytes) * 8);
        let by_time = by_time.filter(|_| self.micros > 0);
        let by_packets = Some(u64::from(self.packets)).filter(|packets| *packets > 0);
        let both = by_time.into_iter().chain(by_packets);
        both.min().unwrap_or(1).max(1)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rx-usecs {}, rx-frames {}", self.micros, self.packets)
    }
}
