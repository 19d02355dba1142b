use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use super::Closed;
use crate::limits;

/// Cuts what a monitor sends into lines of at most [`limits::LINE_BYTES`].
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
        }
    }

    /// The next line without its end, never an empty one.
    pub(super) async fn next(&mut self) -> Result<&[u8], Closed> {
        self.line.clear();
        while !self.take_some().await? {}
        Ok(&self.line)
    }

    /// Adds what has arrived to the line; true when it is complete.
    async fn take_some(&mut self) -> Result<bool, Closed> {
        let arrived = self
            .reader
            .fill_buf()
            .await
            .map_err(|error| Closed::failed(&error))?;
        if arrived.is_empty() {
            return Err(Closed::ByQemu);
        }
        let end = arrived.iter().position(|&byte| byte == b'\n');
        let part = end.unwrap_or(arrived.len());
        if self.line.len() + part > limits::LINE_BYTES {
            return Err(Closed::LineTooLong);
        }
        self.line.extend_from_slice(&arrived[..part]);
        self.reader.consume(end.map_or(part, |end| end + 1));
        if end.is_none() {
            return Ok(false);
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(!self.line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn all(input: &[u8], buffer: usize) -> (Vec<Vec<u8>>, Closed) {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, input));
        let mut found = Vec::new();
        loop {
            match lines.next().await {
                Ok(line) => found.push(line.to_vec()),
                Err(end) => return (found, end),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_arrive() {
        for buffer in [1, 2, 3, 7, 64] {
            let (lines, end) = all(b"{\"a\":1}\r\n\r\n\n{}\npart", buffer).await;
            assert_eq!(
                lines,
                [b"{\"a\":1}".to_vec(), b"{}".to_vec()],
                "buffer of {buffer}"
            );
            assert_eq!(end, Closed::ByQemu);
        }
    }

    #[tokio::test]
    async fn a_line_of_the_longest_length_is_read_and_one_byte_more_is_refused() {
        let mut input = vec![b'x'; limits::LINE_BYTES];
        input.push(b'\n');
        let (lines, end) = all(&input, 8192).await;
        assert_eq!((lines.len(), end), (1, Closed::ByQemu));
        input.insert(0, b'x');
        let (lines, end) = all(&input, 8192).await;
        assert_eq!((lines.len(), end), (0, Closed::LineTooLong));
    }
}
