//! What went wrong, for a person or a program, and the exit code that says so.

use std::fmt::Write as _;

use drover_api::{ClientError, ErrorCode, Refusal};
use drover_lab::compare::Unfit;
use drover_types::with_sources;
use serde_json::{Value, json};

use crate::command::to_stdout;

/// The exit codes, as documented in docs/CLI.md.
pub mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// An error.
    pub const ERROR: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// Refused; nothing was changed.
    pub const REFUSED: u8 = 4;
    /// Cancelled by the operator.
    pub const CANCELLED: u8 = 5;
    /// Partly done.
    pub const PARTIAL: u8 = 6;
    /// The agent does not answer.
    pub const NO_AGENT: u8 = 7;
}

/// A command that did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    exit: u8,
    code: Box<str>,
    message: String,
    next: Option<String>,
    /// What it was refused for, as values.
    details: Option<Box<Value>>,
    /// The answer as far as there is one, for a person.
    said: Box<str>,
    /// What is known all the same, such as the migration that failed.
    more: Vec<(&'static str, Value)>,
}

impl Failure {
    /// An error of this program's own.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(exit::ERROR, "error", message)
    }

    /// With its exit code, and a word for programs.
    pub fn new(exit: u8, code: impl ToString, message: impl Into<String>) -> Self {
        Self {
            exit,
            code: code.to_string().into(),
            message: message.into(),
            next: None,
            details: None,
            said: Box::default(),
            more: Vec::new(),
        }
    }

    /// With what to do next.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// With the answer as far as there is one, which goes to stdout, for a person.
    pub fn said(mut self, text: impl Into<Box<str>>) -> Self {
        self.said = text.into();
        self
    }

    /// With what is known all the same.
    pub fn with(mut self, key: &'static str, value: &impl serde::Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.more.push((key, value));
        }
        self
    }

    /// Of a command that only reads: nothing was refused, it is just not there.
    pub fn of_reading(error: ClientError) -> Self {
        let mut failure = Self::of(&error);
        if failure.exit == exit::REFUSED {
            failure.exit = exit::ERROR;
        }
        failure
    }

    /// Of a command that changes something.
    pub fn of_changing(error: ClientError) -> Self {
        Self::of(&error)
    }

    fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Refused(refusal) => Self::refused(refusal),
            ClientError::Unreachable { source, .. } => {
                let next = match source.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        "the socket is for root: run this command as root".to_owned()
                    }
                    _ => "start the agent with `systemctl start droverd`, or name its socket with \
                          --socket; `journalctl -u droverd` tells why it ended"
                        .to_owned(),
                };
                Self::new(exit::NO_AGENT, "no-agent", with_sources(error)).next(next)
            }
            ClientError::Timeout { .. } | ClientError::Lost { .. } => {
                Self::new(exit::NO_AGENT, "no-answer", with_sources(error)).next(
                    "it may have been done all the same: look at `drover status`, and at \
                     `journalctl -u droverd`",
                )
            }
            ClientError::Untrusted { problem, .. } => {
                Self::new(exit::NO_AGENT, "untrusted", with_sources(error)).next(problem.next())
            }
            ClientError::NowhereKnown { .. } => {
                Self::new(exit::NO_AGENT, "no-agent", with_sources(error))
                    .next("`drover cluster status` shows the members")
            }
            ClientError::NotAnAgent { .. } => {
                Self::new(exit::NO_AGENT, "no-agent", with_sources(error))
                    .next("name the socket of a droverd of this version with --socket")
            }
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let exit = match refusal.code {
            ErrorCode::OutcomeUnknown => exit::NO_AGENT,
            code if code.is_preflight() => exit::REFUSED,
            _ => exit::ERROR,
        };
        let failure = Self::new(exit, refusal.code, &refusal.message);
        Self {
            next: refusal.next.clone(),
            details: refusal.details.clone(),
            ..failure
        }
    }

    /// Of `drover lab`. An agent's refusal in it keeps its code and advice.
    pub fn of_lab(error: &anyhow::Error) -> Self {
        if let Some(unfit) = error.downcast_ref::<Unfit>() {
            return Self::new(exit::USAGE, "wrong-usage", unfit.to_string());
        }
        match error.downcast_ref::<ClientError>() {
            Some(client) => Self {
                message: format!("{error:#}"),
                ..Self::of(client)
            },
            None => Self::error(format!("{error:#}")),
        }
    }

    /// The exit code.
    pub fn exit(&self) -> u8 {
        self.exit
    }

    /// What went wrong, without what to do next.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    #[cfg(test)]
    pub fn advice(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Prints it; the exit code.
    pub fn print(&self, json: bool) -> u8 {
        if json {
            to_stdout(&format!("{}\n", self.document()));
        } else {
            to_stdout(&self.said);
            eprint!("{}", self.text());
        }
        self.exit
    }

    fn text(&self) -> String {
        let mut text = format!("drover: {}\n", self.message);
        if let Some(next) = &self.next {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  next: {next}");
        }
        text
    }

    fn document(&self) -> String {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(next) = &self.next {
            error["next"] = next.as_str().into();
        }
        if let Some(details) = &self.details {
            error["details"] = Value::clone(details);
        }
        let mut document = json!({ "exit_code": self.exit, "error": error });
        for (key, value) in &self.more {
            document[*key] = value.clone();
        }
        format!("{document:#}")
    }
}

#[cfg(test)]
mod tests {
    use drover_lab::compare::{Method, check_methods};

    use super::*;

    #[test]
    fn a_method_that_does_not_move_what_it_is_to_move_is_wrong_usage() {
        let domains = "installed".parse().unwrap();
        let error = check_methods(Some(&domains), None, &[Method::Drover, Method::DroverPlain]);
        let failure = Failure::of_lab(&error.unwrap_err().into());
        assert_eq!(failure.exit, exit::USAGE);
        let words =
            "drover-plain moves no domain of libvirt's: with --libvirt methods are drover, ";
        assert!(failure.message.starts_with(words), "{}", failure.message);
    }

    #[test]
    fn a_refusal_is_printed_with_what_to_do_next() {
        let refusal = Refusal::new(ErrorCode::VmNotRunning, "guest web does not run")
            .next("start it with `drover vm start web`");
        let failure = Failure::of_changing(refusal.clone().into());
        let expected =
            "drover: guest web does not run\n  next: start it with `drover vm start web`\n";
        assert_eq!(failure.text(), expected);
        assert_eq!(failure.exit, exit::REFUSED);
        assert_eq!(Failure::of_reading(refusal.into()).exit, exit::ERROR);
    }

    #[test]
    fn a_failure_is_one_json_document_with_its_exit_code() {
        let failure = Failure::new(exit::CANCELLED, "cancelled", "it was").with("migration", &7);
        let document: Value = serde_json::from_str(&failure.document()).unwrap();
        assert_eq!(
            document,
            json!({"exit_code": 5, "error": {"code": "cancelled", "message": "it was"},
                   "migration": 7})
        );
    }
}
