//! Lines within files that somebody has written: ours in place of others about the same, and all else to the letter.
//!
//! Sources: sysctl.d(5), systemd.syntax(7), interfaces(5), tuned.conf(5).

use super::How;
use super::settings::sysctl_name;

/// Words that begin a stanza of ifupdown, beside those that begin with `allow-`. Source: interfaces(5).
const STANZAS: [&str; 8] = [
    "auto",
    "iface",
    "mapping",
    "no-auto-down",
    "no-scripts",
    "rename",
    "source",
    "source-directory",
];

/// The text of a file once it is as told. What is in one of ours from earlier plans stays.
///
/// # Errors
/// Why it cannot be.
pub fn edited(before: Option<&str>, how: &How) -> Result<String, String> {
    let (part, lines) = match how {
        How::File { lines, .. } => (None, lines),
        How::Lines { part, lines, .. } => (part.as_deref(), lines),
        How::Choice { lines, .. } => return Ok(lines.join("\n") + "\n"),
        How::Commands(_) => return Err("it is no file".to_owned()),
    };
    let Some(before) = before else {
        return match how {
            How::File { lines, .. } => Ok(lines.join("\n") + "\n"),
            _ => Err("the file is gone".to_owned()),
        };
    };
    let all = wanted(part, lines);
    check(before, &all)?;
    let mut text: Vec<String> = before.lines().map(str::to_owned).collect();
    for one in &all {
        put(&mut text, one)?;
    }
    let is_same = before.lines().eq(text.iter());
    Ok(if is_same {
        before.to_owned()
    } else {
        text.join("\n") + "\n"
    })
}

/// Lines about one thing.
struct Wanted<'a> {
    part: Option<&'a str>,
    key: String,
    lines: Vec<&'a str>,
}

fn wanted<'a>(mut part: Option<&'a str>, lines: &'a [String]) -> Vec<Wanted<'a>> {
    let mut all: Vec<Wanted<'a>> = Vec::new();
    for line in lines {
        if line.starts_with('[') {
            part = Some(line);
        }
        let Some(key) = key(part, line) else { continue };
        let same = |one: &&mut Wanted<'_>| one.part == part && one.key == key;
        match all.iter_mut().find(same) {
            Some(one) => one.lines.push(line),
            None => all.push(Wanted {
                part,
                key,
                lines: vec![line],
            }),
        }
    }
    all
}

/// What a line is about; none of a comment, and of what begins a part.
fn key(part: Option<&str>, line: &str) -> Option<String> {
    let line = line.trim();
    if !says(line) {
        return None;
    }
    match part {
        None | Some("[sysctl]") => sysctl_name(line),
        Some(part) if part.starts_with('[') => {
            let (key, _) = line.split_once('=')?;
            Some(key.trim().to_owned())
        }
        Some(_) => line.split_whitespace().next().map(str::to_owned),
    }
}

/// Whether a line is neither empty nor a comment.
fn says(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with(['#', ';'])
}

/// What could be misread is not touched.
fn check(before: &str, all: &[Wanted<'_>]) -> Result<(), String> {
    let strange = |sign: char| sign.is_control() && !matches!(sign, '\n' | '\t');
    if before.contains(strange) {
        return Err("it has signs that no text has".to_owned());
    }
    let has_parts = all.iter().any(|one| one.part.is_some());
    let goes_on = |line: &str| says(line) && line.ends_with('\\');
    if has_parts && before.lines().any(goes_on) {
        return Err("it has lines that go on in the next one".to_owned());
    }
    Ok(())
}

fn put(text: &mut Vec<String>, wanted: &Wanted<'_>) -> Result<(), String> {
    let runs = runs(text, wanted.part);
    let is_about = |at: &usize| {
        let found = key(wanted.part, &text[*at]);
        runs[*at] > 0 && found.is_some_and(|found| found == wanted.key)
    };
    let found: Vec<usize> = (0..text.len()).filter(is_about).collect();
    let Some((last, earlier)) = found.split_last() else {
        return add(text, &runs, wanted);
    };
    // The last one has the say.
    let lines = indented(indent(&text[*last]), &wanted.lines);
    drop(text.splice(*last..=*last, lines));
    for at in earlier.iter().rev() {
        text.remove(*at);
    }
    Ok(())
}

/// Below the last line of the part where it is first, or as a part of its own.
fn add(text: &mut Vec<String>, runs: &[usize], wanted: &Wanted<'_>) -> Result<(), String> {
    let last = (0..text.len()).rfind(|at| runs[*at] == 1 && says(&text[*at]));
    match (last, wanted.part) {
        (Some(last), part) => {
            let is_head = part.is_some_and(|part| begins(part, &text[last]));
            let own = match part {
                Some(part) if is_head && !part.starts_with('[') => "    ",
                _ if is_head => "",
                _ => indent(&text[last]),
            };
            let lines = indented(own, &wanted.lines);
            drop(text.splice(last + 1..last + 1, lines));
        }
        (None, None) => text.extend(indented("", &wanted.lines)),
        (None, Some(part)) if part.starts_with('[') => {
            if !text.is_empty() {
                text.push(String::new());
            }
            text.push(part.to_owned());
            text.extend(indented("", &wanted.lines));
        }
        (None, Some(part)) => return Err(format!("it has no stanza {part:?}")),
    }
    Ok(())
}

/// Of each line, how often the part has begun up to there; 0 where it is another part's.
fn runs(text: &[String], part: Option<&str>) -> Vec<usize> {
    let Some(part) = part else {
        return vec![1; text.len()];
    };
    let (mut count, mut is_in) = (0, false);
    let run = text.iter().map(|line| {
        if begins(part, line) {
            is_in = is_head(part, line);
            count += usize::from(is_in);
        }
        if is_in { count } else { 0 }
    });
    run.collect()
}

/// Whether a part of that kind begins there.
fn begins(part: &str, line: &str) -> bool {
    let line = line.trim();
    if part.starts_with('[') {
        return line.starts_with('[');
    }
    let first = line.split_whitespace().next();
    first.is_some_and(|first| STANZAS.contains(&first) || first.starts_with("allow-"))
}

/// Whether it is that very part.
fn is_head(part: &str, line: &str) -> bool {
    if part.starts_with('[') {
        return line.trim() == part;
    }
    line.split_whitespace().take(2).eq(part.split(' '))
}

fn indent(line: &str) -> &str {
    let length = line.len() - line.trim_start().len();
    &line[..length]
}

fn indented(indent: &str, lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| format!("{indent}{line}")).collect()
}
