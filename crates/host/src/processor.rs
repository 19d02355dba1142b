//! What a host's processors are and can do.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::HostError;
use crate::files::read;
use crate::limits::FILE;

const PATH: &str = "proc/cpuinfo";

/// A host's kind of processor (`/proc/cpuinfo`, proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    /// `model name`, or what stands for it on machines that have none.
    pub model: String,
    /// What all of them can do (`flags` on x86, `Features` on Arm), by the kernel's names.
    pub features: BTreeSet<String>,
}

/// Reads the kind of processor of the host whose root directory is `root`. A feature that only some of
/// them have is left out: a guest runs on any of them.
///
/// # Errors
///
/// [`HostError::Read`] and [`HostError::Form`] where `/proc` is not mounted, or tells of no processor.
pub fn processor(root: &Path) -> Result<Processor, HostError> {
    let text = read(root, PATH)?;
    let text = whole(&text);
    let values = |names: [&'static str; 2]| {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        let named = pairs.filter(move |(name, _)| names.contains(&name.trim_end()));
        named.map(|(_, value)| value.trim())
    };
    let sets = values(["flags", "Features"]).map(|list| {
        let words = list.split_ascii_whitespace();
        words.map(str::to_owned).collect::<BTreeSet<String>>()
    });
    let features = sets.reduce(|common, set| common.intersection(&set).cloned().collect());
    let model = values(["model name", "CPU part"]).next();
    match (model, features) {
        (Some(model), Some(features)) => Ok(Processor {
            model: model.to_owned(),
            features,
        }),
        _ => Err(HostError::Form {
            path: root.join(PATH),
            what: "model and features",
        }),
    }
}

/// Of a file that was too long to be read as a whole, the processors that were: some 40 of them.
fn whole(text: &str) -> &str {
    let cut = text.len() as u64 >= FILE;
    let end = text.rfind("\n\n").filter(|_| cut);
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Processor, HostError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join(PATH), text).unwrap();
        processor(root.path())
    }

    #[test]
    fn processors_are_told_by_their_model_and_what_all_of_them_can_do() {
        let text = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7713\nflags\t\t: fpu sse avx512f\n\n\
                    processor\t: 1\nmodel name\t: AMD EPYC 7713\nflags\t\t: fpu sse aes\n";
        let read = of(text).unwrap();
        assert_eq!(read.model, "AMD EPYC 7713");
        assert_eq!(read.features, ["fpu", "sse"].map(str::to_owned).into());
    }

    #[test]
    fn of_more_processors_than_are_read_the_last_one_takes_no_feature_away() {
        let one = format!("model name\t: x\nflags\t\t: {} last\n\n", "f ".repeat(600));
        let read = of(&one.repeat(200)).unwrap();
        assert_eq!(read.features, ["f", "last"].map(str::to_owned).into());
    }

    #[test]
    fn a_processor_without_a_name_is_told_by_its_part() {
        let text = "processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n";
        let read = of(text).unwrap();
        assert_eq!((read.model.as_str(), read.features.len()), ("0xd0c", 2));
    }

    #[test]
    fn a_file_that_tells_of_no_processor_is_an_error_that_names_it() {
        for bad in ["", "flags: fpu", "model name: x", "model name\nflags\n"] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains("proc/cpuinfo"), "{error}");
        }
    }

    #[test]
    fn this_machine_has_a_processor() {
        assert!(!processor(Path::new("/")).unwrap().features.is_empty());
    }
}
