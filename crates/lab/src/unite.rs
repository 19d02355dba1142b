//! Makes the hosts of a lab members of one cluster, as an operator does.

use anyhow::{Context, Result};
use drover_api::{JoinRequest, TokenRequest};

use crate::agent::Agent;
use crate::lab::Lab;
use crate::settings::AgentSettings;

/// Starts the agents of all hosts of a lab, in one cluster; the first host's agent coordinates.
///
/// # Errors
/// One does not start, or refuses.
pub(crate) async fn start_united(lab: &Lab) -> Result<Vec<Agent>> {
    start_united_told(lab, &lab.settings().agents).await
}

/// The same, told something else than the lab's agents are.
///
/// # Errors
/// One does not start, or refuses.
pub(crate) async fn start_united_told(lab: &Lab, told: &AgentSettings) -> Result<Vec<Agent>> {
    let mut agents = Vec::new();
    for number in 0..lab.settings().hosts {
        agents.push(Agent::start_told(lab, number, told).await?);
    }
    unite(&agents.iter().collect::<Vec<_>>()).await?;
    Ok(agents)
}

/// The first agent's host becomes the authority's, the others join it. Those that are members
/// already stay what they are.
///
/// # Errors
/// An agent refuses.
pub async fn unite(agents: &[&Agent]) -> Result<()> {
    let Some((first, others)) = agents.split_first() else {
        return Ok(());
    };
    if first.client.cluster().await.is_err() {
        let made = first.client.cluster_init().await;
        made.with_context(|| format!("host {} could not make a cluster", first.host.name))?;
    }
    for agent in others {
        if agent.client.cluster().await.is_ok() {
            continue;
        }
        let token = first.client.cluster_token(&TokenRequest::default()).await?;
        let request = JoinRequest { token: token.token };
        let joined = agent.client.cluster_join(&request).await;
        joined.with_context(|| format!("host {} could not join", agent.host.name))?;
    }
    Ok(())
}
