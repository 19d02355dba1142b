//! What leaves a host, as its kernel counts it: headers, encryption and what agents say included.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drover_lab::Host;
use tokio::task::JoinHandle;

use super::peer::on;

const LOOK: Duration = Duration::from_millis(5);

/// Counts until it is asked.
pub struct Meter {
    over: Arc<AtomicBool>,
    looks: JoinHandle<Vec<(Instant, u64)>>,
}

impl Meter {
    /// Counts from now on.
    pub fn start(host: Host) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let count = move || {
            let mut looks = Vec::new();
            while !until.load(Ordering::Relaxed) {
                looks.push((Instant::now(), sent()));
                std::thread::sleep(LOOK); // a rate is measured over time
            }
            looks
        };
        let looks = tokio::spawn(async move { on(&host, count).await });
        Self { over, looks }
    }

    /// The most bytes that left within any second, and the mean of a second from the first megabyte on.
    pub async fn over_any_second(self) -> (f64, f64) {
        self.over.store(true, Ordering::Relaxed);
        let looks = self.looks.await.unwrap();
        let second = Duration::from_secs(1);
        let mut most = 0;
        for (at, (from, before)) in looks.iter().enumerate() {
            let within = looks[at..]
                .iter()
                .take_while(|look| look.0 - *from <= second);
            most = most.max(within.last().map_or(0, |look| look.1 - before));
        }
        let (first, last) = (looks.first().unwrap(), looks.last().unwrap());
        let began = looks
            .iter()
            .find(|look| look.1 - first.1 > 1 << 20)
            .unwrap();
        let mean = (last.1 - began.1) as f64 / (last.0 - began.0).as_secs_f64();
        (most as f64, mean)
    }
}

/// Bytes that left by any interface of the network that this thread is in.
fn sent() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let of_nic = |line: &str| {
        let (nic, counts) = line.split_once(':')?;
        let sent = counts.split_whitespace().nth(8)?;
        (nic.trim() != "lo").then(|| sent.parse::<u64>().unwrap())
    };
    counters.lines().filter_map(of_nic).sum()
}
