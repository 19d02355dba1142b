//! Documents as objects in the heap of a Python process, which tells a checksum of each as it
//! would write it.

use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use drover_probe::held::Keeper;
use drover_probe::sums::crc32;

use super::start;

/// What it runs.
const PROGRAM: &str = include_str!("heap.py");

/// A running Python.
pub struct Python {
    orders: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    documents: usize,
    process: Child,
}

impl Python {
    /// Starts it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-I", "-S", "-c", PROGRAM]);
        let mut process = start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (orders, answers) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            orders: BufWriter::new(orders),
            answers: BufReader::new(answers),
            documents: 0,
            process,
        })
    }

    fn answer(&mut self) -> io::Result<String> {
        self.orders.flush()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let ended = self.process.try_wait()?;
            return Err(io::Error::other(format!("Python ended: {ended:?}")));
        }
        Ok(line)
    }
}

impl Keeper for Python {
    fn put(&mut self, number: usize, document: &str) -> io::Result<()> {
        if number == self.documents {
            self.documents += 1;
            writeln!(self.orders, "+{document}")
        } else {
            writeln!(self.orders, "={number} {document}")
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.orders.write_all(b".\n")?;
        self.answer().map(drop)
    }

    fn compare(&mut self, from: usize, documents: &[String]) -> io::Result<Vec<bool>> {
        writeln!(self.orders, "?{from} {}", documents.len())?;
        let answer = self.answer()?;
        let sums: Vec<_> = answer.split_whitespace().collect();
        if sums.len() != documents.len() {
            let error = format!("{} sums of {} documents", sums.len(), documents.len());
            return Err(io::Error::other(error));
        }
        let same = |(document, sum): (&String, &&str)| {
            u32::from_str_radix(sum, 16) == Ok(crc32(document.as_bytes()))
        };
        Ok(documents.iter().zip(&sums).map(same).collect())
    }
}
