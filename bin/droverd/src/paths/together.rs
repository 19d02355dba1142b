//! Has several hosts load each other at the same time.
//!
//! ```text
//!   set after set: an order to each host that loads ── "begin in a second" ──▶ carry
//!                  what each path carried           ◀──────────────────────────
//! ```
//!
//! # Invariant
//! What was not carried by all of a set, for a guest that began to move or a host that was silent, is said of its paths with the reason. Nothing that
//! was carried beside a guest that moves counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{LoadOrder, LoadPath, LoadedTogether, LoadedView};
use drover_reach::limits::{LOAD_GREETING, LOAD_REST, LOAD_WARM_UP};
use drover_tune::facts::{Carried, Fact, Joint, Path, PathEnd};
use drover_types::HostName;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::ask::not_loaded;
use super::carry::carry;
use super::hold::Loads;
use super::limits;
use super::milliseconds;
use super::outcome::{not_loaded_yet, nothing, of_path, put_one, unless_late, was_measured};
use super::pairs::share_a_line;
use super::sets::{Kind, Set, sets};
use crate::agent::Context;
use crate::api::Caller;
use crate::migration::Migrations;

/// Loads those that were loaded alone, as long as there is time, and adds to each what it carried, or why that is not known.
pub async fn load_together(
    (context, migrations): (&Arc<Context>, &Arc<Migrations>),
    (loads, hosts): (&Loads, &[HostName]),
    paths: &mut [Path],
) -> LoadedTogether {
    let begun = Instant::now();
    let mut company = Company {
        context,
        migrations,
        loads,
        hosts,
        end: begun + limits::LOADS_TOGETHER,
        gone: BTreeMap::new(),
    };
    for path in paths.iter_mut() {
        path.together = Some(not_loaded_yet(path));
    }
    let mut told = nothing(loads, paths);
    let all = sets(hosts, paths, &|one, other| company.share_a_line(one, other));
    for set in all {
        let alone = set.senders(paths).len() < 2;
        let found = match alone {
            true => Err("no two hosts have paths that could be loaded at that time".to_owned()),
            false => company.carried(&set, paths).await,
        };
        told.wanted += u32::from(!alone);
        let is_known = |all: &Vec<Fact<Carried>>| all.iter().any(|one| one.known().is_some());
        if found.as_ref().is_ok_and(is_known) {
            match set.kind {
                Kind::ToOne => told.to_one += 1,
                Kind::EachOther => told.each_other += 1,
            }
        }
        company.put(&set, found, paths);
    }
    told.took_ms = milliseconds(begun.elapsed());
    let measured = paths.iter().filter(|path| was_measured(path)).count();
    told.measured = u32::try_from(measured).unwrap_or(u32::MAX);
    told
}

struct Company<'a> {
    context: &'a Arc<Context>,
    migrations: &'a Arc<Migrations>,
    loads: &'a Loads,
    hosts: &'a [HostName],
    end: Instant,
    /// Who did not tell in time takes no part in what follows.
    gone: BTreeMap<HostName, String>,
}

impl Company<'_> {
    fn share_a_line(&self, one: &PathEnd, other: &PathEnd) -> bool {
        let ports = |nic: &str| Some(&self.loads.line(&one.host, nic)?.ports);
        share_a_line(&ports, &one.nic, &other.nic)
    }

    /// The longest time that one set takes.
    fn takes(&self) -> Duration {
        let time = Duration::from_millis(self.loads.request.time_ms);
        limits::LOAD_LEAD + LOAD_GREETING + LOAD_WARM_UP + time + LOAD_REST + limits::LOAD_TOLD
    }

    /// What each path of a set carried, in their order.
    async fn carried(&mut self, set: &Set, paths: &[Path]) -> Result<Vec<Fact<Carried>>, String> {
        if Instant::now() + self.takes() > self.end {
            let seconds = limits::LOADS_TOGETHER.as_secs();
            return Err(format!(
                "loads of several hosts may take {seconds} s, and took that already: name the hosts that matter"
            ));
        }
        let this = &*self;
        let orders = this.orders(set, paths).into_iter();
        let asked = orders.map(async |(near, order)| {
            let told = this.ask(&near, order).await;
            (near, told)
        });
        let asked = join_all(asked).await;
        let mut told: BTreeMap<String, Result<LoadedView, String>> = BTreeMap::new();
        for (near, view) in asked {
            let name = near.to_string();
            let view = view.map_err(|NotTold { why, is_silent }| {
                if is_silent {
                    self.gone.insert(near, why.clone());
                }
                why
            });
            told.insert(name, view);
        }
        let mut views = told.values().filter_map(|view| view.as_ref().ok());
        if let Some(why) = views.find_map(|view| view.spoiled.clone()) {
            return Err(why);
        }
        let of = |at: &usize| of_path(&paths[*at], &told);
        Ok(set.paths.iter().map(of).collect())
    }

    /// What each host that loads another is to do.
    fn orders(&self, set: &Set, paths: &[Path]) -> Vec<(HostName, LoadOrder)> {
        let shared = |one: &PathEnd, other: &PathEnd| self.share_a_line(one, other);
        let mut orders = Vec::new();
        for near in self.hosts {
            let own = set.paths.iter().map(|at| &paths[*at]);
            let own = own.filter(|path| path.near.host == near.as_str());
            let own: Vec<&Path> = own.collect();
            let far = own.first().and_then(|path| {
                let mut hosts = self.hosts.iter();
                hosts.find(|host| host.as_str() == path.far.host)
            });
            let Some(far) = far else { continue };
            let load_path = |path: &&Path| LoadPath {
                nic: path.near.nic.clone(),
                from: path.near.address,
                to: path.far.address,
                senders: set.senders_to(&path.far, paths, &shared),
            };
            let order = LoadOrder {
                far: far.clone(),
                paths: own.iter().map(load_path).collect(),
                load: self.loads.request,
                after_ms: milliseconds(limits::LOAD_LEAD),
            };
            orders.push((near.clone(), order));
        }
        orders
    }

    async fn ask(&self, near: &HostName, order: LoadOrder) -> Result<LoadedView, NotTold> {
        if let Some(why) = self.gone.get(near) {
            return Err(NotTold {
                why: why.clone(),
                is_silent: true,
            });
        }
        let (within, sent) = (self.takes(), Instant::now());
        match timeout(within, self.order(near, order)).await {
            Ok(told) => told.map(|view| unless_late(near, view, sent.elapsed())),
            Err(_) => Err(NotTold {
                why: format!("{near} did not tell within {} s", within.as_secs()),
                is_silent: true,
            }),
        }
    }

    async fn order(&self, near: &HostName, order: LoadOrder) -> Result<LoadedView, NotTold> {
        let id = self.loads.between(near, &order.far);
        let id = id.map_err(NotTold::that)?;
        if *near != self.context.config.host {
            let client = self.context.peers.client(near);
            let client = client.map_err(|refusal| NotTold::that(refusal.message))?;
            let carried = client.carry_load(id, &order).await;
            return carried.map_err(|error| NotTold {
                // What is told of a third host is told.
                is_silent: error.refusal().is_none(),
                why: not_loaded(near, &error).message,
            });
        }
        let (context, migrations) = (Arc::clone(self.context), Arc::clone(self.migrations));
        // To its end, as when another host is asked to.
        let carried =
            tokio::spawn(
                async move { carry(&context, &migrations, (&Caller::Local, id), order).await },
            );
        match carried.await {
            Ok(carried) => carried.map_err(|refusal| NotTold::that(refusal.message)),
            Err(error) => Err(NotTold::that(format!("the agent failed at this: {error}"))),
        }
    }

    /// Writes down what came of a set.
    fn put(&self, set: &Set, found: Result<Vec<Fact<Carried>>, String>, paths: &mut [Path]) {
        for at in &set.beside {
            let path = &mut paths[*at];
            let why = "it shares a line with another path of these two hosts, which was loaded";
            put_one(path, set.kind, Fact::unknown(why));
            if let Some(together) = &mut path.together {
                together.beside = true;
            }
        }
        for (number, at) in set.paths.iter().enumerate() {
            let path = &mut paths[*at];
            let carried = match &found {
                Ok(all) => all.get(number).cloned(),
                Err(why) => Some(Fact::unknown(why)),
            };
            let line = |end: &PathEnd| {
                let line = self.loads.line(&end.host, &end.nic);
                line.cloned().unwrap_or_default()
            };
            let (near, far) = (line(&path.near), line(&path.far));
            let joint = match carried.unwrap_or_default() {
                Fact::Unknown(why) => Fact::Unknown(why),
                Fact::Known(carried) => Fact::Known(Joint {
                    carried,
                    round: set.number,
                    near_ports: near.ports,
                    far_ports: far.ports,
                    far_line: far.rate.map(|rate| rate.0),
                }),
            };
            put_one(path, set.kind, joint);
        }
    }
}

/// A host that did not tell what came of its order.
struct NotTold {
    why: String,
    /// It is not there, or hangs.
    is_silent: bool,
}

impl NotTold {
    /// It said why.
    fn that(why: String) -> Self {
        let is_silent = false;
        Self { why, is_silent }
    }
}
