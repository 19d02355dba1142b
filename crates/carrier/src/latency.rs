//! Processors that wake quickly while bytes are carried, and how long they slept meanwhile.

use std::path::{Path, PathBuf};
use std::time::Instant;

use drover_host::{LatencyRequest, idle_times};
use drover_types::{CpuLatency, IdleTime, with_sources};

use crate::limits::IDLE_LOOKS;
use crate::protocol::Latency;

/// What one relay asks of its host's processors. It is given back when this is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct Awake {
    root: PathBuf,
    request: Option<LatencyRequest>,
    before: Result<Vec<IdleTime>, String>,
    looked_at: Instant,
    told: Latency,
}

impl Awake {
    /// Asks for it, if it is wanted, in microseconds.
    pub(crate) fn new(root: &Path, wanted: Option<u32>) -> Self {
        let before = idle_times(root).map_err(|error| with_sources(&error));
        let asked = wanted.map(|us| (us, LatencyRequest::new(root, us)));
        let (request, cpu) = match asked {
            None => (None, CpuLatency::Off),
            Some((us, Ok(request))) => (Some(request), CpuLatency::Held { us }),
            Some((us, Err(error))) => {
                let why = with_sources(&error);
                tracing::warn!(us, why, "processors may sleep deeply");
                (None, CpuLatency::Refused { why })
            }
        };
        let idle = before
            .as_ref()
            .map(|before| IdleTime::since(before, before));
        Self {
            root: root.to_owned(),
            request,
            told: Latency {
                cpu,
                idle: idle.map_err(Clone::clone),
                over: false,
            },
            before,
            looked_at: Instant::now(),
        }
    }

    /// How it stands, as of the last look.
    pub(crate) fn told(&self) -> &Latency {
        &self.told
    }

    /// Looks again, if the last look was a while ago.
    pub(crate) fn look_at_times(&mut self) {
        if self.looked_at.elapsed() >= IDLE_LOOKS {
            self.look();
        }
    }

    /// Looks again how long processors slept.
    pub(crate) fn look(&mut self) {
        self.looked_at = Instant::now();
        if let Ok(before) = &self.before {
            let now = idle_times(&self.root);
            let since = now.map(|now| IdleTime::since(&now, before));
            self.told.idle = since.map_err(|error| with_sources(&error));
        }
    }

    /// Processors may sleep as they like again; a last look, and what was told stays.
    pub(crate) fn end(mut self) -> Latency {
        self.look();
        drop(self.request);
        self.told.over = true;
        self.told
    }
}
