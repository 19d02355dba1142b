//! What a check found.

/// Errors fail the check, warnings are shown.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    /// Something that must be put right: where, what, and what to do.
    pub fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    /// Something to look at.
    pub fn warning(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Whether nothing has to be put right.
    pub fn passed(&self) -> bool {
        self.errors.is_empty()
    }

    /// Warnings first: the errors stay in sight.
    pub fn print(&self) {
        for warning in &self.warnings {
            println!("warning: {warning}");
        }
        for error in &self.errors {
            println!("error: {error}");
        }
    }

    #[cfg(test)]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }
}
