//! `--report FILE`: what was found, as a document for others.

use std::path::PathBuf;

use drover_tune::Document;

use crate::failure::Failure;

/// Where it is written, and how.
#[derive(Debug, Clone)]
pub struct Target {
    file: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Markdown,
    Html,
}

/// By the end of the file's name.
///
/// # Errors
/// It ends otherwise.
pub fn target(name: &str) -> Result<Target, String> {
    let file = PathBuf::from(name);
    let end = file
        .extension()
        .map(|end| end.to_string_lossy().to_lowercase());
    let format = match end.as_deref() {
        Some("md" | "markdown") => Format::Markdown,
        Some("html" | "htm") => Format::Html,
        _ => {
            return Err(
                "its name says how it is written: .md for Markdown, .html for HTML".to_owned(),
            );
        }
    };
    Ok(Target { file, format })
}

impl Target {
    /// Writes it, in the place of what may be there.
    pub fn write(&self, document: &Document<'_>) -> Result<(), Failure> {
        let text = match self.format {
            Format::Markdown => document.markdown(),
            Format::Html => document.html(),
        };
        let written = std::fs::write(&self.file, text);
        written.map_err(|error| {
            Failure::error(format!("cannot write {}: {error}", self.file.display()))
        })?;
        eprintln!("{}: the report", self.file.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_how_it_is_written_and_another_one_is_refused_with_both() {
        for (name, expected) in [
            ("a.md", Format::Markdown),
            ("a.HTML", Format::Html),
            ("b/c.htm", Format::Html),
        ] {
            assert_eq!(target(name).unwrap().format, expected, "{name}");
        }
        for name in ["a", "a.pdf", ".html"] {
            let refused = target(name).unwrap_err();
            assert!(
                refused.contains(".md") && refused.contains(".html"),
                "{refused}"
            );
        }
    }
}
