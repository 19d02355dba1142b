//! Settings that something else has changed.

use drover_tune::Step;
use drover_tune::lasting::{Place, Rewrite};

use crate::hands::Hands;
use crate::step::{ends, is, named};

/// Something that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Moved {
    /// A setting.
    #[error("{setting} is {found}, and not {expected:?}")]
    Setting {
        /// What.
        setting: String,
        /// What was expected.
        expected: String,
        /// What is there, or why that is not known.
        found: String,
    },
    /// A file.
    #[error("{path} was changed since: {found}")]
    File {
        /// Which.
        path: String,
        /// In which way, or why that is not known.
        found: String,
    },
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
            moved.push(Moved::Setting {
                setting: named(step),
                expected: from.to_owned(),
                found: said(found),
            });
        }
    }
    moved
}

/// Which of these files are not what was there when the plan was made.
pub(crate) async fn moved_files(hands: &impl Hands, files: &[Rewrite]) -> Vec<Moved> {
    let mut moved = Vec::new();
    for file in files {
        let found = otherwise(hands, file, |place| file.is_before(place)).await;
        moved.extend(found.map(|found| {
            let path = file.path.clone();
            Moved::File { path, found }
        }));
    }
    moved
}

/// In which way a file is not as it has to be, or not what its reader goes by; `None` of one that is both.
pub(crate) async fn otherwise(
    hands: &impl Hands,
    file: &Rewrite,
    is_so: impl Fn(&Place) -> bool,
) -> Option<String> {
    match hands.place(&file.path).await {
        Ok(place) if is_so(&place) => hands.goes_by(file).await.err(),
        Ok(place) => Some(file.differs(&place)),
        Err(why) => Some(why),
    }
}

/// A value, or why there is none.
pub(crate) fn said(found: Result<String, String>) -> String {
    found.map_or_else(
        |why| format!("not known, because {why}"),
        |found| format!("{found:?}"),
    )
}
