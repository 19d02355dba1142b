//! JSON documents as applications keep them: orders, customers and tickets with nested objects,
//! names, times, ids and text, each following from a seed, its number and how often it changed.
//!
//! Their text is prose of real files. They are written as Python's `json.dumps` with the
//! shortest separators writes them, so that what a program parsed can be compared byte by byte.

use std::fmt::Write as _;

use crate::random::Random;

mod words;

use words::{CITIES, EVENTS, FIRST, LAST, PRODUCTS, STATUS, STREETS, TAGS};

/// Seconds from 1970 to the first day of which documents tell, 2021-01-01.
const FIRST_DAY: u64 = 1_609_459_200;

/// Days of which they tell: five years.
const DAYS: u64 = 1826;

/// Events that a document remembers of its latest changes.
const HISTORY: u64 = 4;

/// Prose shorter than this is not worth cutting from.
const PROSE_LEAST: usize = 64 << 10;

/// Where documents come from.
#[derive(Debug, Clone)]
pub struct Author {
    seed: u64,
    prose: Vec<u8>,
}

impl Author {
    /// `prose` is text to quote from; where there is little, generated text is quoted.
    pub fn new(seed: u64, mut prose: Vec<u8>) -> Self {
        if prose.len() < PROSE_LEAST {
            prose = crate::content::text_pool(seed);
        }
        Self { seed, prose }
    }

    /// Writes document `number` as it is after so many changes behind what `text` has.
    pub fn write(&self, number: u64, changes: u64, text: &mut String) {
        let mut draft = Draft {
            prose: &self.prose,
            random: Random::new(self.seed, [number, 0x646f_6373]),
            text,
        };
        // What changes comes last, from its own numbers: the rest is drawn alike each time.
        match draft.random.below(10) {
            0..=5 => draft.order(number),
            6..=7 => draft.customer(number),
            _ => draft.ticket(number),
        }
        draft.random = Random::new(self.seed, [number, changes]);
        draft.tail(changes);
    }
}

struct Draft<'a> {
    prose: &'a [u8],
    random: Random,
    text: &'a mut String,
}

impl Draft<'_> {
    fn put(&mut self, part: &str) {
        self.text.push_str(part);
    }

    fn number(&mut self, key: &str, value: u64) {
        let _ = write!(self.text, "\"{key}\":{value},");
    }

    fn word(&mut self, key: &str, value: &str) {
        let _ = write!(self.text, "\"{key}\":\"{value}\",");
    }

    fn one<'w>(&mut self, of: &[&'w str]) -> &'w str {
        of[self.random.below(of.len())]
    }

    /// A price: two decimals, as a JSON number.
    fn price(&mut self, key: &str, below: usize) {
        let cents = self.random.below(below * 100) as f64;
        let _ = write!(self.text, "\"{key}\":{:?},", cents / 100.0);
    }

    fn id(&mut self, key: &str) {
        let (high, low) = (self.random.next(), self.random.next());
        let _ = write!(
            self.text,
            "\"{key}\":\"{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}\",",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 52,
            low & 0xffff_ffff_ffff
        );
    }

    fn time(&mut self, key: &str) {
        let day = self.random.below(usize::try_from(DAYS).unwrap_or(1)) as u64;
        let millis = self.random.next() % 86_400_000;
        let (year, month, date) = civil(FIRST_DAY / 86_400 + day);
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let _ = write!(
            self.text,
            "\"{key}\":\"{year}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{millis:03}Z\",",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        );
    }

    /// Some prose, as a JSON string.
    fn prose(&mut self, key: &str, least: usize, more: usize) {
        let length = least + self.random.below(more);
        let start = self
            .random
            .below(self.prose.len().saturating_sub(length + 64));
        let from = &self.prose[start..];
        let word = from.iter().take(64).position(|byte| *byte == b' ');
        let piece = &from[word.map_or(0, |at| at + 1)..];
        self.put("\"");
        self.put(key);
        self.put("\":\"");
        for byte in &piece[..length.min(piece.len())] {
            match byte {
                b'\n' => self.put("\\n"),
                b'"' | b'\\' => self.text.push('\''),
                b' '..=b'~' => self.text.push(char::from(*byte)),
                _ => self.text.push(' '),
            }
        }
        self.put("\",");
    }

    fn tags(&mut self) {
        self.put("\"tags\":[");
        for at in 0..self.random.below(5) {
            let tag = self.one(&TAGS);
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(self.text, "{comma}\"{tag}\"");
        }
        self.put("],");
    }

    fn person(&mut self, key: &str) {
        let (first, last) = (self.one(&FIRST), self.one(&LAST));
        let number = self.random.below(1_000_000);
        let _ = write!(
            self.text,
            "\"{key}\":{{\"id\":{number},\"name\":\"{first} {last}\",\
             \"email\":\"{first}.{last}{}@example.org\",\"phone\":\"+{} {:07}\",",
            number % 97,
            30 + number % 60,
            self.random.next() % 10_000_000
        );
        self.address("address");
        self.close("}");
    }

    fn address(&mut self, key: &str) {
        let (street, city) = (self.one(&STREETS), self.one(&CITIES));
        let (house, code) = (self.random.below(240) + 1, self.random.below(90_000));
        let _ = write!(
            self.text,
            "\"{key}\":{{\"street\":\"{street} {house}\",\"postcode\":\"{}\",\"city\":\"{city}\"}},",
            code + 10_000
        );
    }

    /// Ends an object or array: the last comma becomes the bracket, and one follows.
    fn close(&mut self, bracket: &str) {
        if self.text.ends_with(',') {
            self.text.pop();
        }
        self.put(bracket);
        self.put(",");
    }

    fn head(&mut self, kind: &str, number: u64) {
        self.put("{");
        self.id("id");
        self.word("type", kind);
        self.number("number", number);
        self.time("created_at");
    }

    fn order(&mut self, number: u64) {
        self.head("order", number);
        self.person("customer");
        self.put("\"items\":[");
        for _ in 0..1 + self.random.below(4) * self.random.below(4) {
            let product = self.one(&PRODUCTS);
            let (count, sku) = (self.random.below(5) + 1, self.random.next() % 1_000_000);
            let _ = write!(
                self.text,
                "{{\"sku\":\"{}-{sku:06}\",\"title\":\"{product}\",\"count\":{count},",
                &product[..2]
            );
            self.price("price", 400);
            self.price("weight_kg", 20);
            self.put("\"gift\":false,\"discount\":null,");
            self.close("}");
        }
        self.close("]");
        self.price("total", 2000);
        self.word("currency", "EUR");
        self.tags();
        self.prose("note", 20, 300);
    }

    fn customer(&mut self, number: u64) {
        self.head("customer", number);
        self.person("contact");
        self.address("billing");
        self.put("\"preferences\":{\"newsletter\":true,\"language\":\"en\",\"theme\":null,");
        let limit = self.random.below(50) as u64 * 100;
        self.number("credit_limit", limit);
        self.close("}");
        self.put("\"sessions\":[");
        for _ in 0..self.random.below(12) {
            self.put("{");
            self.id("token");
            self.time("seen_at");
            let address = self.random.next();
            let _ = write!(
                self.text,
                "\"ip\":\"10.{}.{}.{}\",",
                address & 0xff,
                address >> 8 & 0xff,
                address >> 16 & 0xff
            );
            self.close("}");
        }
        self.close("]");
        self.tags();
        self.prose("about", 100, 900);
    }

    fn ticket(&mut self, number: u64) {
        self.head("ticket", number);
        self.person("reporter");
        self.prose("subject", 20, 60);
        self.put("\"messages\":[");
        for _ in 0..1 + self.random.below(3) * self.random.below(4) {
            self.put("{");
            self.time("at");
            let first = self.one(&FIRST);
            self.word("from", first);
            self.prose("body", 60, 1200);
            self.close("}");
        }
        self.close("]");
        self.tags();
    }

    fn tail(&mut self, changes: u64) {
        self.number("revision", changes);
        self.time("updated_at");
        let status = self.one(&STATUS);
        self.word("status", status);
        self.put("\"history\":[");
        for _ in 0..changes.min(HISTORY) {
            self.put("{");
            self.time("at");
            let (event, who) = (self.one(&EVENTS), self.one(&FIRST));
            self.word("event", event);
            self.word("by", who);
            self.close("}");
        }
        self.close("]");
        self.close("}");
        self.text.pop();
    }
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(number: u64, changes: u64) -> String {
        let author = Author::new(7, Vec::new());
        let mut text = String::new();
        author.write(number, changes, &mut text);
        text
    }

    #[test]
    fn the_same_number_and_changes_give_the_same_document() {
        assert_eq!(document(5, 2), document(5, 2));
        assert_ne!(document(5, 2), document(6, 2));
        assert_ne!(document(5, 2), document(5, 3));
    }

    #[test]
    fn a_changed_document_keeps_most_of_what_it_was() {
        let (old, new) = (document(5, 0), document(5, 1));
        let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b);
        assert!(same.count() > old.len() / 2);
    }

    #[test]
    fn documents_are_json_of_different_sizes_that_python_writes_alike() {
        let author = Author::new(7, Vec::new());
        let mut lines = String::new();
        for number in 0..500 {
            author.write(number, number % 7, &mut lines);
            lines.push('\n');
        }
        let sizes: Vec<_> = lines.lines().map(str::len).collect();
        assert!(sizes.iter().min().is_some_and(|least| *least < 900));
        assert!(sizes.iter().max().is_some_and(|most| *most > 4000));
        assert!(lines.lines().all(|line| line.is_ascii()));
        let Ok(mut python) = std::process::Command::new("/usr/bin/python3")
            .args(["-I", "-c", CHECK])
            .stdin(std::process::Stdio::piped())
            .spawn()
        else {
            eprintln!("skipped, because there is no /usr/bin/python3");
            return;
        };
        let mut input = python.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap();
        drop(input);
        assert!(python.wait().unwrap().success());
    }

    const CHECK: &str = "
import json, sys
for line in sys.stdin:
    line = line.rstrip('\\n')
    assert json.dumps(json.loads(line), separators=(',', ':')) == line, line
";

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(FIRST_DAY / 86_400), (2021, 1, 1));
        assert_eq!(civil(FIRST_DAY / 86_400 + 1154), (2024, 2, 29));
    }
}
