//! The end of a relay: why it ends, and what is closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_session::{ChannelId, Input};
use drover_wire::ByeCode;

use super::Shared;
use crate::End;
use crate::channel;
use crate::limits::FAREWELL_TIME;
use crate::report::{Event, LaneEnd};

impl Shared {
    fn stop_dialling(&self) {
        if let Some(dialer) = self.dialer.get() {
            dialer.stop();
        }
    }

    pub(super) fn ended(self: &Arc<Self>, end: End) {
        self.stop_dialling();
        let reason = self.end_in_words(end);
        self.tell(Event::Ended { end, reason });
        if end != End::Finished {
            self.terminate();
        }
    }

    fn end_in_words(&self, end: End) -> String {
        match end {
            End::Finished => "everything was delivered".into(),
            End::LanesLost => {
                let reasons = self.last_losses().join("; ");
                match self.outage_limit.as_secs() {
                    0 => format!("no lane to the other host is left ({reasons})"),
                    limit => format!(
                        "there was no lane to the other host for {limit} s, which is the outage \
                         limit ({reasons})"
                    ),
                }
            }
            End::PeerClosed(code) => match code {
                ByeCode::Finished => "the other agent closed the session as finished".into(),
                ByeCode::Aborted => "the other agent ended the session".into(),
                ByeCode::Violation => "the other agent found a violation of the protocol".into(),
                ByeCode::Unknown(code) => format!("the other agent ended the session, code {code}"),
            },
            End::Closed(_) => "the session was closed".into(),
            End::Violation(violation) => violation.to_string(),
        }
    }

    /// How the last lane of each path was lost.
    fn last_losses(&self) -> Vec<String> {
        let core = self.lock();
        let mut of_path = BTreeMap::new();
        for (id, note) in &core.notes {
            let ended = match &note.ended {
                Some(LaneEnd::Lost(reason)) => reason,
                Some(LaneEnd::Closed) | None => "closed",
            };
            of_path.insert(note.path, (id, ended));
        }
        let reason = |(path, (id, ended))| format!("lane {id} on path {path}: {ended}");
        of_path.into_iter().map(reason).collect()
    }

    pub(crate) fn close(self: &Arc<Self>, code: ByeCode) {
        let now = self.now();
        {
            let mut core = self.lock();
            if core.terminated || core.close_at.is_some() {
                return;
            }
            core.close_at = Some(now + FAREWELL_TIME);
            self.stop_dialling();
            self.timer.notify_one();
        }
        self.step_or_end(Input::Close { code });
    }

    /// Closes every socket; every thread ends by itself. QEMU's sockets are closed only here, so
    /// that what it reads until then is what the other QEMU wrote.
    pub(crate) fn terminate(self: &Arc<Self>) {
        let mut core = self.lock();
        if std::mem::replace(&mut core.terminated, true) {
            return;
        }
        self.stop_dialling();
        if let Some(reduction) = &self.reduction {
            reduction.stop_telling();
        }
        for (id, port) in std::mem::take(&mut core.lanes) {
            port.lane.shut_down();
            if let Some(note) = core.notes.get_mut(&id) {
                note.ended.get_or_insert(LaneEnd::Closed);
            }
        }
        for (channel, port) in std::mem::take(&mut core.channels).into_iter().enumerate() {
            if let Some(stream) = port.stream {
                let _ = stream.shutdown(channel::closing(self, channel as ChannelId));
            }
        }
        self.local.close();
        self.timer.notify_all();
    }
}
