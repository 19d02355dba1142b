//! Whether other hosts reach this one, as it is to happen.

use std::fs;
use std::time::Duration;

use drover_change::{Measured, Now, PathSizes, PathTo, Paths, Sizes, Unknown, Untold};
use tokio::time::sleep;

use super::Host;

impl Paths for Host<'_> {
    async fn work(&self, paths: &[PathTo]) -> Vec<bool> {
        self.world.call().await;
        let cut_off_by = self.world.fate.borrow().cut_off_by.clone();
        let cut_off = cut_off_by.is_some_and(|(path, value)| {
            fs::read_to_string(self.world.file(&path)).unwrap() == value
        });
        if cut_off && self.world.fate.borrow().unanswered {
            return Vec::new();
        }
        paths.iter().map(|_| !cut_off).collect()
    }

    async fn opened(&self, paths: &[PathTo], within: Duration) -> Vec<Result<bool, String>> {
        self.world.call().await;
        let opening = self.world.fate.borrow().opening;
        if !opening.is_zero() {
            sleep(opening.min(within)).await;
        }
        if opening > within {
            return vec![Err("it took too long".to_owned()); paths.len()];
        }
        let mut fate = self.world.fate.borrow_mut();
        if fate.tells_none {
            return vec![Err("host b is older".to_owned()); paths.len()];
        }
        let is_shut = self.world.has(fate.shut_by.as_ref());
        // Whoever is asked answers for each, or nothing at all.
        if is_shut && fate.unanswered {
            return Vec::new();
        }
        let is_lost = fate.unarrived > 0;
        fate.unarrived = fate.unarrived.saturating_sub(1);
        vec![Ok(!is_shut && !is_lost); paths.len()]
    }

    async fn measure(&self, within: Duration) -> Measured {
        self.world.call().await;
        match self.world.asked(within).await {
            Ok(now) => Measured {
                paths: vec![self.world.sized(now)],
                untold: vec![untold("c", "it is asleep")],
                layers: self.world.layers(),
            },
            Err(why) => Measured {
                untold: vec![untold("b", &why)],
                ..Measured::default()
            },
        }
    }

    async fn sizes(
        &self,
        paths: &[PathSizes],
        attempt: u32,
        within: Duration,
    ) -> Vec<Result<Now, String>> {
        self.world.call().await;
        self.world.attempts.borrow_mut().push(attempt);
        self.world.narrow();
        let now = self.world.asked(within).await;
        paths.iter().map(|_| now.clone()).collect()
    }
}

fn untold(host: &str, why: &str) -> Untold {
    Untold {
        of: Unknown::Host(host.parse().unwrap()),
        why: format!("{host}: {why}"),
    }
}

/// The path that migrations take from `nic0`, with what crosses it.
pub fn sized(sizes: Sizes) -> PathSizes {
    PathSizes {
        host: "b".parse().unwrap(),
        nic: "nic0".into(),
        from: "10.0.0.1".parse().unwrap(),
        far_nic: "nic0".into(),
        to: "10.0.0.2".parse().unwrap(),
        mtu: sizes.there,
        over: Default::default(),
        sizes,
    }
}
