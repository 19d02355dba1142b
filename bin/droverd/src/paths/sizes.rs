//! How large packets cross the paths that migrations take from this host: for whoever changes it, and has to leave them so.
//!
//! What the doctor asks, without what tells loss and round trips: it is asked twice within seconds, and by a process that
//! outlives its agent. Several hosts are asked at once, as each answers this one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::{AnswererRequest, AnswererView, Client, ErrorCode};
use drover_change::{Layers, Measured, Now, PathSizes, Sizes, Unknown, Untold};
use drover_migrate::paths::{Selected, Side, select};
use drover_reach::limits::PATIENCE_LEAST;
use drover_types::{HostName, Interface, PathEnd, with_sources};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::ask::{not_answered, own_interfaces, request, ticket};
use super::asking::{Asking, mtu};
use super::doubts::busy_with;
use super::limits;
use super::pairs::{Pair, Ports, ports};
use crate::config::Config;
use crate::peers::Peers;

/// What is found of the paths to one host, or why nothing is.
type Told = Result<Vec<(Pair, Result<Sizes, String>)>, String>;

/// All that a migration would use to any other host, as far as it is found out within this time; nothing of hosts that move guests, of which so
/// many move from or to this one: what they fill is lost to others.
pub async fn measure(
    (config, peers): (&Config, &Peers),
    moving: usize,
    within: Duration,
) -> Measured {
    let mut measured = Measured::default();
    let hosts: Vec<_> = peers
        .all()
        .into_iter()
        .map(|(host, _)| (host, None))
        .collect();
    // To nobody nothing has to be proved.
    if hosts.is_empty() {
        return measured;
    }
    if let Some(busy) = busy_with([(&config.host, moving)]) {
        measured.untold.push(of_all(busy));
        return measured;
    }
    let near = match Near::new((config, peers), 0, within).await {
        Ok(near) => near,
        Err(why) => {
            measured.untold.push(of_all(why));
            return measured;
        }
    };
    measured.layers = match drover_host::layers().await {
        Ok(layers) => layers,
        // What sends larger packets is not known then: none are begun with.
        Err(error) => {
            let error = with_sources(&error);
            let why = format!("it is not known what interfaces stand on: {error}");
            measured.untold.push(of_all(why));
            Layers::new()
        }
    };
    for (far, told) in near.ask(hosts).await {
        match told {
            Ok(told) => near.add(&mut measured, &far, told),
            Err(why) => measured.untold.push(Untold {
                of: Unknown::Host(far),
                why,
            }),
        }
    }
    measured
}

fn of_all(why: String) -> Untold {
    let of = Unknown::All;
    Untold { of, why }
}

/// What crosses these now, one answer each, or why that is not known within this time. Later attempts wait longer for answers.
pub async fn sizes(
    (config, peers): (&Config, &Peers),
    paths: &[PathSizes],
    attempt: u32,
    within: Duration,
) -> Vec<Result<Now, String>> {
    let near = match Near::new((config, peers), attempt, within).await {
        Ok(near) => near,
        Err(why) => return vec![Err(why); paths.len()],
    };
    let mut hosts: BTreeMap<HostName, Vec<Pair>> = BTreeMap::new();
    for path in paths {
        hosts.entry(path.host.clone()).or_default().push(pair(path));
    }
    let hosts = hosts.into_iter().map(|(host, pairs)| (host, Some(pairs)));
    let told = near.ask(hosts.collect()).await;
    let told: BTreeMap<HostName, Told> = told.into_iter().collect();
    let of = |path: &PathSizes| {
        let all = match told.get(&path.host) {
            Some(Ok(all)) => all,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err("it was not asked".to_owned()),
        };
        let wanted = pair(path);
        let found = all.iter().find(|(pair, _)| *pair == wanted);
        let (_, sizes) = found.ok_or("it was not asked")?;
        let (sizes, mtu) = (sizes.clone()?, mtu(&near.own, &path.nic));
        Ok(Now { sizes, mtu })
    };
    paths.iter().map(of).collect()
}

/// This host, as it asks.
struct Near<'a> {
    config: &'a Config,
    peers: &'a Peers,
    own: Vec<Interface>,
    ports: Ports,
    /// What migrations may use.
    ours: Selected,
    /// An answer is waited for so long, at the least.
    patience: Duration,
    within: Duration,
    end: Instant,
}

impl<'a> Near<'a> {
    async fn new(
        (config, peers): (&'a Config, &'a Peers),
        attempt: u32,
        within: Duration,
    ) -> Result<Self, String> {
        let end = Instant::now() + within;
        let own = own_interfaces(&config.host).await;
        let own = own.map_err(|refusal| refusal.message)?;
        let ours = select(Side::Source, &own, &config.networks);
        if ours.endpoints.is_empty() {
            let host = &config.host;
            return Err(format!(
                "{host} has no interface that migrations may use now"
            ));
        }
        Ok(Self {
            config,
            peers,
            ports: ports(&own).await,
            own,
            ours,
            patience: patience(attempt),
            within,
            end,
        })
    }

    /// Asks these hosts: all pairs that a migration would use, or those that are named.
    async fn ask(&self, hosts: Vec<(HostName, Option<Vec<Pair>>)>) -> Vec<(HostName, Told)> {
        let asked = stream::iter(hosts).map(async |(far, pairs)| {
            let told = self.asked(&far, pairs).await;
            (far, told)
        });
        // Who is silent holds up nobody else.
        asked
            .buffer_unordered(limits::SIZES_AT_ONCE)
            .collect()
            .await
    }

    async fn asked(&self, far: &HostName, pairs: Option<Vec<Pair>>) -> Told {
        let began = Instant::now();
        let end = self.end.min(began + limits::SIZES_HOST);
        let within = end.saturating_duration_since(began);
        if within.is_zero() {
            let seconds = self.within.as_secs();
            return Err(format!(
                "the agent of {far} was not asked: asking the others took {seconds} s already"
            ));
        }
        let client = self.peers.client(far);
        let client = client.map_err(|refusal| refusal.message)?;
        let answerer = self.ordered(&client, far, (within, end)).await?;
        let asking = Asking {
            near: &self.config.host,
            far,
            own: &self.own,
            ports: &self.ports,
            ticket: ticket(far, &answerer).map_err(|refusal| refusal.message)?,
            answerer: &answerer,
            within,
            end,
        };
        let busy = busy_with([(far, answerer.moving)]);
        let told = match (pairs, busy) {
            (Some(pairs), _) => Ok(asking.sizes(pairs, self.patience).await),
            (None, Some(busy)) => Err(busy),
            (None, None) => {
                let pairs = asking.pairs(&self.ours).await.chosen;
                Ok(asking.sizes(pairs, self.patience).await)
            }
        };
        // Nothing of what it says is of use here, and it ends by itself if it does not hear of that.
        let _ = timeout(limits::SIZES_END, client.end_answerer(answerer.id)).await;
        told
    }

    /// Others may have had it answer: it is ordered again until the time is over.
    async fn ordered(
        &self,
        client: &Client,
        far: &HostName,
        (within, end): (Duration, Instant),
    ) -> Result<AnswererView, String> {
        let request = AnswererRequest {
            // A process that dies, or whose end of it is not heard, has nobody answer for long, and hold its port.
            time_s: limits::SIZES_HOST.as_secs() + 1,
            ..request(&self.ours, false, None)
        };
        loop {
            let ordered = timeout_at(end, client.order_answerer(&request)).await;
            let error = match ordered {
                Ok(Ok(answerer)) => return Ok(answerer),
                Ok(Err(error)) => error,
                Err(_) => {
                    let seconds = within.as_secs();
                    return Err(format!(
                        "the agent of {far} did not answer within {seconds} s"
                    ));
                }
            };
            let is_full = error.is_refused_with(ErrorCode::TooManyRequests);
            if !is_full || Instant::now() + limits::SIZES_AGAIN >= end {
                return Err(not_answered(far, &error).message);
            }
            sleep(limits::SIZES_AGAIN).await;
        }
    }

    /// What that host told.
    fn add(
        &self,
        measured: &mut Measured,
        far: &HostName,
        told: Vec<(Pair, Result<Sizes, String>)>,
    ) {
        if told.is_empty() {
            let own = &self.config.host;
            measured.untold.push(Untold {
                of: Unknown::NoPath,
                why: format!("no interface of {own} reaches one of {far} by which migrations go"),
            });
        }
        for (pair, sizes) in told {
            match sizes {
                Ok(sizes) => measured.paths.push(self.path(far, pair, sizes)),
                Err(why) => measured.untold.push(Untold {
                    why: format!("{}: {why}", named(far, &pair)),
                    of: Unknown::Path {
                        host: far.clone(),
                        nic: pair.near.interface,
                    },
                }),
            }
        }
    }

    fn path(&self, far: &HostName, pair: Pair, sizes: Sizes) -> PathSizes {
        let nic = pair.near.interface;
        PathSizes {
            host: far.clone(),
            from: pair.near.address,
            far_nic: pair.far.interface,
            to: pair.far.address,
            mtu: mtu(&self.own, &nic),
            over: BTreeSet::new(),
            nic,
            sizes,
        }
    }
}

/// The same pair again. No rate is known of it then: it counts as a slow one.
fn pair(path: &PathSizes) -> Pair {
    let end = |interface: &str, address| PathEnd {
        interface: interface.to_owned(),
        address,
    };
    Pair {
        near: end(&path.nic, path.from),
        far: end(&path.far_nic, path.to),
        rate: None,
    }
}

/// Twice as long each time, while one search with it still comes to its end in the time that a host has: several share that.
fn patience(attempt: u32) -> Duration {
    let doubled = PATIENCE_LEAST.saturating_mul(2_u32.saturating_pow(attempt));
    doubled.min(limits::SIZES_PATIENCE)
}

fn named(far: &HostName, pair: &Pair) -> String {
    let Pair { near, far: end, .. } = pair;
    format!(
        "{} {} to {far} {} {}",
        near.interface, near.address, end.interface, end.address
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_waits_longer_for_answers_as_far_as_a_host_has_the_time() {
        let waits = [0, 1, 2, 3, u32::MAX].map(|attempt| patience(attempt).as_millis());
        assert_eq!(waits, [50, 100, 200, 200, 200]);
    }
}
