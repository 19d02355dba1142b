//! Pure crates have no clock, no I/O, no global and no async. The table of arrows keeps foreign
//! crates out; this keeps the standard library's own clocks and sockets out of their sources.

use crate::arrows::{Kind, TABLE};
use crate::report::Report;
use crate::tree::File;

/// Text that has no business in a pure crate. `Instant` and `Duration` as values are welcome.
const IMPURE: &[(&str, &str)] = &[
    ("Instant::now", "reads a clock"),
    ("SystemTime::now", "reads a clock"),
    ("Uuid::now_v7", "reads a clock"),
    ("std::fs", "does I/O"),
    ("std::net::Tcp", "does I/O"),
    ("std::net::Udp", "does I/O"),
    ("std::os::unix::net", "does I/O"),
    ("std::process", "starts processes"),
    ("std::env", "reads the environment"),
    ("std::thread", "starts threads"),
    ("println!", "prints"),
    ("async fn", "is async"),
    ("async move", "is async"),
    ("static mut ", "is a global"),
    ("thread_local!", "is a global"),
    ("OnceLock", "is a global"),
    ("LazyLock", "is a global"),
    ("Mutex", "locks"),
];

/// Every source of a pure crate, its tests left out.
pub fn check(files: &[File], report: &mut Report) {
    for (name, kind, _) in TABLE {
        let folder = format!("crates/{name}/src/");
        for file in files
            .iter()
            .filter(|file| file.path.starts_with(&folder) && file.is(".rs"))
        {
            if *kind == Kind::Pure && !is_test_file(&file.path) {
                check_file(name, file, report);
            }
        }
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn check_file(name: &str, file: &File, report: &mut Report) {
    for (number, line) in before_tests(&file.text).lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for (text, why) in IMPURE.iter().filter(|(text, _)| code.contains(text)) {
            report.error(format!(
                "{}:{}: crate {name} is pure, and {text:?} {why}: let the caller hand it in",
                file.path,
                number + 1
            ));
        }
    }
}

/// Unit tests stand at the end of a file and may do what they want.
pub fn before_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {")
        .map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_in(path: &str, text: &str) -> usize {
        let mut report = Report::default();
        check(
            &[File {
                path: path.into(),
                text: text.into(),
            }],
            &mut report,
        );
        report.errors().len()
    }

    #[test]
    fn a_clock_in_a_pure_crate_is_an_error_and_in_another_is_not() {
        let text = "let now = Instant::now();\n";
        assert_eq!(errors_in("crates/session/src/lib.rs", text), 1);
        assert_eq!(errors_in("crates/lanes/src/lib.rs", text), 0);
    }

    #[test]
    fn comments_and_tests_may_name_a_clock() {
        let text = "// Instant::now\n#[cfg(test)]\nmod tests {\n Instant::now();\n}\n";
        assert_eq!(errors_in("crates/session/src/lib.rs", text), 0);
    }
}
