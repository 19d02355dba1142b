//! A plan as a file for people: a diff in its comments, and below each what is carried out.

use std::fmt::Write as _;

use drover_tune::{Disruption, NicSetting, Step};
use drover_types::{HostName, in_short};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::check::PlanError;
use crate::limits::PLAN_BYTES;
use crate::plan::{LastingFile, Plan, Planned};
use crate::step::{ends, named};

/// Why a file is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is not written as plans are.
    #[error("it is no plan of changes: {0}")]
    Text(String),
    /// It says too much.
    #[error("it has {bytes} bytes; a plan has {PLAN_BYTES} at most")]
    Long {
        /// How many.
        bytes: usize,
    },
    /// A step that is not told in full, or twice.
    #[error(
        "step {step} of the change of {rule} names no file and no setting of an interface, or more than one"
    )]
    Step {
        /// The rule.
        rule: String,
        /// Which, counted from 1.
        step: usize,
    },
    /// It is written as plans are, and no host carries it out.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    host: HostName,
    boot: String,
    made_at: Timestamp,
    version: String,
    #[serde(default, skip_serializing)]
    changes: Vec<ChangeText>,
    #[serde(default, skip_serializing)]
    lasting: Option<LastingText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LastingText {
    #[serde(default)]
    files: Vec<LastingFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeText {
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<String>,
    disruption: Disruption,
    why: String,
    #[serde(default, skip_serializing)]
    steps: Vec<StepText>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<NicSetting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feature: Option<String>,
    from: String,
    to: String,
}

/// The file's text.
///
/// # Errors
/// Never for a plan that [`Plan::check`] takes.
pub fn write(plan: &Plan) -> Result<String, toml::ser::Error> {
    let mut text = String::from(
        "# What `drover doctor apply` does with this file. Whole changes may be taken out of it; what is done is what stands\n\
         # without a hash, and only while every setting is as it says.\n",
    );
    let seconds = plan.within().as_secs();
    let _ = writeln!(
        text,
        "# If not all of it is set within {seconds} s, or less where changes are taken out, all is taken back.\n"
    );
    text += &toml::to_string(&FileText {
        host: plan.host.clone(),
        boot: plan.boot.clone(),
        made_at: plan.made_at,
        version: plan.version.clone(),
        changes: Vec::new(),
        lasting: None,
    })?;
    for change in &plan.changes {
        text += "\n[[changes]]\n";
        text += &toml::to_string(&ChangeText {
            rule: change.rule.clone(),
            nic: change.nic.clone(),
            disruption: change.disruption,
            why: change.why.clone(),
            steps: Vec::new(),
        })?;
        for step in &change.steps {
            text += &diff(step);
            text += "[[changes.steps]]\n";
            text += &toml::to_string(&told(step))?;
        }
    }
    if let Some(files) = &plan.lasting {
        text += &lasting(files)?;
    }
    Ok(text)
}

/// What is written that it lasts.
fn lasting(files: &[LastingFile]) -> Result<String, toml::ser::Error> {
    let mut text = String::from(
        "\n# What makes it last beyond a restart. `drover doctor apply --persist` writes it, once other hosts are reached as before, and\n\
         # `apply` alone does not. Lines of changes that are taken out have to be taken out as well.\n[lasting]\n",
    );
    for file in files {
        let path = clean(&file.file);
        let is_new = if file.was == LastingFile::NONE {
            ", which is new"
        } else {
            ""
        };
        let _ = writeln!(text, "\n# {path}{is_new}");
        for (sign, lines) in [('-', &file.goes), ('+', &file.comes)] {
            for line in lines {
                let _ = writeln!(text, "# {sign} {}", clean(line));
            }
        }
        text += "[[lasting.files]]\n";
        text += &toml::to_string_pretty(file)?;
    }
    Ok(text)
}

/// A value with a line break would end the comment.
fn clean(word: &str) -> String {
    word.replace(char::is_control, " ")
}

/// A step's lines of a diff, and the command that does it.
fn diff(step: &Step) -> String {
    let (from, to) = ends(step);
    let setting = clean(&named(step));
    let mut lines = String::from("\n");
    let _ = writeln!(lines, "# - {setting} = {}", clean(from));
    let _ = writeln!(lines, "# + {setting} = {}", clean(to));
    let _ = writeln!(lines, "#   {}", clean(&step.to_string()));
    lines
}

fn told(step: &Step) -> StepText {
    let (from, to) = ends(step);
    let ends = StepText {
        from: from.to_owned(),
        to: to.to_owned(),
        ..StepText::default()
    };
    match step {
        Step::File { path, .. } => StepText {
            file: Some(path.clone()),
            ..ends
        },
        Step::Nic { nic, what, .. } => {
            let (setting, feature) = match what {
                NicSetting::Feature(name) => (None, Some(name.clone())),
                other => (Some(other.clone()), None),
            };
            StepText {
                nic: Some(nic.clone()),
                setting,
                feature,
                ..ends
            }
        }
    }
}

/// The plan of a file. Comments do not matter.
///
/// # Errors
/// It is none.
pub fn read(text: &str) -> Result<Plan, FileError> {
    let bytes = text.len();
    if bytes as u64 > PLAN_BYTES {
        return Err(FileError::Long { bytes });
    }
    let file: FileText = toml::from_str(text).map_err(|error| FileError::Text(in_short(error)))?;
    let changes = file.changes.into_iter().map(planned);
    let plan = Plan {
        host: file.host,
        boot: file.boot,
        made_at: file.made_at,
        version: file.version,
        changes: changes.collect::<Result<_, _>>()?,
        lasting: file.lasting.map(|lasting| lasting.files),
    };
    plan.check()?;
    Ok(plan)
}

fn planned(change: ChangeText) -> Result<Planned, FileError> {
    let rule = change.rule;
    let steps = (1..).zip(change.steps).map(|(number, step)| {
        let rule = rule.clone();
        read_step(step).ok_or(FileError::Step { rule, step: number })
    });
    let steps = steps.collect::<Result<_, _>>()?;
    Ok(Planned {
        rule,
        nic: change.nic,
        disruption: change.disruption,
        why: change.why,
        steps,
    })
}

fn read_step(step: StepText) -> Option<Step> {
    let StepText { from, to, .. } = step;
    let nic_step = |nic, what| Step::Nic {
        nic,
        what,
        from: from.clone(),
        to: to.clone(),
    };
    match (step.file, step.nic, step.setting, step.feature) {
        (Some(path), None, None, None) => Some(Step::File { path, from, to }),
        (None, Some(nic), Some(what), None) => Some(nic_step(nic, what)),
        (None, Some(nic), None, Some(name)) => Some(nic_step(nic, NicSetting::Feature(name))),
        _ => None,
    }
}
