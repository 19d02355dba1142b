//! Packets that the kernel, and not the hardware, hands to processors.

use drover_types::CpuSet;

use super::near::near;
use super::used::is_used;
use crate::change::{Change, Disruption, Step};
use crate::facts::{Host, Nic};
use crate::finding::{Answer, Found, Severity, Verdict};

/// The kernel does not hand packets on that the hardware hands out already.
pub fn receive(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let steering = nic.steering.get()?;
    if steering.receive.is_empty() {
        return Ok(Answer::Right);
    }
    let cores = host.processors.cores_of(&near(host, nic)?)?;
    if steering.receive_queues < cores {
        return Ok(Answer::Right);
    }
    let steps = steering.receive.iter().map(|(queue, cpus)| Step::File {
        path: format!("sys/class/net/{}/queues/{queue}/rps_cpus", nic.name),
        from: mask(cpus),
        to: "0".to_owned(),
    });
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "{} of its {} queues hand packets on to other processors",
            steering.receive.len(),
            steering.receive_queues
        ),
        expected: "none: the hardware has a queue for each core near it".into(),
        why: "it takes an interrupt between processors for each packet".into(),
        cost: None,
        change: Some(Change {
            disruption: Disruption::Safe,
            steps: steps.collect(),
        }),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// All queues for sending are used, or those by chance that a connection comes to.
pub fn send(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let steering = nic.steering.get()?;
    let (some, all) = (steering.send.len(), steering.send_queues);
    if some == 0 || some >= all as usize {
        return Ok(Answer::Right);
    }
    let of = steering.send.values();
    let cpus = of.fold(CpuSet::default(), |all, cpus| all.or(cpus));
    let steps = steering.send.iter().map(|(queue, cpus)| Step::File {
        path: format!("sys/class/net/{}/queues/{queue}/xps_cpus", nic.name),
        from: mask(cpus),
        to: "0".to_owned(),
    });
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("CPUs {cpus} send by {some} of its {all} queues alone"),
        expected: "each queue has its CPUs, or none has".into(),
        why: "a queue has a lock, and an interrupt for what has left: those that are used are full while others rest"
            .into(),
        cost: None,
        change: Some(Change {
            disruption: Disruption::Safe,
            steps: steps.collect(),
        }),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// As the kernel writes a set of processors: 32 of them a word, the last ones first.
fn mask(cpus: &CpuSet) -> String {
    let mut words = vec![0_u32];
    for cpu in cpus.iter() {
        let word = (cpu / 32) as usize;
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        words[word] |= 1 << (cpu % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_set_of_processors_is_written_as_the_kernel_does() {
        let mask = |cpus: &str| super::mask(&cpus.parse().unwrap());
        assert_eq!(mask("0-3"), "0000000f");
        assert_eq!(mask("1,33,64"), "00000001,00000002,00000002");
        assert_eq!(mask(""), "00000000");
    }
}
