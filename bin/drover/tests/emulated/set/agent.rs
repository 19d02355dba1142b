//! The emulated host's agent, in a cluster with one whose kernel answers at the other ends of its wires.

use std::process::{Command, Stdio};
use std::time::Duration;

use drover_api::ChangeView;
use drover_tune::facts::{Counters, Fact, Host as Facts};
use drover_types::CpuSet;

use crate::here::{ALL, FAR, afresh, far, ip, until};
use crate::provision::Office;
use crate::support::{Agent, Place};

pub struct Host {
    pub place: Place,
    agent: Agent,
}

pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Host {
    /// With an address at each end of both wires, and one on each of the other adapters.
    pub async fn start() -> Self {
        afresh();
        for (number, nic) in ALL.into_iter().enumerate() {
            ip(&[
                &format!("addr add 10.9.{number}.1/24 dev {nic}"),
                &format!("link set dev {nic} up"),
            ]);
        }
        for (number, nic) in FAR.into_iter().enumerate() {
            far(&[&format!("addr add 10.9.{number}.2/24 dev {nic}")]);
        }
        let place = Place::new();
        let mut office = Office::new();
        let at = |host: u32| (0..2).map(move |nic| format!("10.9.{nic}.{host}:7470").parse());
        for (host, name) in [(1, "a"), (2, "b")] {
            office.admit(name, at(host).collect::<Result<_, _>>().unwrap());
        }
        office.settle(&place.path("state"), "a");
        let agent = place.start().await;
        let host = Self { place, agent };
        host.settled().await;
        host
    }

    /// The facts, once all links are there and nothing of what tests before it have set is on its way any more.
    async fn settled(&self) -> Facts {
        let same_twice = async || {
            let first = self.carried().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            (first == self.facts().await).then_some(first)
        };
        until(same_twice, Option::is_some).await.unwrap()
    }

    /// The facts, once all links are there: drivers take them away for a moment when something is set.
    pub async fn carried(&self) -> Facts {
        let carries = |facts: &Facts| {
            let of = |nic: &&str| facts.nic(nic).is_some_and(|nic| nic.carrier);
            ALL.iter().all(of)
        };
        until(async || self.facts().await, carries).await
    }

    /// What its agent knows of it, but what counts up by itself, and which of the processors that may take an interrupt does.
    pub async fn facts(&self) -> Facts {
        let mut facts = self.agent.client.facts().await.unwrap().facts;
        facts.uptime_s = Fact::unknown("it counts up");
        facts.softnet = Fact::unknown("it counts up");
        for nic in &mut facts.nics {
            nic.counters = Fact::<Counters>::unknown("they count up");
            nic.carrier_changes = Fact::unknown("they count up");
            nic.listening = None;
            nic.neighbours = Fact::unknown("nobody was heard since the link was last there");
            if let Fact::Known(interrupts) = &mut nic.interrupts {
                for interrupt in interrupts {
                    interrupt.effective = CpuSet::default();
                }
            }
        }
        facts
    }

    /// The facts, once they are those again: a link that was set is agreed on anew.
    pub async fn settles_to(&self, before: &Facts) {
        let found = until(
            async || {
                let facts = self.facts().await;
                Differs::of(before, &facts)
            },
            |differs| differs.0.is_empty(),
        );
        found.await;
    }

    pub fn drover(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command
            .args(arguments)
            .env("DROVER_SOCKET", self.place.socket())
            .env_remove("HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// What a command says that did what it was asked.
    pub fn done(&self, arguments: &[&str]) -> String {
        let Ran { code, out, err } = self.drover(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
        out
    }

    /// What was begun, the newest first.
    pub async fn changes(&self) -> Vec<ChangeView> {
        self.agent.client.changes().await.unwrap()
    }
}

/// Facts that are other ones than before, as a failing test shows them.
#[derive(Debug)]
struct Differs(Vec<String>);

impl Differs {
    fn of(before: &Facts, after: &Facts) -> Self {
        if before == after {
            return Self(Vec::new());
        }
        let [before, after] = [before, after].map(|facts| format!("{facts:#?}"));
        let lines = before.lines().zip(after.lines());
        let differs = lines.filter(|(before, after)| before != after);
        let mut shown: Vec<String> = differs
            .map(|(before, after)| format!("{before} > {after}"))
            .take(40)
            .collect();
        shown.push("the facts differ".to_owned());
        Self(shown)
    }
}
