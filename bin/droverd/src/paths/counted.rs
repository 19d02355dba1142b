//! What this host's interfaces count while paths over them are asked.

use std::collections::BTreeMap;

use drover_tune::facts::{Counted, Fact, Traffic};
use drover_types::with_sources;
use tokio::time::{Instant, sleep};

use super::limits;

/// What they had counted at a time, or why that is not known.
#[derive(Debug)]
pub struct Counters(Result<BTreeMap<String, Traffic>, String>);

impl Counters {
    /// Of now.
    pub async fn now() -> Self {
        let told = drover_host::traffic().await;
        Self(told.map_err(|error| with_sources(&error)))
    }

    /// What each of these has counted since then: as soon as it is as much as surely crossed it, or once drivers have had time to tell.
    pub async fn since(
        &self,
        crossed: &BTreeMap<String, Traffic>,
    ) -> BTreeMap<String, Fact<Traffic>> {
        let end = Instant::now() + limits::COUNTERS_LATE;
        loop {
            let now = Self::now().await;
            let of = |nic: &String| (nic.clone(), self.until(&now, nic));
            let grown: BTreeMap<_, _> = crossed.keys().map(of).collect();
            let is_whole = |(nic, crossed): (&String, &Traffic)| {
                let counted = grown[nic].known();
                counted.is_none_or(|counted| covers(counted, crossed))
            };
            if crossed.iter().all(is_whole) || Instant::now() >= end {
                return grown;
            }
            sleep(limits::COUNTERS_STEP).await;
        }
    }

    fn until(&self, now: &Self, nic: &str) -> Fact<Traffic> {
        let of = |counters: &Self| match &counters.0 {
            Ok(all) => all
                .get(nic)
                .copied()
                .ok_or_else(|| format!("{nic} counts nothing")),
            Err(why) => Err(why.clone()),
        };
        match (of(self), of(now)) {
            (Ok(before), Ok(now)) => grown(before, now).map_or_else(
                || Fact::unknown(format!("{nic} began to count anew meanwhile")),
                Fact::Known,
            ),
            (Err(why), _) | (_, Err(why)) => Fact::Unknown(why),
        }
    }
}

fn covers(counted: &Traffic, crossed: &Traffic) -> bool {
    counted.received >= crossed.received && counted.sent >= crossed.sent
}

fn grown(before: Traffic, now: Traffic) -> Option<Traffic> {
    Some(Traffic {
        received: now.received.checked_sub(before.received)?,
        sent: now.sent.checked_sub(before.sent)?,
    })
}

/// What crossed a path, and what both of its ends counted.
pub fn together(
    (asked, answered): (u64, u64),
    near: Fact<Traffic>,
    far: Fact<Traffic>,
) -> Fact<Counted> {
    match (near, far) {
        (Fact::Known(near), Fact::Known(far)) => Fact::Known(Counted {
            asked,
            answered,
            near,
            far,
        }),
        (Fact::Unknown(why), _) | (_, Fact::Unknown(why)) => Fact::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn wanted(nic: &str, bytes: u64) -> BTreeMap<String, Traffic> {
        let traffic = Traffic {
            received: bytes,
            sent: bytes,
        };
        [(nic.to_owned(), traffic)].into()
    }

    #[tokio::test]
    async fn what_crossed_is_counted_by_its_interface() {
        let before = Counters::now().await;
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        here.send_to(&[0; 1000], here.local_addr().unwrap())
            .unwrap();
        let counted = before.since(&wanted("lo", 1000)).await;
        let lo = counted["lo"].known().unwrap();
        assert!(lo.received >= 1000 && lo.sent >= 1000, "{lo:?}");
        let none = before.since(&wanted("none", 1)).await;
        assert_eq!(none["none"], Fact::unknown("none counts nothing"));
    }

    #[test]
    fn counters_that_begin_anew_tell_nothing() {
        let of = |bytes: u64| Counters(Ok(wanted("nic0", bytes)));
        let grown = of(5).until(&of(9), "nic0");
        assert_eq!(grown.known().map(|it| (it.received, it.sent)), Some((4, 4)));
        assert_eq!(of(9).until(&of(5), "nic0").known(), None);
        let silent = Counters(Err("netlink told nothing".to_owned()));
        let unknown = Fact::unknown("netlink told nothing");
        assert_eq!(of(5).until(&silent, "nic0"), unknown);
        let one = Fact::Known(Traffic::default());
        assert!(together((1, 1), one.clone(), one.clone()).known().is_some());
        assert!(together((1, 1), one, unknown).known().is_none());
    }
}
