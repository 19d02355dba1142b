//! Files by which settings last: written once all is proved, put back with everything else.

use drover_tune::lasting::{End, Rewrite};
use drover_types::in_short;
use tokio::time::sleep;

use super::Runner;
use crate::hands::{Hands, Paths};
use crate::limits::{TAKE_BACK_AGAIN, TAKE_BACK_TRIES};
use crate::moved::{Moved, otherwise};
use crate::record::Record;

impl<H: Hands, P: Paths> Runner<'_, H, P> {
    /// Writes one, if it is still as the plan says.
    pub(super) async fn write_file(&mut self, number: usize) {
        // Standing names no others than there are.
        let Some(file) = self.file(number).cloned() else {
            return self.roll_back(format!("the order has no file {number}"));
        };
        let path = &file.path;
        let found = otherwise(self.hands, &file, |place| file.is_before(place)).await;
        if let Some(found) = found {
            return self.roll_back(format!("{path} was changed when its turn came: {found}"));
        }
        if !self.note(Record::AboutTo { step: number }) {
            return self.roll_back("its journal cannot be written".to_owned());
        }
        if let Err(why) = self.hands.put(&file, End::After).await {
            return self.roll_back(format!("{path} was not written: {why}"));
        }
        if let Err(why) = self.hands.reread(&[&file]).await {
            return self.roll_back(format!("{path} was written, but {why}"));
        }
        let found = otherwise(self.hands, &file, |place| file.is_after(place)).await;
        if let Some(found) = found {
            return self.roll_back(format!("{path} was written, and is another one: {found}"));
        }
        if !self.note(Record::Done { step: number }) {
            self.roll_back("its journal cannot be written".to_owned());
        }
    }

    /// Puts one back that is as it was written, and what is left beside one that is not. Whoever reads it is told at the end, once: settings do
    /// not wait for him.
    pub(super) async fn put_back(&mut self, number: usize, file: &Rewrite) {
        let mut refused = String::new();
        for _ in 0..TAKE_BACK_TRIES {
            match self.hands.place(&file.path).await {
                Ok(place) if file.is_before(&place) || file.is_after(&place) => {
                    match self.hands.put(file, End::Before).await {
                        Ok(()) => {
                            self.note(Record::Undone { step: number });
                            return;
                        }
                        Err(why) => refused = format!("it was not put back: {why}"),
                    }
                }
                Ok(place) => {
                    let found = file.differs(&place);
                    return self.leave_file(number, file, &found).await;
                }
                Err(why) => refused = why,
            }
            sleep(TAKE_BACK_AGAIN).await;
        }
        self.leave_file(number, file, &refused).await;
    }

    /// Has those that were put back be read again. What somebody has changed since is for him to tell of.
    pub(super) async fn reread(&mut self) {
        let mut files = Vec::new();
        let mut why_not = Vec::new();
        for number in self.journal.standing().put_back() {
            let Some(file) = self.file(number) else {
                continue;
            };
            match otherwise(self.hands, file, |place| file.is_before(place)).await {
                None => files.push(file),
                Some(why) => why_not.push(format!("{}: {why}", file.path)),
            }
        }
        why_not.extend(self.hands.reread(&files).await.err());
        self.note(match &why_not[..] {
            [] => Record::Reread,
            why_not => Record::NotReread {
                why: in_short(why_not.join("; ")),
            },
        });
    }

    async fn leave_file(&mut self, number: usize, file: &Rewrite, found: &str) {
        if let Err(error) = self.hands.tidy(&file.path).await {
            tracing::warn!(
                path = file.path,
                error,
                "something may be left beside a file"
            );
        }
        self.leave(number, found);
    }

    /// If a file is neither as it was written nor as it was before, or its reader goes by something else: in which way.
    pub(super) async fn file_not_as_left(&self, file: &Rewrite) -> Option<Moved> {
        let found = otherwise(self.hands, file, |place| {
            file.is_before(place) || file.is_after(place)
        });
        let (path, found) = (file.path.clone(), found.await?);
        Some(Moved::File { path, found })
    }
}
