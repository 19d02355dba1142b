//! Looks whether clusters that were used are there still, and are the same ones.
//!
//! A cluster is its authority's fingerprint: an agent that answers at the same address with another one
//! is of another cluster, whatever its hosts are called.

use drover_api::{Client, ClientError, ClusterView, ErrorCode};
use drover_trust::{Fingerprint, Problem};
use drover_types::with_sources;
use tokio::task::JoinSet;

use super::book::{Known, Way};
use crate::limits::LOOK_AT_CLUSTER;
use crate::remote;

/// How a cluster was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// One of its members answers.
    Reachable,
    /// Nobody answers.
    Unreachable {
        /// What was heard instead.
        problem: String,
    },
    /// What answers is no member of it.
    Replaced {
        /// The cluster of what answers, if that is in one.
        by: Option<Fingerprint>,
    },
    /// It is there, or may be, and is not for this user.
    Refused {
        /// Why not.
        problem: String,
    },
}

/// Looks at all of them at the same time; in their order.
pub async fn at_all(clusters: &[Known]) -> Vec<State> {
    let mut looks = JoinSet::new();
    for (index, known) in clusters.iter().cloned().enumerate() {
        looks.spawn(async move { (index, at(&known).await) });
    }
    let unseen = State::Refused {
        problem: "it was not looked at".to_owned(),
    };
    let mut states = vec![unseen; clusters.len()];
    while let Some(looked) = looks.join_next().await {
        if let Ok((index, state)) = looked
            && let Some(place) = states.get_mut(index)
        {
            *place = state;
        }
    }
    states
}

/// Looks at one.
pub async fn at(known: &Known) -> State {
    let looked = tokio::time::timeout(LOOK_AT_CLUSTER, asked(known)).await;
    looked.unwrap_or_else(|_| State::Unreachable {
        problem: format!("no answer within {} s", LOOK_AT_CLUSTER.as_secs()),
    })
}

async fn asked(known: &Known) -> State {
    let client = match &known.way {
        Way::Socket { path } => Client::unix(path),
        Way::Remote { url, identity } => match remote::client(url, identity) {
            Ok(client) => client,
            Err(failure) => {
                let problem = failure.message().to_owned();
                return State::Refused { problem };
            }
        },
    };
    match client.cluster().await {
        Ok(view) => of_view(known, &view),
        Err(error) => match &error {
            ClientError::Untrusted { problem, .. } => of_distrust(known, problem, &error).await,
            _ => of_error(&error),
        },
    }
}

fn of_view(known: &Known, view: &ClusterView) -> State {
    if view.fingerprint == known.fingerprint {
        return State::Reachable;
    }
    State::Replaced {
        by: Some(view.fingerprint),
    }
}

fn of_error(error: &ClientError) -> State {
    let problem = with_sources(error);
    match error {
        _ if error.is_refused_with(ErrorCode::NoCluster) => State::Replaced { by: None },
        // The socket of an agent that may well be there.
        ClientError::Unreachable { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            State::Refused { problem }
        }
        ClientError::Unreachable { .. }
        | ClientError::Timeout { .. }
        | ClientError::Lost { .. }
        | ClientError::NowhereKnown { .. } => State::Unreachable { problem },
        ClientError::Untrusted { .. }
        | ClientError::NotAnAgent { .. }
        | ClientError::Refused(_) => State::Refused { problem },
    }
}

/// Somebody answers who is not believed: another cluster, or one that does not want this user any more.
async fn of_distrust(known: &Known, problem: &Problem, error: &ClientError) -> State {
    let refused = || State::Refused {
        problem: with_sources(error),
    };
    let (Problem::Foreign, Way::Remote { url, identity }) = (problem, &known.way) else {
        return refused();
    };
    let Ok(addresses) = remote::addresses(url, identity) else {
        return refused();
    };
    // Who wants to join is shown the authority's certificate, and so its fingerprint.
    let shown = Client::authority_at(known.fingerprint, addresses)
        .host()
        .await;
    match shown {
        Err(ClientError::Untrusted {
            problem: Problem::OtherAuthority { found, .. },
            ..
        }) => State::Replaced { by: found },
        _ => refused(),
    }
}
