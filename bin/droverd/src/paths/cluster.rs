//! The paths between all hosts of the cluster.
//!
//! Every host asks the others in turn, beginning with the one after it, so that at any time each asks one and
//! answers one: what an answerer leaves for want of time looks like loss.
//!
//! ```text
//!   a asks   b c d
//!   b asks   c d a
//!   c asks   d a b
//!   d asks   a b c
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_api::{
    ClusterFactsView, ClusterPathsRequest, ClusterPathsView, ErrorCode, KeptReport, LoadRequest,
    MemberLeftOut, PathLeftOut, PathsView, Refusal,
};
use drover_plan::Text;
use drover_tune::facts::{Path, PathEnd};
use drover_types::{HostName, LoadId};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::ask::{Wanted, ask, not_answered, turn};
use super::hold::Loads;
use super::limits;
use super::loading;
use super::only::Only;
use super::outcome::{as_asked, leave_out};
use super::together::load_together;
use crate::agent::Context;
use crate::api::Caller;
use crate::doctor;
use crate::migration::Migrations;

/// Has them asked. Nothing more is asked once the caller has hung up. Where they are all, what was found is kept.
///
/// # Errors
/// There is no cluster, or no host of a name that is asked for; paths may not be loaded so.
pub async fn cluster(
    context: &Arc<Context>,
    migrations: &Arc<Migrations>,
    request: ClusterPathsRequest,
) -> Result<ClusterPathsView, Refusal> {
    context.peers.are_known()?;
    let ClusterPathsRequest {
        hosts,
        load,
        load_together: together,
    } = request;
    load.map_or(Ok(()), loading::check)?;
    if together && load.is_none() {
        let message = "several hosts load each other only where each path is loaded alone before";
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    let only = Only::new(context, hosts)?;
    let all = only.is_all();
    let begun = Timestamp::now();
    let mut view = ClusterPathsView::default();
    let hosts = there(context, &only, &mut view.left_out).await;
    // Before anything is asked: reading a host takes processors.
    let facts = match all {
        true => Some(facts_of(context, &hosts).await),
        false => None,
    };
    let end = Instant::now() + limits::CLUSTER_PATHS;
    let loads = match load {
        Some(load) => Some(Loads::begin(context, load, &hosts).await),
        None => None,
    };
    let are_made = loads.as_ref().is_some_and(Loads::are_made);
    let round = Round {
        context,
        migrations,
        only,
        answering: hosts.iter().map(|_| Mutex::default()).collect(),
        gone: hosts.iter().map(|_| OnceLock::new()).collect(),
        hosts,
        // What one loads is no line for another.
        asking: Semaphore::new(if are_made { 1 } else { limits::ASKING_AT_ONCE }),
        loads: loads.as_ref(),
        goes_on: AtomicBool::new(false),
        end,
    };
    let told = join_all((0..round.hosts.len()).map(|asker| round.asks(asker))).await;
    for told in told.into_iter().flatten() {
        view.paths.extend(told.paths);
        view.paths_left_out.extend(told.left_out);
    }
    view.paths
        .sort_by(|one, other| in_order(one).cmp(&in_order(other)));
    view.paths_left_out.sort_by(|one, other| {
        (&one.near, &one.far, &one.nic, &one.why).cmp(&(
            &other.near,
            &other.far,
            &other.nic,
            &other.why,
        ))
    });
    // What is wrong with an interface alone is told by each pair of its host.
    view.paths_left_out.dedup();
    if let Some(loads) = loads.as_ref().filter(|_| together) {
        let (all, hosts) = ((context, migrations), round.hosts.as_slice());
        view.loaded_together = Some(match round.goes_on.into_inner() {
            true => leave_out(loads, &mut view.paths),
            false => load_together(all, (loads, hosts), &mut view.paths).await,
        });
    }
    if let Some(loads) = loads {
        loads.end().await;
    }
    view.not_kept = match facts {
        Some(Ok(facts)) => doctor::keep(context, report(begun, facts, &view)).await,
        Some(Err(refusal)) => Some(refusal.message),
        None => None,
    };
    Ok(view)
}

async fn facts_of(context: &Context, hosts: &[HostName]) -> Result<ClusterFactsView, Refusal> {
    let mut others = hosts.to_vec();
    others.retain(|host| *host != context.config.host);
    doctor::of_these(context, others).await
}

fn report(asked: Timestamp, facts: ClusterFactsView, view: &ClusterPathsView) -> KeptReport {
    let mut left_out = view.left_out.clone();
    left_out.extend(facts.left_out);
    KeptReport {
        asked,
        facts: facts.facts,
        paths: view.paths.clone(),
        paths_left_out: view.paths_left_out.clone(),
        left_out,
    }
}

fn in_order(path: &Path) -> (&str, &str, &PathEnd, &PathEnd) {
    (&path.near.host, &path.far.host, &path.near, &path.far)
}

/// The hosts that it is about, by their names; those that are silent are neither asked nor do they ask.
async fn there(
    context: &Arc<Context>,
    only: &Only,
    silent: &mut Vec<MemberLeftOut>,
) -> Vec<HostName> {
    let mut hosts = vec![context.config.host.clone()];
    let looked = context.peers.look().await;
    for peer in looked.into_iter().filter(|peer| only.concerns(&peer.host)) {
        match peer.problem {
            None => hosts.push(peer.host),
            Some(problem) => silent.push(MemberLeftOut {
                host: peer.host,
                why: cleaned(problem.message),
            }),
        }
    }
    hosts.retain(|host| only.concerns(host));
    hosts.sort();
    hosts
}

/// Another agent's words, to be shown on a terminal.
fn cleaned(words: String) -> String {
    Text::from(words).to_string()
}

struct Round<'a> {
    context: &'a Arc<Context>,
    migrations: &'a Arc<Migrations>,
    hosts: Vec<HostName>,
    only: Only,
    /// How paths are loaded, where that is wanted.
    loads: Option<&'a Loads>,
    /// Held while that host answers.
    answering: Vec<Mutex<()>>,
    /// Why a host that failed, and was silent when it was looked at again, is asked no more.
    gone: Vec<OnceLock<String>>,
    asking: Semaphore,
    /// Whether two hosts may load each other after the end.
    goes_on: AtomicBool,
    end: Instant,
}

impl Round<'_> {
    /// One host asks all others, one after the other.
    async fn asks(&self, asker: usize) -> Vec<PathsView> {
        let mut told = Vec::new();
        let count = self.hosts.len();
        for answerer in (1..count).map(|step| (asker + step) % count) {
            let (near, far) = (&self.hosts[asker], &self.hosts[answerer]);
            if self.only.has(near, far) {
                told.push(self.asked((asker, near), (answerer, far)).await);
            }
        }
        told
    }

    async fn asked(
        &self,
        (asker, near): (usize, &HostName),
        (answerer, far): (usize, &HostName),
    ) -> PathsView {
        let turn = async {
            let answers = self.answering[answerer].lock().await;
            // Never closed.
            let slot = self.asking.acquire().await.ok();
            (answers, slot)
        };
        let over = || {
            let seconds = limits::CLUSTER_PATHS.as_secs();
            format!("all together took {seconds} s already: name the hosts that matter")
        };
        let load = self.loads.filter(|loads| loads.are_made());
        let load = load.map(|loads| loads.request);
        let asked = match timeout_at(begin_by(self.end, load), turn).await {
            Ok(_turn) => {
                let asked = self.ask_in_time((asker, near), (answerer, far));
                timeout_at(self.end, asked).await.unwrap_or_else(|_| {
                    let may_load = self.load_between(near, far).is_some();
                    self.goes_on.fetch_or(may_load, Ordering::AcqRel);
                    Err(over())
                })
            }
            Err(_) => Err(over()),
        };
        let why = match asked {
            Ok(view) if is_about(&view, near, far) => {
                return self.received((near, far), view);
            }
            Ok(_) => format!("{near} told of paths that it was not asked for"),
            Err(why) => why,
        };
        let left = PathLeftOut {
            near: near.clone(),
            far: Some(far.clone()),
            nic: None,
            why: cleaned(why),
        };
        PathsView {
            paths: Vec::new(),
            left_out: vec![left],
        }
    }

    /// How these two load each other, where they do.
    fn load_between(&self, near: &HostName, far: &HostName) -> Option<(LoadRequest, LoadId)> {
        let loads = self.loads?;
        let id = loads.between(near, far).ok()?;
        Some((loads.request, id))
    }

    /// Without what was not asked for; and why none was loaded where that was wanted.
    fn received(&self, (near, far): (&HostName, &HostName), mut view: PathsView) -> PathsView {
        let wanted = self.loads.map(|loads| loads.between(near, far).map(|_| ()));
        for path in &mut view.paths {
            as_asked(near, path, wanted.as_ref());
        }
        view
    }

    /// Asks, unless one of them is gone. Where that fails both are looked at again: who is silent holds nobody up a second time.
    async fn ask_in_time(
        &self,
        (asker, near): (usize, &HostName),
        (answerer, far): (usize, &HostName),
    ) -> Result<PathsView, String> {
        let gone = [asker, answerer].into_iter();
        if let Some(why) = gone.filter_map(|host| self.gone[host].get()).next() {
            return Err(why.clone());
        }
        let most = limits::ASKED_IN_CLUSTER;
        let why = match timeout(most, self.ask(near, far)).await {
            Ok(Ok(view)) => return Ok(view),
            Ok(Err(refusal)) => refusal.message,
            Err(_) => format!("{near} did not tell within {} s", most.as_secs()),
        };
        for (at, host) in [(asker, near), (answerer, far)] {
            if *host == self.context.config.host {
                continue;
            }
            if let Some(problem) = self.context.peers.look_at(host).await.problem {
                // Two may find out at once, and say the same.
                let _ = self.gone[at].set(problem.message);
            }
        }
        Err(why)
    }

    async fn ask(&self, near: &HostName, far: &HostName) -> Result<PathsView, Refusal> {
        let context = self.context;
        let load = self.load_between(near, far).map(|(load, _)| load);
        let part_of = self.loads.and_then(Loads::id);
        if *near != context.config.host {
            let client = context.peers.client(near)?;
            let asked = client.ask_paths(far, load, part_of).await;
            return asked.map_err(|error| not_answered(near, &error));
        }
        // To its end, as when another host is asked to.
        let turn = turn(context).await?;
        let (context, far) = (Arc::clone(context), far.clone());
        let migrations = Arc::clone(self.migrations);
        let asked = tokio::spawn(async move {
            let wanted = Wanted {
                far: &far,
                load,
                part_of,
                by: &Caller::Local,
            };
            ask(&context, &migrations, wanted, turn).await
        });
        asked.await.unwrap_or_else(|error| {
            let message = format!("the agent failed at this: {error}");
            Err(Refusal::new(ErrorCode::Internal, message))
        })
    }
}

/// Two hosts that load each other begin no later than so that they end in time, unless something is wrong with a path.
fn begin_by(end: Instant, load: Option<LoadRequest>) -> Instant {
    let takes = |load: LoadRequest| limits::LOADED_PAIR + Duration::from_millis(load.time_ms);
    end - load.map_or(Duration::ZERO, takes)
}

/// Nobody speaks of other paths than its own.
fn is_about(view: &PathsView, near: &HostName, far: &HostName) -> bool {
    let (near_name, far_name) = (near.as_str(), far.as_str());
    let paths = &view.paths;
    paths
        .iter()
        .all(|path| path.near.host == near_name && path.far.host == far_name)
        && view
            .left_out
            .iter()
            .all(|left| left.near == *near && left.far.as_ref().is_none_or(|other| other == far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_load_each_other_begin_only_where_they_can_end_in_time() {
        let end = Instant::now() + limits::CLUSTER_PATHS;
        let load = LoadRequest {
            time_ms: 10_000,
            share: None,
        };
        assert_eq!(begin_by(end, None), end);
        let load = begin_by(end, Some(load));
        assert_eq!(end - load, limits::LOADED_PAIR + Duration::from_secs(10));
        assert!(load > Instant::now() + limits::LOADS_BEGIN);
    }

    #[test]
    fn nobody_is_believed_about_paths_of_others() {
        let (a, b): (HostName, HostName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let left = |near: &HostName, far: &HostName| PathsView {
            paths: Vec::new(),
            left_out: vec![PathLeftOut {
                near: near.clone(),
                far: Some(far.clone()),
                nic: None,
                why: String::new(),
            }],
        };
        assert!(is_about(&left(&a, &b), &a, &b));
        assert!(!is_about(&left(&b, &a), &a, &b));
    }
}
