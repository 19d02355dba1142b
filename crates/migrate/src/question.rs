//! Questions to the other agent have numbers.

/// The number of a question, within one life of an agent. An answer that may have become untrue since
/// counts for its own question only: a slow one is not taken for that of a later question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Question(u32);

impl Question {
    /// The one after it. Of 2^32 questions, one a second, two are never open at once by one number.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
