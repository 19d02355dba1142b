//! What it took to have guests run elsewhere: time, and bytes that hosts sent.

use anyhow::{Context, Result};
use drover_types::Bytes;

use super::GuestMoved;
use super::crew::Member;
use super::watch::Span;
use crate::agent::Agent;
use crate::busy::Busy;
use crate::counters::Nics;
use crate::meter::{millis, now_us};
use crate::network::HOSTS;

/// What is measured from, before the order is given.
pub(super) struct Meter {
    nics: Vec<Nics>,
    sent: Bytes,
    busy: Busy,
    from_us: u64,
    /// Times in which each guest had run by then.
    known: Vec<usize>,
}

/// What it took.
pub(super) struct Taken {
    /// From the order until the last guest ran elsewhere.
    pub(super) total_ms: f64,
    /// What the hosts sent meanwhile, on all NICs.
    pub(super) wire_bytes: Bytes,
    /// The part of all CPUs' time of this machine that they were busy.
    pub(super) cpus_busy: f64,
    /// The guests.
    pub(super) guests: Vec<GuestMoved>,
}

impl Meter {
    /// Of the hosts of these agents, each with so many NICs, and of guests that are about to leave.
    pub(super) fn begin<'a>(
        agents: impl IntoIterator<Item = &'a Agent>,
        nics: usize,
        guests: &[Member],
    ) -> Result<Self> {
        let all = agents.into_iter().map(|agent| Nics::of(agent.pid, nics));
        let nics = all.collect::<Result<Vec<_>>>()?;
        let spans = guests.iter().map(|member| member.watched.spans().len());
        Ok(Self {
            sent: sent(&nics)?,
            nics,
            known: spans.collect(),
            busy: Busy::begin()?,
            from_us: now_us(),
        })
    }

    /// Ends with the last of the guests that runs elsewhere.
    pub(super) fn end(self, guests: &[Member]) -> Result<Taken> {
        let cpus_busy = self.busy.end()?;
        let wire_bytes = Bytes(sent(&self.nics)?.0 - self.sent.0);
        let moved = guests.iter().zip(self.known);
        let moved: Result<Vec<_>> = moved.map(|(guest, known)| moved_by(guest, known)).collect();
        let moved = moved?;
        let last = moved.iter().map(|(_, span)| span.from).max();
        Ok(Taken {
            total_ms: millis(self.from_us, last.unwrap_or(self.from_us)),
            wire_bytes,
            cpus_busy,
            guests: moved.into_iter().map(|(guest, _)| guest).collect(),
        })
    }
}

/// Bytes sent so far on all NICs.
fn sent(nics: &[Nics]) -> Result<Bytes> {
    let each = nics.iter().map(|nics| Ok(nics.sent()?.iter().sum::<u64>()));
    Ok(Bytes(each.sum::<Result<u64>>()?))
}

/// How a guest left: the time in which it ran on the host, and the one after.
fn moved_by(member: &Member, known: usize) -> Result<(GuestMoved, Span)> {
    let watched = &member.watched;
    let spans = watched.spans();
    let last = *spans.last().context("a guest that never ran")?;
    let before = spans
        .get(known.saturating_sub(1))
        .and_then(|span| span.until);
    let before = before.with_context(|| format!("guest {} never stopped", watched.name))?;
    let moved = GuestMoved {
        guest: watched.name.clone(),
        memory: member.definition.memory,
        to: HOSTS[last.host].to_owned(),
        downtime_ms: millis(before, last.from),
    };
    Ok((moved, last))
}
