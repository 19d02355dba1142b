//! Options that say how a migration is brought to its end.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_types::{AtDeadline, Convergence, Deadline, DowntimeLimit, Throttle, ThrottleMost};

use crate::cli::duration;

/// What is missing is as the guest's definition has it, and then the agent's configuration.
#[derive(Debug, Clone, Args)]
pub struct ConvergenceArgs {
    /// The longest stop of the guest to aim at, in milliseconds [default: the guest's, the agent's]
    #[arg(long, value_name = "MS", value_parser = number::<DowntimeLimit>)]
    downtime_limit: Option<DowntimeLimit>,
    /// How a guest is slowed down that writes faster than its memory is carried
    #[arg(long, value_name = "HOW", value_parser = word(&Throttle::WORDS))]
    throttle: Option<Throttle>,
    /// The most of its time that it stands still then, 1 to 99
    #[arg(long, value_name = "PERCENT", value_parser = number::<ThrottleMost>)]
    throttle_most: Option<ThrottleMost>,
    /// How long memory may be copied, such as 90s or 30m, or "off"
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<Deadline>,
    /// What is done then: the guest stays, stands still until the rest is sent, or goes on there and the rest
    /// follows
    #[arg(long, value_name = "WHAT", value_parser = word(&AtDeadline::WORDS))]
    at_deadline: Option<AtDeadline>,
}

impl From<&ConvergenceArgs> for Convergence {
    fn from(args: &ConvergenceArgs) -> Self {
        Self {
            downtime_limit_ms: args.downtime_limit,
            throttle: args.throttle,
            throttle_most: args.throttle_most,
            deadline_s: args.deadline,
            at_deadline: args.at_deadline,
        }
    }
}

fn number<T: TryFrom<i64>>(text: &str) -> Result<T, String>
where
    T::Error: ToString,
{
    let number: i64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no whole number"))?;
    T::try_from(number).map_err(|error| error.to_string())
}

fn word<T: Copy + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let known = words.iter().map(|(word, _)| *word);
    PossibleValuesParser::new(known).try_map(|given| {
        let mut words = words.iter();
        let found = words.find(|(word, _)| *word == given);
        found.map(|(_, value)| *value).ok_or("no such word")
    })
}

fn deadline(text: &str) -> Result<Deadline, String> {
    let time = match text {
        "off" => Duration::ZERO,
        text => duration(text).map_err(|error| format!("{error}, or \"off\""))?,
    };
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Deadline::try_from(seconds).map_err(|error| error.to_string())
}
