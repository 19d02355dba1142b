//! Guests: what of their definitions costs them, or keeps them from moving.

mod cards;
pub mod memory;
mod models;
pub mod mtu;
pub mod network;
pub mod processor;

use crate::arguments::Value;
use crate::facts::{Argument, Guest, Host};
use crate::finding::{Because, Line};

pub use cards::Net;

/// A guest, the host that it is on, and the others.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'h> {
    pub guest: &'h Guest,
    pub host: &'h Host,
    pub others: &'h [&'h Host],
}

impl Placed<'_> {
    /// The others.
    ///
    /// # Errors
    /// There are none that were looked at.
    fn others(&self) -> Result<&[&Host], Because> {
        if self.others.is_empty() {
            return Err("no other host was looked at: `drover doctor --all` does".into());
        }
        Ok(self.others)
    }
}

/// An argument as it stands in a definition's `args`.
fn written(option: &str, value: Option<&str>) -> String {
    let quoted = |text: &str| {
        let mut quoted = String::from("\"");
        for letter in text.chars() {
            match letter {
                '"' | '\\' => quoted.extend(['\\', letter]),
                letter if letter.is_control() => {
                    quoted.push_str(&format!("\\u{:04X}", u32::from(letter)))
                }
                letter => quoted.push(letter),
            }
        }
        quoted + "\""
    };
    match value {
        Some(value) => format!("{}, {}", quoted(option), quoted(value)),
        None => quoted(option),
    }
}

/// Another value in the place of an argument's.
fn changed(argument: &Argument, to: &Value) -> Line {
    Line {
        from: Some(written(&argument.option, argument.value.as_deref())),
        to: Some(written(&argument.option, Some(&to.to_string()))),
    }
}

/// A new argument.
fn added(option: &str, value: &str) -> Line {
    Line {
        from: None,
        to: Some(written(option, Some(value))),
    }
}

/// An argument that goes.
fn removed(argument: &Argument) -> Line {
    Line {
        from: Some(written(&argument.option, argument.value.as_deref())),
        to: None,
    }
}

/// Where the lines are changed, and when that counts.
fn in_definition(guest: &Guest) -> String {
    format!(
        "change {} as below: it counts as of the guest's next start",
        guest.file
    )
}

/// Words as a list, the first of them if they are many.
fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    /// As many as tell what it is about.
    const SHOWN: usize = 8;
    let words: Vec<&str> = words.into_iter().collect();
    let shown = words[..words.len().min(SHOWN)].join(", ");
    match words.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
