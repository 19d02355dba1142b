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
use drover_reach::limits::{LOAD_GREETING, LOAD_ORDERED, LOAD_REST, LOAD_WARM_UP};
use drover_tune::facts::{Carried, Fact, Joint, Path, PathEnd, Together};
use drover_types::HostName;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::ask::not_loaded;
use super::carry::carry;
use super::hold::Loads;
use super::milliseconds;
use super::pairs::share_a_line;
use super::sets::{Kind, Set, sets};
use crate::agent::Context;
use crate::limits;
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
        path.together = Some(not_loaded(path));
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

/// Where two hosts may load each other yet, so that others would be found as their fault: says so of all paths, and loads none.
pub fn leave_out(loads: &Loads, paths: &mut [Path]) -> LoadedTogether {
    let why = "two hosts were still loading each other when the time for all was over: name the hosts that matter";
    for path in paths.iter_mut() {
        path.together = Some(Together {
            beside: false,
            to_one: Fact::unknown(why),
            each_other: Fact::unknown(why),
        });
    }
    nothing(loads, paths)
}

/// Before any was loaded.
fn nothing(loads: &Loads, paths: &[Path]) -> LoadedTogether {
    LoadedTogether {
        budget_ms: milliseconds(limits::LOADS_TOGETHER),
        paths: u32::try_from(paths.len()).unwrap_or(u32::MAX),
        share: loads.request.share,
        ..LoadedTogether::default()
    }
}

fn was_measured(path: &Path) -> bool {
    let joint = path.together.iter();
    let mut joint = joint.flat_map(|together| [&together.to_one, &together.each_other]);
    joint.any(|joint| joint.known().is_some())
}

/// Until it is.
fn not_loaded(path: &Path) -> Together {
    let why = match &path.carried {
        Some(Fact::Unknown(why)) => format!("it was not measured alone: {why}"),
        _ => "it was not loaded with others".to_owned(),
    };
    Together {
        beside: false,
        to_one: Fact::unknown(&why),
        each_other: Fact::unknown(&why),
    }
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
        let carried = tokio::spawn(async move { carry(&context, &migrations, id, order).await });
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

/// A host that may have begun at another time than the others measured something else. Its order came no later than it and its answer took on their ways.
fn unless_late(near: &HostName, mut view: LoadedView, since_sent: Duration) -> LoadedView {
    let took = Duration::from_millis(view.took_ms);
    let away = since_sent.saturating_sub(took);
    if away > LOAD_ORDERED {
        let (away, most) = (away.as_millis(), LOAD_ORDERED.as_millis());
        let why = format!(
            "{near} may have begun later than the others: its order and its answer were {away} ms on their ways, and may be {most} ms"
        );
        for path in &mut view.paths {
            path.carried = Fact::unknown(&why);
        }
    }
    view
}

/// What a host told of one of its paths.
fn of_path(path: &Path, told: &BTreeMap<String, Result<LoadedView, String>>) -> Fact<Carried> {
    let near = path.near.host.as_str();
    let view = match told.get(near) {
        Some(Ok(view)) => view,
        Some(Err(why)) => return Fact::unknown(why),
        None => return Fact::unknown(format!("{near} was not asked")),
    };
    let mut all = view.paths.iter();
    let found = all.find(|one| one.nic == path.near.nic && one.to == path.far.address);
    found.map_or_else(
        || Fact::unknown(format!("{near} did not tell what it carried")),
        |found| found.carried.clone(),
    )
}

fn put_one(path: &mut Path, kind: Kind, joint: Fact<Joint>) {
    let Some(together) = &mut path.together else {
        return;
    };
    match kind {
        Kind::ToOne => together.to_one = joint,
        Kind::EachOther => together.each_other = joint,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::LoadedPath;
    use drover_tune::facts::HeldUpBy;

    use super::*;

    fn end(host: &str, last: u8) -> PathEnd {
        PathEnd {
            host: host.into(),
            nic: "n0".into(),
            address: [10, 0, 0, last].into(),
            mtu: 1500,
        }
    }

    fn path(carried: Fact<Carried>) -> Path {
        let unknown = "not asked";
        Path {
            near: end("a", 1),
            far: end("b", 2),
            route: Fact::unknown(unknown),
            refused: None,
            answers: Fact::unknown(unknown),
            arrivals: Fact::unknown(unknown),
            there: Fact::unknown(unknown),
            back: Fact::unknown(unknown),
            round_trip: Fact::unknown(unknown),
            carried: Some(carried),
            together: None,
        }
    }

    const CARRIED: Carried = Carried {
        rate: 7,
        line: None,
        allowed: None,
        packets: 1,
        again: 0,
        held_up_by: HeldUpBy::Path,
    };

    #[test]
    fn a_host_is_believed_about_its_own_paths_and_what_it_does_not_tell_is_not_known() {
        let path = path(Fact::Known(CARRIED));
        let view = |last: u8| {
            let paths = vec![LoadedPath {
                nic: "n0".into(),
                to: [10, 0, 0, last].into(),
                carried: Fact::Known(CARRIED),
            }];
            Ok(LoadedView {
                paths,
                ..LoadedView::default()
            })
        };
        let of = |host: &str, view: Result<LoadedView, String>| {
            of_path(&path, &BTreeMap::from([(host.to_owned(), view)]))
        };
        assert_eq!(of("a", view(2)), Fact::Known(CARRIED));
        for (found, told) in [
            (of("a", view(3)), "a did not tell what it carried"),
            (of("a", Err("a is busy".into())), "a is busy"),
            (of("c", view(2)), "a was not asked"),
        ] {
            assert_eq!(found, Fact::unknown(told));
        }
    }

    #[test]
    fn what_a_host_measured_that_may_have_begun_late_is_not_known_and_what_spoils_others_is_told() {
        let near = "a".parse().unwrap();
        let after = |ms| {
            let view = LoadedView {
                paths: vec![LoadedPath {
                    nic: "n0".into(),
                    to: [10, 0, 0, 2].into(),
                    carried: Fact::Known(CARRIED),
                }],
                took_ms: 2_800,
                spoiled: Some("1 migration was under way at a".into()),
            };
            unless_late(&near, view, Duration::from_millis(ms))
        };
        assert_eq!(after(3_000).paths[0].carried, Fact::Known(CARRIED));
        // What it says cannot be more than there was.
        assert_eq!(after(1_000).paths[0].carried, Fact::Known(CARRIED));
        let late = after(3_001);
        let why = late.paths[0].carried.get().unwrap_err();
        assert!(
            why.starts_with("a may have begun later than the others"),
            "{why}"
        );
        assert!(late.spoiled.is_some());
    }

    #[test]
    fn why_a_path_was_not_loaded_alone_is_why_it_is_not_with_others() {
        let together = not_loaded(&path(Fact::unknown("b is busy with a load of c")));
        let why = "it was not measured alone: b is busy with a load of c";
        assert_eq!(together.to_one, Fact::unknown(why));
        assert_eq!(together.each_other, Fact::unknown(why));
    }
}
