//! Markdown: CommonMark, and tables as GitHub has them.

use std::fmt::Write as _;

use super::blocks::{Block, Text};

/// Letters that mean something anywhere in a line.
const MEANING: &str = "\\`*[]<>|#&~@$";

pub fn written(blocks: &[Block]) -> String {
    let blocks: Vec<String> = blocks.iter().map(block).collect();
    blocks.join("\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Title(text) => format!("# {}\n", escaped(text)),
        Block::Section(text) => format!("## {}\n", escaped(text)),
        Block::Part(text) => format!("### {}\n", escaped(text)),
        Block::Finding(severity, text) => format!("### {severity}: {}\n", escaped(text)),
        Block::Words(text) => format!("{}\n", escaped(text)),
        Block::Named(named) => named.iter().fold(String::new(), |mut said, (name, text)| {
            let _ = writeln!(said, "- **{name}**: {}", escaped(text));
            said
        }),
        Block::Sources(sources) => {
            let shown = sources.iter().map(|(text, address)| match address {
                Some(address) => format!("[{}]({address})", escaped(text)),
                None => escaped(text),
            });
            format!("Documentation: {}\n", shown.collect::<Vec<_>>().join("; "))
        }
        Block::Lines(what, lines) => fenced(what, lines),
        Block::List(items) => items.iter().fold(String::new(), |mut said, item| {
            let _ = writeln!(said, "- {}", escaped(item));
            said
        }),
        Block::Table { head, rows } => {
            let row = |cells: &[Text]| {
                let cells: Vec<String> = cells.iter().map(escaped).collect();
                format!("| {} |\n", cells.join(" | "))
            };
            let rule = format!("|{}\n", " --- |".repeat(head.len()));
            row(head) + &rule + &rows.iter().map(|cells| row(cells)).collect::<String>()
        }
    }
}

/// In a fence that no line in it can close.
fn fenced(what: &str, lines: &[Text]) -> String {
    let longest = lines.iter().map(|line| longest_run(line.as_str())).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    let lines: Vec<&str> = lines.iter().map(Text::as_str).collect();
    format!("{what}:\n\n{fence}text\n{}\n{fence}\n", lines.join("\n"))
}

fn longest_run(line: &str) -> usize {
    let runs = line.split(|letter| letter != '`');
    runs.map(str::len).max().unwrap_or(0)
}

/// Text that is shown as it is: no markup, no HTML, and no link that its words make by themselves.
fn escaped(text: &Text) -> String {
    let letters: Vec<char> = text.as_str().chars().collect();
    let mut shown = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        if means_something(&letters, at) {
            shown.push('\\');
        }
        shown.push(letter);
    }
    shown
}

fn means_something(letters: &[char], at: usize) -> bool {
    let (before, after) = (&letters[..at], &letters[at + 1..]);
    let is_word = |letter: Option<&char>| letter.is_some_and(|letter| letter.is_alphanumeric());
    match letters[at] {
        // Within a word it is one of its letters.
        '_' => !(is_word(before.last()) && is_word(after.first())),
        ':' => after.starts_with(&['/', '/']),
        '.' => {
            let of_list = !before.is_empty()
                && before.iter().all(char::is_ascii_digit)
                && after.first().is_none_or(|next| *next == ' ');
            let last: String = before.iter().rev().take(3).collect();
            of_list || last.eq_ignore_ascii_case("www")
        }
        '+' | '-' | '=' => before.is_empty(),
        letter => MEANING.contains(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_markdown_is_text() {
        for (words, expected) in [
            (
                "<img src=x onerror=alert(1)>",
                "\\<img src=x onerror=alert(1)\\>",
            ),
            ("a|b `c` [d](e)", "a\\|b \\`c\\` \\[d\\](e)"),
            (
                "http://evil.example www.evil.example",
                "http\\://evil.example www\\.evil.example",
            ),
            ("root@evil &lt;", "root\\@evil \\&lt;"),
            ("- x\n# y", "\\- x \\# y"),
            ("1. x", "1\\. x"),
            ("10.0.0.1/24 fd00::1", "10.0.0.1/24 fd00::1"),
            ("mlx5_core _x_", "mlx5_core \\_x\\_"),
            ("a\u{202e}b\u{1b}[0m", "a\u{fffd}b\u{fffd}\\[0m"),
        ] {
            assert_eq!(escaped(&Text::of(words)), expected);
        }
    }

    #[test]
    fn no_line_closes_its_fence() {
        let lines = [Text::of("a ```` b"), Text::of("c")];
        let shown = fenced("Lines", &lines);
        assert!(shown.contains("`````text\na ```` b\nc\n`````\n"), "{shown}");
    }
}
