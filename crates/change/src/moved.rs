//! Settings that something else has changed.

use drover_tune::Step;

use crate::hands::Hands;
use crate::step::{ends, is, named};

/// A setting that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {found}, and not {expected:?}")]
pub struct Moved {
    /// What.
    pub setting: String,
    /// What was expected.
    pub expected: String,
    /// What is there, or why that is not known.
    pub found: String,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something changed what is to be taken back.
    #[error("{}", listed(.0))]
    Moved(Vec<Moved>),
    /// There is nothing to be undone.
    #[error("nothing of it is there to be undone")]
    NotThere,
    /// That it is to be undone is not on the disk.
    #[error("the journal cannot be written, so that nothing is undone")]
    Journal(#[source] std::io::Error),
}

pub(crate) fn listed(moved: &[Moved]) -> String {
    let all: Vec<String> = moved.iter().map(ToString::to_string).collect();
    all.join("; ")
}

/// Which of these steps' settings are not what was there when the plan was made.
pub async fn moved<'a>(hands: &impl Hands, steps: impl Iterator<Item = &'a Step>) -> Vec<Moved> {
    let mut moved = Vec::new();
    for step in steps {
        let (from, _) = ends(step);
        let found = hands.current(step).await;
        if !matches!(&found, Ok(found) if is(step, found, from)) {
            moved.push(Moved {
                setting: named(step),
                expected: from.to_owned(),
                found: said(found),
            });
        }
    }
    moved
}

/// A value, or why there is none.
pub(crate) fn said(found: Result<String, String>) -> String {
    found.map_or_else(
        |why| format!("not known, because {why}"),
        |found| format!("{found:?}"),
    )
}
