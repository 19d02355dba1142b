//! Why silence between two hosts may mean nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use drover_api::{AnsweredAt, AnsweredView, ClientError, CountedView};
use drover_reach::{Beyond, Largest, Report};
use drover_tune::facts::{Fact, Traffic};
use drover_types::HostName;

use crate::peers;

/// All was answered, and nothing vanished.
pub fn is_whole(report: &Report) -> bool {
    let lost = |largest: &Largest| largest.beyond == Beyond::Lost;
    let sizes = [report.there.as_ref(), report.back.as_ref()];
    report.unfinished.is_none()
        && report.trips.answered == report.trips.sent
        && !sizes.into_iter().flatten().any(lost)
}

/// Which of them move guests, and how many.
pub fn busy_with(moving: [(&HostName, usize); 2]) -> Option<String> {
    let (host, count) = moving.into_iter().find(|(_, count)| *count > 0)?;
    let migrations = if count == 1 {
        "migration was"
    } else {
        "migrations were"
    };
    Some(format!(
        "{count} {migrations} under way at {host}, and what they fill is lost to others: ask when there is none"
    ))
}

/// What silence at a port may come from that is not the one which is open between hosts.
pub fn elsewhere(far: &HostName, open: u16, at: SocketAddr) -> Option<String> {
    let (address, port) = (at.ip(), at.port());
    (open != 0 && port != open).then(|| {
        format!(
            "{far} answered at port {port} of {address}, as {open} was taken, and a firewall may keep that out: ask again in a minute"
        )
    })
}

/// What was left at each address, or why that is not known.
#[derive(Debug)]
pub struct Left(Result<BTreeMap<IpAddr, AnsweredAt>, String>);

impl Left {
    /// By what the answerer said at its end.
    pub fn of(far: &HostName, ended: Result<AnsweredView, ClientError>) -> Self {
        let left = |view: AnsweredView| {
            let at = view.at.into_iter();
            at.map(|at| (at.address, at)).collect()
        };
        let ended = ended.map(left);
        Self(ended.map_err(|error| peers::unreachable(far, &error).message))
    }

    /// What the interface with that address counted.
    pub fn counted(&self, far: &HostName, address: IpAddr) -> Fact<Traffic> {
        let untold =
            |why: &str| Fact::unknown(format!("{far} did not say what its interface counted{why}"));
        let left = match &self.0 {
            Ok(left) => left.get(&address),
            Err(why) => return untold(&format!(": {why}")),
        };
        let counted = left.and_then(|left| left.counted);
        let known = |counted: CountedView| {
            Fact::Known(Traffic {
                received: counted.received,
                sent: counted.sent,
            })
        };
        counted.map_or_else(|| untold(""), known)
    }

    /// Why nothing is known of what was at its end.
    pub fn untold(&self, far: &HostName) -> Option<String> {
        let why = self.0.as_ref().err()?;
        Some(format!("{far} did not say what it left unanswered: {why}"))
    }

    /// Why silence of that address may be no loss.
    pub fn at(&self, far: &HostName, address: IpAddr) -> Option<String> {
        let left = match &self.0 {
            Ok(left) => left.get(&address),
            Err(_) => return self.untold(far),
        };
        match left {
            Some(AnsweredAt { left, .. }) if *left > 0 => Some(format!(
                "{far} left {left} questions at {address} unanswered, as they came too fast"
            )),
            Some(AnsweredAt {
                unsent, unsent_why, ..
            }) if *unsent > 0 => Some(format!(
                "the kernel of {far} did not send {unsent} answers from {address}: {}",
                unsent_why.as_deref().unwrap_or("it did not say why")
            )),
            Some(_) => None,
            None => Some(format!(
                "{far} did not say what it left unanswered at {address}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_api::{ErrorCode, Refusal};

    use super::*;

    fn far() -> HostName {
        "b".parse().unwrap()
    }

    fn answered(left: u64) -> AnsweredView {
        with_unsent(left, 0)
    }

    fn with_unsent(left: u64, unsent: u64) -> AnsweredView {
        AnsweredView {
            at: vec![AnsweredAt {
                address: "10.0.0.2".parse().unwrap(),
                answers: 100,
                left,
                unsent,
                unsent_why: Some("Operation not permitted".into()),
                counted: Some(CountedView {
                    received: 2,
                    sent: 3,
                }),
            }],
            moving: 0,
            loaded: None,
        }
    }

    #[test]
    fn silence_is_loss_only_where_the_answerer_says_that_it_left_nothing() {
        let at = |left: &Left, address: &str| left.at(&far(), address.parse().unwrap());
        let all = Left::of(&far(), Ok(answered(0)));
        assert_eq!(at(&all, "10.0.0.2"), None);
        assert!(at(&all, "10.0.0.3").unwrap().contains("10.0.0.3"));
        let some = Left::of(&far(), Ok(answered(3)));
        assert!(at(&some, "10.0.0.2").unwrap().contains("left 3 questions"));
        let unsent = Left::of(&far(), Ok(with_unsent(0, 2)));
        let why = at(&unsent, "10.0.0.2").unwrap();
        assert!(why.contains("did not send 2 answers") && why.contains("not permitted"));
        let gone = Refusal::new(ErrorCode::NoSuchAnswerer, "it has ended");
        let none = Left::of(&far(), Err(gone.into()));
        assert!(at(&none, "10.0.0.2").unwrap().ends_with("it has ended"));
        assert_eq!(none.untold(&far()), at(&none, "10.0.0.3"));
        assert_eq!(some.untold(&far()), None);
    }

    #[test]
    fn what_an_interface_counted_is_known_where_its_agent_says_so() {
        let told = Left::of(&far(), Ok(answered(0)));
        let counted = |left: &Left, at: &str| left.counted(&far(), at.parse().unwrap());
        let known = Traffic {
            received: 2,
            sent: 3,
        };
        assert_eq!(counted(&told, "10.0.0.2"), Fact::Known(known));
        let why = "b did not say what its interface counted";
        assert_eq!(counted(&told, "10.0.0.3"), Fact::unknown(why));
        let gone = Refusal::new(ErrorCode::NoSuchAnswerer, "it has ended");
        let none = counted(&Left::of(&far(), Err(gone.into())), "10.0.0.2");
        assert!(none.get().unwrap_err().starts_with(why), "{none:?}");
    }

    #[test]
    fn whoever_moves_guests_is_named() {
        let (near, far) = ("a".parse().unwrap(), far());
        assert_eq!(busy_with([(&near, 0), (&far, 0)]), None);
        let why = busy_with([(&near, 0), (&far, 2)]).unwrap();
        assert!(why.starts_with("2 migrations were under way at b"), "{why}");
    }

    #[test]
    fn silence_at_a_port_that_a_firewall_may_keep_out_is_said_to_be_at_one() {
        let at = |port| SocketAddr::from(([10, 0, 0, 2], port));
        assert_eq!(elsewhere(&far(), 7471, at(7471)), None);
        assert_eq!(elsewhere(&far(), 0, at(40_000)), None);
        let why = elsewhere(&far(), 7471, at(40_000)).unwrap();
        assert!(why.contains("port 40000 of 10.0.0.2, as 7471 was taken"));
    }
}
