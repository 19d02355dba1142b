//! Asks pairs of interfaces of two hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use drover_api::{AnswererView, PathLeftOut};
use drover_migrate::paths::Candidate;
use drover_reach::limits::ASK_TIME;
use drover_reach::{Budget, Question, Report, Ticket};
use drover_tune::facts::{Carried, Fact, Path, PathEnd, Traffic};
use drover_types::{BitRate, HostName, Interface, with_sources};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::time::Instant;

use super::counted::{Counters, together};
use super::doubts::{Left, elsewhere, is_whole};
use super::found;
use super::limits;
use super::loading::Loading;
use super::pairs::{Pair, Ports, waves};

/// A pair that was asked, or why it was not.
pub struct Asked {
    pair: Pair,
    route: Fact<String>,
    report: Result<Report, String>,
    /// What the near interface counted meanwhile.
    counted: Fact<Traffic>,
    carried: Option<Fact<Carried>>,
}

/// Everything that asking pairs takes.
pub struct Asking<'a> {
    /// The host that asks.
    pub near: &'a HostName,
    /// The one that answers.
    pub far: &'a HostName,
    /// Interfaces of the first.
    pub own: &'a [Interface],
    /// What each of them stands on.
    pub ports: &'a Ports,
    /// What the other one said.
    pub answerer: &'a AnswererView,
    /// What questions are made with.
    pub ticket: Ticket,
    /// How each is loaded after it was asked, or why not; nothing where that is not wanted.
    pub load: Option<Result<Loading, String>>,
    /// Whether a guest moves from or to the near host now.
    pub moves: &'a (dyn Fn() -> bool + Sync),
    /// When all has to be asked.
    pub end: Instant,
    /// When all loads have to be over: whoever had them made waits no longer.
    pub load_end: Instant,
}

impl Asking<'_> {
    /// Asks them, those that share no line at the same time.
    pub async fn all(&self, chosen: Vec<Pair>) -> Vec<Asked> {
        let mut asked = Vec::new();
        for wave in waves(chosen, self.ports, &self.answerer.ports) {
            let before = Counters::now().await;
            let wave = wave.into_iter().map(async |pair| {
                let (from, to) = (pair.near.address, pair.far.address);
                let route = match drover_host::route(from, to).await {
                    Ok(route) => Fact::Known(route),
                    Err(error) => Fact::unknown(with_sources(&error)),
                };
                let report = self.ask(&pair).await;
                Asked {
                    pair,
                    route,
                    report,
                    counted: Fact::unknown("it was not asked"),
                    carried: None,
                }
            });
            let mut wave = join_all(wave).await;
            count(&before, &mut wave).await;
            self.load(&mut wave).await;
            asked.extend(wave);
        }
        asked
    }

    /// Loads those of a wave that were answered, all at the same time as a migration does.
    async fn load(&self, wave: &mut [Asked]) {
        let Some(load) = &self.load else { return };
        let loads = wave.iter_mut().map(async |asked| {
            let answered = asked
                .report
                .as_ref()
                .is_ok_and(|report| report.trips.answered > 0);
            asked.carried = Some(match load {
                Err(why) => Fact::unknown(why.clone()),
                Ok(_) if !answered => Fact::unknown("nothing came back"),
                Ok(loading) => loading.of(&asked.pair, self.load_end, self.moves).await,
            });
        });
        join_all(loads).await;
    }

    /// Those of them that answer: across networks nobody claims anything, and a migration asks them all, too.
    pub async fn knocked(&self, across: Vec<Candidate>) -> Vec<Candidate> {
        let knocked = stream::iter(across).map(async |one| {
            let question = self.question(&one.source, &one.destination, None).ok()?;
            let answered = drover_reach::knock(&question).await;
            answered.is_ok_and(|answered| answered).then_some(one)
        });
        let knocked = knocked.buffered(limits::KNOCKING_AT_ONCE);
        knocked.filter_map(async |one| one).collect().await
    }

    async fn ask(&self, pair: &Pair) -> Result<Report, String> {
        let question = self.question(&pair.near, &pair.far, pair.rate)?;
        let report = drover_reach::ask(&question).await;
        report.map_err(|error| with_sources(&error))
    }

    /// Where that address is answered at.
    fn remote(&self, address: IpAddr) -> Option<SocketAddr> {
        let mut at = self.answerer.at.iter().copied();
        at.find(|at| at.ip() == address)
    }

    fn question(
        &self,
        near: &drover_types::PathEnd,
        far: &drover_types::PathEnd,
        rate: Option<BitRate>,
    ) -> Result<Question, String> {
        let remote = self.remote(far.address);
        let remote =
            remote.ok_or_else(|| format!("{} does not answer at {}", self.far, far.address))?;
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seconds = limits::ASKING.as_secs();
            return Err(format!(
                "asking its paths to {} took {seconds} s already",
                self.far
            ));
        }
        Ok(Question {
            interface: near.interface.clone(),
            local: near.address,
            remote,
            ticket: self.ticket.clone(),
            mtu: mtu(self.own, &near.interface),
            far_mtu: mtu(&self.answerer.interfaces, &far.interface),
            rate,
            budget: Budget {
                time: ASK_TIME.min(left),
                ..Budget::default()
            },
        })
    }

    /// The path as the rules know it, or why nothing was found out about it.
    pub fn told(&self, asked: Asked, left: &Left, busy: Option<&str>) -> Result<Path, PathLeftOut> {
        let Asked {
            pair,
            route,
            report,
            counted,
            carried,
        } = asked;
        let left_out = |why: String| PathLeftOut {
            near: self.near.clone(),
            far: Some(self.far.clone()),
            nic: Some(pair.near.interface.clone()),
            why,
        };
        let report = report.map_err(left_out)?;
        let ends = (
            end(self.near, self.own, &pair.near),
            end(self.far, &self.answerer.interfaces, &pair.far),
        );
        let port = self.answerer.port;
        let remote = self.remote(pair.far.address);
        let remote = remote.filter(|_| report.arrivals.is_empty());
        let elsewhere = remote.and_then(|at| elsewhere(self.far, port, at));
        let doubt = left.at(self.far, pair.far.address).or(elsewhere);
        // Where nothing was silent nothing has to be explained: others were asked at that address, too.
        let uncertain = doubt.filter(|_| !is_whole(&report));
        let doubts = found::Doubts {
            silence: uncertain.as_deref(),
            loss: busy,
        };
        let mut path = found::path(ends, route, &report, doubts);
        let of_far = left.counted(self.far, pair.far.address);
        path.counted = together((report.asked, report.answered), counted, of_far);
        // It shared its line with that, or was cut short.
        let spoiled = busy.map(str::to_owned).or_else(|| left.untold(self.far));
        path.carried = carried.map(|carried| match spoiled {
            Some(why) if carried.known().is_some() => Fact::unknown(why),
            _ => carried,
        });
        Ok(path)
    }
}

/// What their interfaces have counted since then.
async fn count(before: &Counters, wave: &mut [Asked]) {
    let mut crossed: BTreeMap<String, Traffic> = BTreeMap::new();
    for asked in wave.iter() {
        if let Ok(report) = &asked.report {
            let of_nic = crossed.entry(asked.pair.near.interface.clone());
            let of_nic = of_nic.or_default();
            of_nic.received += report.answered;
            of_nic.sent += report.asked;
        }
    }
    let mut counted = before.since(&crossed).await;
    for asked in wave {
        // Those of a wave share no line, nor an interface.
        if let Some(counted) = counted.remove(&asked.pair.near.interface) {
            asked.counted = counted;
        }
    }
}

fn end(host: &HostName, interfaces: &[Interface], end: &drover_types::PathEnd) -> PathEnd {
    PathEnd {
        host: host.to_string(),
        nic: end.interface.clone(),
        address: end.address,
        mtu: mtu(interfaces, &end.interface),
    }
}

fn mtu(interfaces: &[Interface], name: &str) -> u32 {
    let mut interfaces = interfaces.iter();
    let found = interfaces.find(|interface| interface.name == name);
    found.map_or(0, |found| found.mtu)
}
