//! Waits for a disk, but not for ever: a read that stalls cannot be taken back, so it is another thread's, which is left alone with it.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use crate::limits::STORED_READ_LOOK;
use crate::pool::lock;
use crate::shared::spawn;

type Read = Box<dyn FnOnce() -> io::Result<Vec<u8>> + Send>;

/// Threads that read: as many as ask at the same time, and those that were left alone.
#[derive(Debug)]
pub(super) struct Patient {
    idle: Mutex<Vec<Reader>>,
    /// How often it is looked for an answer.
    looks: u32,
}

/// One that reads nothing now. It ends when this is dropped.
#[derive(Debug)]
struct Reader {
    reads: Sender<Read>,
    answers: Receiver<io::Result<Vec<u8>>>,
}

impl Patient {
    pub(super) const fn new(looks: u32) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            looks,
        }
    }

    /// What is read.
    ///
    /// # Errors
    /// Those of the read; [`io::ErrorKind::TimedOut`] where it takes too long.
    pub(super) fn read(
        &self,
        read: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    ) -> io::Result<Vec<u8>> {
        let idle = lock(&self.idle).pop();
        let reader = idle.map_or_else(Reader::start, Ok)?;
        let gone = || io::Error::other("a thread that reads stored pages has ended");
        reader.reads.send(Box::new(read)).map_err(|_| gone())?;
        // Several looks: where all of this process stood still, that was one of them.
        for _ in 0..self.looks {
            match reader.answers.recv_timeout(STORED_READ_LOOK) {
                Ok(answer) => {
                    lock(&self.idle).push(reader);
                    return answer;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Reader {
    fn start() -> io::Result<Self> {
        let (reads, wanted) = channel::<Read>();
        let (answer, answers) = channel();
        spawn("disk", move || {
            while let Ok(read) = wanted.recv() {
                if answer.send(read()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { reads, answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_stalls_is_given_up_and_others_go_on() {
        let patient = Patient::new(1);
        let (end, stalls) = channel::<()>();
        let stalled = patient.read(move || {
            let _ = stalls.recv();
            Ok(vec![1])
        });
        assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(lock(&patient.idle).is_empty());
        for byte in [2, 3] {
            assert_eq!(patient.read(move || Ok(vec![byte])).unwrap(), [byte]);
            assert_eq!(lock(&patient.idle).len(), 1);
        }
        let failed = patient.read(|| Err(io::ErrorKind::UnexpectedEof.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // What it gives in the end is nobody's.
        drop(end);
        assert_eq!(patient.read(|| Ok(vec![4])).unwrap(), [4]);
    }
}
