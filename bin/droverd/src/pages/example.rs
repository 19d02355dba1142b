//! A commented TOML file as a manual page: what its comments say stands below the keys that they are about.
//!
//! ```text
//!   # How long it waits.            [migration]
//!   #outage_limit_s = 30      ─▶      #outage_limit_s = 30
//!                                         How long it waits.
//! ```

use clap_mangen::roff::{Roff, bold, roman};

/// What one line of the file is.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A comment.
    Prose(&'a str),
    /// A table's header.
    Table(&'a str),
    /// A key, also one that is commented out, or a part of its value.
    Key(&'a str),
}

/// The page of a file of this name.
pub fn page(name: &str, about: &str, text: &str) -> Roff {
    let title = name.to_uppercase();
    let mut roff = Roff::new();
    roff.control("TH", [title.as_str(), "5"])
        .control("SH", ["NAME"])
        .text([roman(format!("{name} - {about}"))])
        .control("SH", ["DESCRIPTION"]);
    for paragraph in text.split("\n\n") {
        add(&mut roff, paragraph);
    }
    roff.control("SH", ["SEE ALSO"])
        .text([roman("droverd(8), drover(1)")]);
    roff
}

fn add(roff: &mut Roff, paragraph: &str) {
    let (mut prose, mut keys) = (Vec::new(), Vec::new());
    for line in paragraph.lines() {
        match read(line) {
            Line::Prose(text) => prose.push(text),
            Line::Key(text) => keys.push(text),
            Line::Table(header) => {
                roff.control("SS", [header]);
            }
        }
    }
    if !keys.is_empty() {
        roff.control("PP", []).control("nf", []);
        for key in &keys {
            roff.text([bold(*key)]);
        }
        roff.control("fi", []);
    }
    if !prose.is_empty() {
        let indent = !keys.is_empty();
        roff.control(if indent { "RS" } else { "PP" }, []);
        roff.text([roman(prose.join("\n"))]);
        if indent {
            roff.control("RE", []);
        }
    }
}

fn read(line: &str) -> Line<'_> {
    match line.strip_prefix("# ") {
        // Further in stands what goes on with a value.
        Some(text) if !text.starts_with(' ') => Line::Prose(text),
        _ if line == "#" => Line::Prose(""),
        _ if line.starts_with('[') => Line::Table(line),
        _ => Line::Key(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# Of an agent.
#
# Sizes: bytes.

# Its name.
#host = \"a\"

[api]
# Where it listens,
# 'ip'.
#listen = [
#    \"::\",
#]
";

    #[test]
    fn what_is_explained_stands_below_its_key_and_tables_are_headings() {
        let page = page("x.toml", "an example", FILE).to_roff();
        let expected = "\
.TH X.TOML 5
.SH NAME
x.toml \\- an example
.SH DESCRIPTION
.PP
Of an agent.

Sizes: bytes.
.PP
.nf
\\fB#host = \"a\"\\fR
.fi
.RS
Its name.
.RE
.SS [api]
.PP
.nf
\\fB#listen = [\\fR
\\fB#    \"::\",\\fR
\\fB#]\\fR
.fi
.RS
Where it listens,
\\&'ip'.
.RE
.SH \"SEE ALSO\"
droverd(8), drover(1)
";
        assert_eq!(page, expected);
    }
}
