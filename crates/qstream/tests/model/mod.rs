//! Writes main channels as QEMU of each version does, and knows what is to be found in them.

#![allow(dead_code, clippy::unwrap_used, reason = "helpers of tests")]

use drover_qstream::{Block, Channel, Found, Next, Page};

pub const PAGE: usize = 4096;

/// A version, by what it does differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 7.2 and 8.0.
    V7_2,
    /// 8.1 to 9.2.
    V8_1,
    /// 10.0 and later.
    V10_0,
}

pub const VERSIONS: [Version; 3] = [Version::V7_2, Version::V8_1, Version::V10_0];

/// What a guest migrates with.
#[derive(Debug, Clone, Copy, Default)]
pub struct With {
    pub postcopy: bool,
    pub multifd: bool,
    pub ignore_shared: bool,
    pub uuid: bool,
}

/// Something in a section of memory.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    Page(u8, u16),
    Zero(u8, u16),
}

/// Names, sizes and pages' sizes. The second one is of huge pages.
pub const BLOCKS: [(&str, u64, u64); 4] = [
    ("pc.ram", 1 << 28, 4096),
    ("/objects/huge", 1 << 22, 2 << 20),
    ("vga.vram", 1 << 24, 4096),
    ("/rom@etc/acpi/tables", 1 << 21, 4096),
];

const MEMORY_ID: u32 = 2;

/// A channel, and what is to be found in it.
#[derive(Debug, Clone)]
pub struct Stream {
    version: Version,
    with: With,
    pub bytes: Vec<u8>,
    pub found: Vec<Found>,
    block: Option<u8>,
}

impl Stream {
    /// With all that comes before the first page.
    pub fn begun(version: Version, with: With) -> Self {
        let mut stream = Self {
            version,
            with,
            bytes: Vec::new(),
            found: Vec::new(),
            block: None,
        };
        stream.put(b"QEVM\0\0\0\x03");
        stream.configuration();
        stream.command(1, &[]);
        stream.command(2, &[0, 0, 0, 1]);
        let advice = [0x20_1000_u64.to_be_bytes(), 4096_u64.to_be_bytes()].concat();
        stream.command(3, if with.postcopy { &advice } else { &[] });
        stream.start();
        stream
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn word(&mut self, word: u64) {
        self.put(&word.to_be_bytes());
    }

    fn number(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    pub fn name(&mut self, name: &str) {
        self.put(&[u8::try_from(name.len()).unwrap()]);
        self.put(name.as_bytes());
    }

    fn configuration(&mut self) {
        let machine = "pc-i440fx-7.2";
        self.put(&[7]);
        self.number(u32::try_from(machine.len()).unwrap());
        self.put(machine.as_bytes());
        if self.with.ignore_shared {
            self.subsection("configuration/capabilities");
            self.number(1);
            self.name("x-ignore-shared");
        }
        if self.with.uuid {
            self.subsection("configuration/uuid");
            self.put(&[0x7e; 16]);
        }
    }

    pub fn subsection(&mut self, name: &str) {
        self.put(&[5]);
        self.name(name);
        self.number(1);
    }

    pub fn command(&mut self, command: u16, with: &[u8]) {
        self.put(&[8]);
        self.put(&command.to_be_bytes());
        self.put(&u16::try_from(with.len()).unwrap().to_be_bytes());
        self.put(with);
    }

    /// How a section of something begins.
    pub fn section(&mut self, kind: u8, id: u32, name: &str, version: u32) {
        self.put(&[kind]);
        self.number(id);
        self.name(name);
        self.number(0);
        self.number(version);
    }

    fn start(&mut self) {
        self.section(1, MEMORY_ID, "ram", 4);
        let all: u64 = BLOCKS.iter().map(|(_, bytes, _)| bytes).sum();
        self.word(all | 4);
        for (name, bytes, page) in BLOCKS {
            self.name(name);
            self.word(bytes);
            if self.with.postcopy && page != 4096 {
                self.word(page);
            }
            if self.with.ignore_shared {
                self.word(if name == "pc.ram" { 0 } else { 0xfd00_0000 });
            }
        }
        self.round_ended();
    }

    /// How a section of memory ends.
    fn round_ended(&mut self) {
        if self.with.multifd && self.version != Version::V7_2 {
            self.word(0x200);
        }
        self.word(0x10);
        self.footer(MEMORY_ID);
    }

    pub fn footer(&mut self, id: u32) {
        self.put(&[0x7e]);
        self.number(id);
    }

    /// A section of memory.
    pub fn part(&mut self, words: &[Word]) {
        self.put(&[2]);
        self.number(MEMORY_ID);
        words.iter().for_each(|word| self.page(*word));
        self.round_ended();
    }

    /// The last one.
    pub fn end(&mut self, words: &[Word]) {
        if self.version == Version::V10_0 {
            self.command(11, &[]);
        }
        self.put(&[3]);
        self.number(MEMORY_ID);
        words.iter().for_each(|word| self.page(*word));
        self.round_ended();
    }

    fn page(&mut self, word: Word) {
        let (Word::Page(number, at) | Word::Zero(number, at)) = word;
        let flag = if matches!(word, Word::Page(..)) { 8 } else { 2 };
        let (name, ..) = BLOCKS[usize::from(number)];
        let offset = u64::from(at) * PAGE as u64;
        if self.block == Some(number) {
            self.word(offset | flag | 0x20);
        } else {
            self.word(offset | flag);
            self.name(name);
            self.block = Some(number);
        }
        let block = Block::named(name.as_bytes());
        if flag == 2 {
            self.put(&[0]);
            self.found.push(Found::Filled { block, offset });
        } else {
            let begins = self.bytes.len() as u64;
            self.put(&page_of(number, at));
            self.found.push(Found::Page(Page {
                begins,
                block,
                offset,
            }));
        }
    }

    /// The guest goes on at the destination: what of it is to be forgotten there, and its devices.
    pub fn postcopy_begins(&mut self) {
        let mut discard = vec![0, 6];
        discard.extend_from_slice(b"pc.ram\0");
        discard.extend([0x11; 32]);
        self.command(6, &discard);
        self.command(2, &[0, 0, 0, 2]);
        let mut package = Self {
            bytes: Vec::new(),
            ..self.clone()
        };
        package.command(4, &[]);
        package.devices();
        package.command(2, &[0, 0, 0, 3]);
        package.command(5, &[]);
        self.command(
            7,
            &u32::try_from(package.bytes.len()).unwrap().to_be_bytes(),
        );
        self.put(&package.bytes);
        if self.version == Version::V10_0 {
            self.command(2, &[0, 0, 0, 4]);
        }
    }

    /// Devices, and all that follows them.
    pub fn devices(&mut self) {
        self.section(4, 0, "timer", 2);
        self.put(&[0x02, 0, 0, 0, MEMORY_ID as u8, 8, 7, 0x7e].repeat(20));
        self.footer(0);
    }

    pub fn ends(&mut self) {
        self.put(&[0]);
    }
}

/// Something that looks like much else.
pub fn page_of(block: u8, at: u16) -> Vec<u8> {
    let seed = usize::from(at) * 4 + usize::from(block);
    let bytes = (0..PAGE).map(|n| [0x7e, 0, 2, 8, 0x10][(n * (seed + 3) / 7) % 5]);
    bytes.collect()
}

/// What is found in these pieces, one after the other.
pub fn fed<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> (Channel, Vec<Found>) {
    fed_with(PAGE as u32, pieces)
}

/// The same, of a guest with pages of that size.
pub fn fed_with<'b>(
    page_bytes: u32,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Channel, Vec<Found>) {
    let (mut channel, mut found) = (Channel::new(page_bytes), Vec::new());
    for piece in pieces {
        channel.feed(piece, &mut |what| found.push(what));
    }
    (channel, found)
}

/// As [`fed`], with nothing shown that may be skipped.
pub fn glanced<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> (Channel, Vec<Found>) {
    glanced_with(PAGE as u32, pieces)
}

/// The same, of a guest with pages of that size.
pub fn glanced_with<'b>(
    page_bytes: u32,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Channel, Vec<Found>) {
    let (mut channel, mut found) = (Channel::new(page_bytes), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let next = channel.next();
            let most = match next {
                Next::Skip(count) => usize::try_from(count).unwrap_or(usize::MAX),
                Next::Show(count) => count,
            };
            assert!(most > 0);
            let (now, rest) = piece.split_at(most.min(piece.len()));
            match next {
                Next::Skip(_) => channel.skip(now.len() as u64),
                Next::Show(_) => channel.feed(now, &mut |what| found.push(what)),
            }
            piece = rest;
        }
    }
    (channel, found)
}

/// Cut at these places.
pub fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2)
        .map(|ends| &bytes[ends[0]..ends[1]])
        .collect()
}
