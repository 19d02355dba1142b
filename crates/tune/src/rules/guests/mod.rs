//! Guests, whoever defines them: what of their definitions costs them, or keeps them from moving.

mod asked;
pub mod memory;
mod models;
pub mod mtu;
pub mod network;
pub mod processor;

use crate::facts::{Guest, Host};
use crate::finding::Because;

pub use asked::Net;
use asked::in_definition;
pub use models::newest;

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

/// Words as a list, the first of them if they are many.
pub fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    /// As many as tell what it is about.
    const SHOWN: usize = 8;
    let words: Vec<&str> = words.into_iter().collect();
    let shown = words[..words.len().min(SHOWN)].join(", ");
    match words.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
