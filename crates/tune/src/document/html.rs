//! HTML in one file: no scripts, nothing that is loaded, light and dark, for paper and for telephones.

use std::fmt::Write as _;

use super::blocks::{Block, Text};
use crate::finding::Severity;

const STYLE: &str = include_str!("style.css");

/// The browser itself loads and runs nothing, whatever stands in the document.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub fn written(title: &str, blocks: &[Block]) -> String {
    let title = escaped(&Text::of(title));
    let mut said = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    for block in blocks {
        said.push_str(&shown(block));
    }
    said.push_str("</main>\n</body>\n</html>\n");
    said
}

fn shown(block: &Block) -> String {
    match block {
        Block::Title(text) => format!("<h1>{}</h1>\n", escaped(text)),
        Block::Section(text) => format!("<h2>{}</h2>\n", escaped(text)),
        Block::Part(text) => format!("<h3>{}</h3>\n", escaped(text)),
        Block::Finding(severity, text) => {
            let class = class(*severity);
            format!(
                "<h3 class=\"{class}\"><span>{severity}</span> {}</h3>\n",
                escaped(text)
            )
        }
        Block::Words(text) => format!("<p>{}</p>\n", escaped(text)),
        Block::Named(named) => {
            let rows = named.iter().fold(String::new(), |mut said, (name, text)| {
                let _ = writeln!(said, "<dt>{name}</dt><dd>{}</dd>", escaped(text));
                said
            });
            format!("<dl>\n{rows}</dl>\n")
        }
        Block::Sources(sources) => {
            let shown = sources.iter().map(|(text, address)| match address {
                Some(address) => format!(
                    "<a href=\"{}\">{}</a>",
                    escaped(&Text::of(address)),
                    escaped(text)
                ),
                None => escaped(text),
            });
            format!(
                "<p class=\"source\">Documentation: {}</p>\n",
                shown.collect::<Vec<_>>().join("; ")
            )
        }
        Block::Lines(what, lines) => {
            let lines: Vec<String> = lines.iter().map(escaped).collect();
            format!(
                "<p>{what}:</p>\n<pre><code>{}</code></pre>\n",
                lines.join("\n")
            )
        }
        Block::List(items) => {
            let items = items.iter().fold(String::new(), |mut said, item| {
                let _ = writeln!(said, "<li>{}</li>", escaped(item));
                said
            });
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Table { head, rows } => table(head, rows),
    }
}

fn table(head: &[Text], rows: &[Vec<Text>]) -> String {
    let row = |cells: &[Text], kind: &str| {
        let cells: String = cells
            .iter()
            .map(|cell| format!("<{kind}>{}</{kind}>", escaped(cell)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(|cells| row(cells, "td")).collect();
    let head = row(head, "th");
    format!(
        "<div class=\"wide\"><table>\n<thead>\n{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n"
    )
}

const fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "critical",
        Severity::Warning => "warning",
        Severity::Notice => "notice",
    }
}

/// As text, and as the value of an attribute in quotes.
fn escaped(text: &Text) -> String {
    let mut shown = String::with_capacity(text.as_str().len());
    for letter in text.as_str().chars() {
        match letter {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            letter => shown.push(letter),
        }
    }
    shown
}
