//! Where the bytes of one chunk are: in our memory, or in the kernel's behind a pipe.
//!
//! The bytes of a chunk in a pipe are never copied by us: they stay in the pages that the kernel
//! took them into when QEMU wrote them, until the other QEMU reads them. What finds no slot in the
//! pipe, because it came in very small pieces, follows in memory.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;

use drover_lanes::{Lane, Patience, Pipe, read_some, send_some};

/// How far a chunk is sent.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the header and the chunk that the lane took.
    sent: usize,
    /// The chunk's bytes are in the lane's pipe, too.
    teed: bool,
}

/// The bytes of a chunk, or space for them.
#[derive(Debug)]
pub(crate) struct Chunk {
    pipe: Option<Pipe>,
    /// Bytes in the pipe. They come first.
    in_pipe: usize,
    memory: Vec<u8>,
    /// What of the memory follows the bytes in the pipe.
    from: usize,
    to: usize,
}

impl Chunk {
    /// Without bytes, which it takes into the pipe if it has one.
    pub(crate) fn new(pipe: Option<Pipe>) -> Self {
        Self {
            pipe,
            in_pipe: 0,
            memory: Vec::new(),
            from: 0,
            to: 0,
        }
    }

    /// The pipe, if bytes are in it.
    fn filled_pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref().filter(|_| self.in_pipe > 0)
    }

    /// Whether what it takes stays in the kernel.
    pub(crate) fn has_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Puts its bytes into `copy` as well; they are all in the pipe.
    pub(crate) fn tee(&self, copy: &Pipe) -> io::Result<()> {
        match self.filled_pipe() {
            Some(pipe) => pipe.tee(copy, self.in_pipe),
            None => Ok(()),
        }
    }

    pub(crate) fn is_in_pipe(&self) -> bool {
        self.in_pipe > 0
    }

    fn in_memory(&self) -> &[u8] {
        &self.memory[self.from..self.to]
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.in_pipe + self.in_memory().len()
    }

    /// Memory for so many bytes behind those in the pipe.
    fn space(&mut self, count: usize) -> &mut [u8] {
        if self.memory.len() < count {
            self.memory.resize(count, 0);
        }
        (self.from, self.to) = (0, count);
        &mut self.memory[..count]
    }

    /// Memory for its bytes, which may be as many as needed; [`Chunk::filled`] is said afterwards.
    pub(crate) fn memory_to_fill(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Its bytes are the first ones in its memory.
    pub(crate) fn filled(&mut self, count: usize) {
        (self.from, self.to) = (0, count.min(self.memory.len()));
    }

    /// Takes what QEMU has sent, at most `most` bytes, and waits for the first: how many; zero
    /// when QEMU sends nothing more.
    pub(crate) fn take_from(&mut self, stream: &UnixStream, most: usize) -> io::Result<usize> {
        let Some(pipe) = &self.pipe else {
            let count = read_some(stream, self.space(most))?;
            self.to = count;
            return Ok(count);
        };
        self.in_pipe = pipe.fill(stream, most, Patience::Wait)?;
        while (1..most).contains(&self.in_pipe) {
            match pipe.fill(stream, most - self.in_pipe, Patience::Hurry) {
                // What ails the socket will be seen again by the next read.
                Ok(0) | Err(_) => break,
                Ok(more) => self.in_pipe += more,
            }
        }
        Ok(self.in_pipe)
    }

    /// Its bytes, if all of them are in memory.
    pub(crate) fn all_in_memory(&self) -> Option<&[u8]> {
        (self.in_pipe == 0).then(|| self.in_memory())
    }

    /// Receives exactly `count` bytes into memory.
    pub(crate) fn receive_in_memory(&mut self, lane: &Lane, count: usize) -> io::Result<&[u8]> {
        lane.receive(self.space(count))?;
        Ok(self.in_memory())
    }

    /// Receives exactly `count` bytes.
    pub(crate) fn receive(&mut self, lane: &Lane, count: usize) -> io::Result<()> {
        if let Some(pipe) = &self.pipe {
            self.in_pipe = lane.receive_into(pipe, count)?;
        }
        let rest = count - self.in_pipe;
        lane.receive(self.space(rest))
    }

    /// Goes on sending `header` and the chunk, which keeps its bytes. `spare` is a pipe of the
    /// lane's, empty when a chunk begins.
    pub(crate) fn send(
        &self,
        lane: &Lane,
        header: &[u8],
        progress: &mut Progress,
        spare: Option<&Pipe>,
        patience: Patience,
    ) -> io::Result<()> {
        while progress.sent < header.len() + self.len() {
            progress.sent += self.send_more(lane, header, progress, spare, patience)?;
        }
        Ok(())
    }

    fn send_more(
        &self,
        lane: &Lane,
        header: &[u8],
        progress: &mut Progress,
        spare: Option<&Pipe>,
        patience: Patience,
    ) -> io::Result<usize> {
        let sent = progress.sent;
        let Some(pipe) = self.filled_pipe() else {
            let mut slices = [IoSlice::new(header), IoSlice::new(self.in_memory())];
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, sent);
            return lane.send_some(left, false, patience);
        };
        let Some(sent) = sent.checked_sub(header.len()) else {
            return lane.send_some(&[IoSlice::new(&header[sent..])], true, patience);
        };
        let spare = spare.ok_or(io::ErrorKind::Unsupported)?;
        if !std::mem::replace(&mut progress.teed, true) {
            pipe.tee(spare, self.in_pipe)?;
        }
        if sent < self.in_pipe {
            return lane.send_from(spare, self.in_pipe - sent, patience);
        }
        let left = IoSlice::new(&self.in_memory()[sent - self.in_pipe..]);
        lane.send_some(&[left], false, patience)
    }

    /// Gives QEMU the bytes that the chunk has left.
    pub(crate) fn give_to(&mut self, stream: &UnixStream, patience: Patience) -> io::Result<()> {
        while let Some(pipe) = self.filled_pipe() {
            self.in_pipe -= pipe.drain(stream, self.in_pipe, patience)?;
        }
        while self.from < self.to {
            let left = IoSlice::new(self.in_memory());
            self.from += send_some(stream, &[left], false, patience)?;
        }
        Ok(())
    }

    /// Throws away what it still has.
    pub(crate) fn clear(&mut self, nowhere: &File) -> io::Result<()> {
        while let Some(pipe) = self.filled_pipe() {
            self.in_pipe -= pipe.drain(nowhere, self.in_pipe, Patience::Wait)?;
        }
        (self.from, self.to) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
impl Chunk {
    /// A copy of its bytes, which it keeps.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.in_pipe];
        if let Some(pipe) = self.filled_pipe() {
            let (spare, (to, mut from)) = (Pipe::new(16).unwrap(), UnixStream::pair().unwrap());
            pipe.tee(&spare, self.in_pipe).unwrap();
            let drained = spare.drain(&to, self.in_pipe, Patience::Wait);
            assert_eq!(drained.unwrap(), self.in_pipe);
            io::Read::read_exact(&mut from, &mut bytes).unwrap();
        }
        bytes.extend_from_slice(self.in_memory());
        bytes
    }
}
