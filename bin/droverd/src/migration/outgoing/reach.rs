//! Finding out which interfaces of two hosts reach each other.

use std::net::SocketAddr;
use std::time::Duration;

use drover_migrate::paths::Candidate;
use drover_relay::Target;
use drover_types::Interface;

/// Whether the way to the far address can begin at the near interface: not if that address lies in
/// the network of another interface of ours only. Linux answers on every interface for all of a
/// host's addresses, so the probe of such a pair succeeds over a NIC that is not part of it.
pub fn leads_there(own: &[Interface], candidate: &Candidate) -> bool {
    let far = candidate.destination.address;
    let is_there = |interface: &Interface| interface.addresses.iter().any(|a| a.contains(far));
    let near = |interface: &&Interface| interface.name == candidate.source.interface;
    own.iter().find(near).is_some_and(is_there) || !own.iter().any(is_there)
}

/// The candidates whose far end takes a connection from the near one.
pub async fn probe(candidates: Vec<Candidate>, port: u16, patience: Duration) -> Vec<Candidate> {
    let target = |candidate: &Candidate| Target {
        interface: candidate.source.interface.clone(),
        local: candidate.source.address,
        remote: SocketAddr::new(candidate.destination.address, port),
        segment: None,
        patience,
    };
    let targets: Vec<Target> = candidates.iter().map(target).collect();
    let probed = tokio::task::spawn_blocking(move || drover_relay::probe(&targets)).await;
    let answers = probed.unwrap_or_default().into_iter();
    let pairs = candidates.into_iter().zip(answers);
    pairs
        .filter_map(|(candidate, answered)| answered.then_some(candidate))
        .collect()
}
