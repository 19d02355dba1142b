//! Reports as JUnit's XML, which pipelines show: a test for each rule and subject that has something to say.

use std::fmt::Write as _;

use drover_tune::Report;

/// The whole document.
pub fn xml(report: &Report) -> String {
    let (failures, skipped) = (report.findings.len(), report.skipped.len());
    let tests = failures + skipped;
    let mut said = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"drover doctor\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\">\n"
    );
    for finding in &report.findings {
        let found = &finding.found;
        let _ = writeln!(
            said,
            "  <testcase classname=\"{}\" name=\"{}\"><failure type=\"{}\" message=\"{}\">{}</failure></testcase>",
            escaped(&finding.subject.to_string()),
            escaped(&finding.rule),
            found.severity,
            escaped(&found.read),
            escaped(&format!("expected: {}\nwhy: {}", found.expected, found.why)),
        );
    }
    for skipped in &report.skipped {
        let _ = writeln!(
            said,
            "  <testcase classname=\"{}\" name=\"{}\"><skipped message=\"{}\"/></testcase>",
            escaped(&skipped.subject.to_string()),
            escaped(&skipped.rule),
            escaped(&skipped.because),
        );
    }
    said.push_str("</testsuite>\n");
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
            letter if letter.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_xml_is_escaped() {
        assert_eq!(
            escaped("a<b & \"c\"\u{1}"),
            "a&lt;b &amp; &quot;c&quot;\u{fffd}"
        );
    }

    #[test]
    fn a_report_without_anything_is_a_document_without_tests() {
        let xml = xml(&Report::default());
        assert!(
            xml.contains("tests=\"0\" failures=\"0\" skipped=\"0\""),
            "{xml}"
        );
    }
}
