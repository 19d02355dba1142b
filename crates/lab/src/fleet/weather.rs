//! What goes wrong while a run is carried out: a NIC that is cut or loses its link, an agent that is
//! killed and comes back, the coordinator's among them. One thing at a time, as the dice say.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::agent::Agent;
use crate::dice::Dice;
use crate::fault::{self, Fault};
use crate::lab::Lab;
use crate::network::HOSTS;

/// Between the end of one mishap and the next, in milliseconds.
const PAUSE: usize = 1200;

/// How long one lasts at most, in milliseconds: far below the agents' outage limit of 30 s.
const LASTS: usize = 2000;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    Nic { host: usize, fault: Fault },
    Agent { host: usize },
}

/// Has things go wrong until it is told to stop; everything is mended then. What went wrong, and when.
///
/// # Errors
/// The lab's own commands fail, or an agent does not come back.
pub(super) async fn rage(
    lab: &Lab,
    agents: &mut Vec<Agent>,
    dice: &mut Dice,
    mut stop: watch::Receiver<bool>,
) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut told = Vec::new();
    while !stops_within(&mut stop, dice.below(PAUSE)).await {
        let mishap = Mishap::draw(lab, dice)?;
        let lasts = dice.below(LASTS);
        told.push(format!(
            "{} ms: {mishap} for {lasts} ms",
            begun.elapsed().as_millis()
        ));
        match mishap {
            Mishap::Nic { host, fault } => {
                fault::harm(lab.settings(), host, &fault).await?;
                stops_within(&mut stop, lasts).await;
                fault::heal(lab.settings(), &[fault]).await?;
            }
            Mishap::Agent { host } => {
                agents.remove(host).kill().await?;
                stops_within(&mut stop, lasts).await;
                agents.insert(host, Agent::start(lab, host).await?);
            }
        }
    }
    Ok(told)
}

/// Waits, and tells whether it was told to stop.
async fn stops_within(stop: &mut watch::Receiver<bool>, millis: usize) -> bool {
    let until = Instant::now() + Duration::from_millis(millis as u64);
    tokio::select! {
        // Whoever is gone wants nothing to go on, either.
        _ = stop.wait_for(|stop| *stop) => true,
        () = sleep_until(until) => false,
    }
}

impl Mishap {
    fn draw(lab: &Lab, dice: &mut Dice) -> Result<Self> {
        let host = dice.below(lab.settings().hosts);
        let nic = dice.below(lab.settings().nics.len());
        let fault = |word: &str| format!("{word} nic={nic}").parse();
        Ok(match dice.below(5) {
            0 | 1 => Self::Nic {
                host,
                fault: fault("cut")?,
            },
            2 => Self::Nic {
                host,
                fault: fault("down")?,
            },
            3 => Self::Agent { host },
            // The first host's agent coordinates.
            _ => Self::Agent { host: 0 },
        })
    }
}

impl std::fmt::Display for Mishap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nic { host, fault } => write!(f, "{fault} of {}", HOSTS[*host]),
            Self::Agent { host } => write!(f, "the agent of {} is killed", HOSTS[*host]),
        }
    }
}
