//! Reports as JUnit's XML, which pipelines show: a test for each rule and subject, and one for each member that did not answer or ask.

use std::fmt::Write as _;

use drover_tune::{Finding, Report, Source, Subject};

use super::missing::Missing;
use super::show::remedy;

/// The whole document.
pub fn xml(report: &Report, missing: &[Missing]) -> String {
    let (failures, skipped, errors) = (report.findings.len(), report.skipped.len(), missing.len());
    let tests = failures + skipped + errors + report.right.len();
    let mut said = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"drover doctor\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" \
         skipped=\"{skipped}\">\n"
    );
    for one in missing {
        let why = format!("<error message=\"{}\"/>", escaped(&one.why));
        said.push_str(&case(&one.whom, one.test, &why));
    }
    for finding in &report.findings {
        let found = &finding.found;
        let failure = format!(
            "<failure type=\"{}\" message=\"{}\">{}</failure>",
            found.severity,
            escaped(&found.read),
            escaped(&details(finding)),
        );
        said.push_str(&of_rule(&finding.subject, &finding.rule, &failure));
    }
    for skipped in &report.skipped {
        let because = format!("<skipped message=\"{}\"/>", escaped(&skipped.because));
        said.push_str(&of_rule(&skipped.subject, &skipped.rule, &because));
    }
    for right in &report.right {
        said.push_str(&of_rule(&right.subject, &right.rule, ""));
    }
    said.push_str("</testsuite>\n");
    said
}

/// What else there is to say of it, a line each.
fn details(finding: &Finding) -> String {
    let found = &finding.found;
    let mut said = format!("expected: {}\nwhy: {}", found.expected, found.why);
    if let Some(cost) = &found.cost {
        let _ = write!(said, "\ncost: {cost}");
    }
    let _ = write!(said, "\nclass: {}", finding.disruption);
    for (what, text) in remedy(finding) {
        let _ = match what {
            "" => write!(said, "\n  {text}"),
            what => write!(said, "\n{what}: {text}"),
        };
    }
    for Source {
        said: document,
        address,
    } in &finding.documentation
    {
        let address = address.as_ref().map(|address| format!(" ({address})"));
        let _ = write!(
            said,
            "\ndocumentation: {document}{}",
            address.unwrap_or_default()
        );
    }
    said
}

fn of_rule(subject: &Subject, rule: &str, outcome: &str) -> String {
    case(&subject.to_string(), rule, outcome)
}

fn case(class: &str, name: &str, outcome: &str) -> String {
    let mut said = String::new();
    let (class, name) = (escaped(class), escaped(name));
    let _ = writeln!(
        said,
        "  <testcase classname=\"{class}\" name=\"{name}\">{outcome}</testcase>"
    );
    said
}

/// Without what has a meaning in XML, and what may not be in it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            letter if letter.is_control() || is_no_letter(letter) => {
                escaped.push(char::REPLACEMENT_CHARACTER)
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// XML has no place for these two.
fn is_no_letter(letter: char) -> bool {
    matches!(letter, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::MemberLeftOut;
    use drover_tune::Right;

    #[test]
    fn what_means_something_in_xml_is_escaped() {
        assert_eq!(
            escaped("a<b & \"c\"\u{1}\u{ffff}"),
            "a&lt;b &amp; &quot;c&quot;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn what_is_found_has_its_class_what_makes_it_go_and_where_it_is_documented() {
        let finding = serde_json::json!({
            "rule": "nic-ring", "subject": { "host": "a", "other": null, "nic": "eth0" },
            "disruption": "bounces-link",
            "documentation": [{ "said": "kernel: x.rst", "address": "https://docs.kernel.org/x.html" }, { "said": "IEEE" }],
            "severity": "notice", "read": "64", "expected": "256", "why": "bursts", "cost": "some",
            "change": { "disruption": "bounces-link", "steps": [
                { "nic": { "nic": "eth0", "what": "receive-ring", "from": "64", "to": "256" } },
                { "file": { "path": "sys/x", "from": "1", "to": "0" } },
            ] },
            "by_hand": "or another adapter", "lines": [{ "from": "<a/>", "to": "<b/>" }],
        });
        let report = Report {
            findings: vec![serde_json::from_value(finding).unwrap()],
            ..Report::default()
        };
        let xml = xml(&report, &[]);
        let lines = "expected: 256\nwhy: bursts\ncost: some\nclass: may bounce the link\n\
                     change: ethtool -G eth0 rx 256\n  undone by: ethtool -G eth0 rx 64\n  \
                     echo 0 &gt; /sys/x\n  undone by: echo 1 &gt; /sys/x\n\
                     by hand: or another adapter\n  - &lt;a/&gt;\n  + &lt;b/&gt;\n\
                     documentation: kernel: x.rst (https://docs.kernel.org/x.html)\ndocumentation: IEEE</failure>";
        assert!(xml.contains(lines), "{xml}");
    }

    #[test]
    fn what_is_right_is_a_test_that_passes_and_a_member_that_did_not_answer_an_error() {
        let subject = Subject {
            nic: Some("eth0".into()),
            ..Subject::host("a")
        };
        let report = Report {
            right: vec![Right {
                rule: "nic-queues".into(),
                subject,
            }],
            ..Report::default()
        };
        let silent = Missing::from(&MemberLeftOut {
            host: "b".parse().unwrap(),
            why: "it does not answer".into(),
        });
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let xml = xml(&report, &[silent, Missing::pair(&a, &b, "it is busy")]);
        for part in [
            "tests=\"3\" failures=\"0\" errors=\"2\" skipped=\"0\"",
            "<testcase classname=\"a to b\" name=\"asks\"><error message=\"it is busy\"/></testcase>",
            "<testcase classname=\"b\" name=\"answers\"><error message=\"it does not answer\"/></testcase>",
            "<testcase classname=\"a eth0\" name=\"nic-queues\"></testcase>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }
}
