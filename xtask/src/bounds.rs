//! Every wait has a bound with a reason: a duration is a documented constant, best in a
//! `limits.rs`, and never a bare number where it is used.

use crate::purity::before_tests;
use crate::report::Report;
use crate::tree::File;

const MADE_OF_NUMBERS: [&str; 4] = [
    "Duration::from_secs(",
    "Duration::from_millis(",
    "Duration::from_micros(",
    "Duration::from_nanos(",
];

/// Every source of a library or program, its tests left out.
pub fn check(files: &[File], report: &mut Report) {
    let is_source = |file: &&File| {
        (file.path.starts_with("crates/") || file.path.starts_with("bin/"))
            && file.path.contains("/src/")
            && file.is(".rs")
            && !file.is("/limits.rs")
            && !file.is("/tests.rs")
    };
    for file in files.iter().filter(is_source) {
        for (number, line) in before_tests(&file.text).lines().enumerate() {
            if is_bare_duration(line) {
                let path = &file.path;
                report.error(format!(
                    "{path}:{}: a duration as a bare number: make it a constant in limits.rs and \
                     say why it is so long",
                    number + 1
                ));
            }
        }
    }
}

fn is_bare_duration(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let made_of_number = MADE_OF_NUMBERS.iter().any(|maker| {
        code.split_once(maker)
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    made_of_number && !code.contains("const ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_as_a_bare_number_is_an_error_and_a_constant_is_not() {
        assert!(is_bare_duration("sleep(Duration::from_secs(5));"));
        assert!(!is_bare_duration(
            "const LONG: Duration = Duration::from_secs(5);"
        ));
        assert!(!is_bare_duration("Duration::from_secs(seconds)"));
    }
}
