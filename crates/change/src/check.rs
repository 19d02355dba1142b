//! Whether a plan can be carried out at all, wherever it comes from.

use drover_tune::{Disruption, MTU_LEAST, Step, disruption, settable};

use crate::limits::{STEPS, WORD_BYTES};
use crate::plan::{LastingFile, Plan, Planned};
use crate::step::{ends, named};
use crate::value::check_value;

/// Why a plan is not carried out on any host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It says nothing.
    #[error("the plan has no changes")]
    Empty,
    /// It says too much.
    #[error("the plan has {steps} steps; {STEPS} are taken at most")]
    Long {
        /// How many.
        steps: usize,
    },
    /// The same thing is set twice.
    #[error("the plan sets {setting} twice")]
    Twice {
        /// What.
        setting: String,
    },
    /// A change that is not made while the host runs, or not by it.
    #[error(
        "the change of {rule} is {disruption}: only those that are safe or may bounce a link are made"
    )]
    Disruption {
        /// The rule.
        rule: String,
        /// What it does.
        disruption: Disruption,
    },
    /// A change that does more to others than it says.
    #[error("the change of {rule} says that it is {said}, and setting {setting} {least}")]
    Understated {
        /// The rule.
        rule: String,
        /// What it says.
        said: Disruption,
        /// What it sets.
        setting: String,
        /// What that does.
        least: Disruption,
    },
    /// Something that no rule sets.
    #[error("the change of {rule} sets {setting}, which no rule sets")]
    Setting {
        /// The rule.
        rule: String,
        /// What it sets.
        setting: String,
    },
    /// A value that no rule wants.
    #[error("the plan sets {setting} to {to:?}; {expected} is what it can be set to")]
    Value {
        /// What it sets.
        setting: String,
        /// What it is to be.
        to: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Packets so small that the kernel takes addresses away, which no undo gives back.
    #[error(
        "the plan sets {setting} to {to}: below {MTU_LEAST} the kernel takes the interface's addresses away"
    )]
    SmallMtu {
        /// The interface.
        setting: String,
        /// What it is to be.
        to: String,
    },
    /// A word that no setting has.
    #[error(
        "a name or value of {of} is longer than {WORD_BYTES} bytes, or has signs that do not belong there"
    )]
    Word {
        /// The rule, or the plan.
        of: String,
    },
}

impl Plan {
    /// Whether it can be carried out at all, wherever it comes from.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), PlanError> {
        let steps: Vec<&Step> = self.steps().collect();
        if steps.is_empty() {
            return Err(PlanError::Empty);
        }
        if steps.len() > STEPS {
            return Err(PlanError::Long { steps: steps.len() });
        }
        if is_strange(&self.boot) || is_strange(&self.version) {
            let of = "the plan".to_owned();
            return Err(PlanError::Word { of });
        }
        for change in &self.changes {
            check_change(change)?;
        }
        for file in self.lasting.iter().flatten() {
            check_file(file)?;
        }
        // By name, so that it does not take the square of the steps.
        let mut names: Vec<String> = steps.into_iter().map(named).collect();
        names.sort_unstable();
        match names.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(PlanError::Twice {
                setting: two[0].clone(),
            }),
            None => Ok(()),
        }
    }
}

fn check_change(change: &Planned) -> Result<(), PlanError> {
    let rule = &change.rule;
    let nic = change.nic.as_deref().unwrap_or_default();
    if [rule, &change.why, nic].into_iter().any(is_strange) {
        return Err(PlanError::Word { of: rule.clone() });
    }
    if change.disruption > Disruption::BouncesLink {
        return Err(PlanError::Disruption {
            rule: rule.clone(),
            disruption: change.disruption,
        });
    }
    change.steps.iter().try_for_each(|step| {
        let (from, to) = ends(step);
        if [from, to, &named(step)].into_iter().any(is_strange) {
            return Err(PlanError::Word { of: rule.clone() });
        }
        if !settable(step) {
            let (rule, setting) = (rule.clone(), named(step));
            return Err(PlanError::Setting { rule, setting });
        }
        if change.disruption < disruption(step) {
            return Err(PlanError::Understated {
                rule: rule.clone(),
                said: change.disruption,
                setting: named(step),
                least: disruption(step),
            });
        }
        check_value(step)
    })
}

/// What it would write is looked at by whoever knows the host.
fn check_file(file: &LastingFile) -> Result<(), PlanError> {
    let words = [&file.by, &file.file, &file.was].into_iter();
    let mut words = words.chain(&file.goes).chain(&file.comes);
    if words.any(|word| is_strange(word)) {
        let of = "a file by which it lasts".to_owned();
        return Err(PlanError::Word { of });
    }
    Ok(())
}

/// What would do something to whoever shows it.
fn is_strange(word: &str) -> bool {
    word.len() > WORD_BYTES || word.chars().any(char::is_control)
}
