//! Logs to stderr: for the journal without time and colour, which it adds itself.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sets up logging. `DROVER_LOG` chooses what is logged (`debug`, `droverd=trace`), `info`
/// otherwise.
pub fn init() {
    let filter = EnvFilter::try_from_env("DROVER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let colour = !journal
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // It would say so on stderr, and panic where that is what cannot be written: on a full disk, for one.
        .log_internal_errors(false)
        .with_ansi(colour);
    if journal {
        builder.without_time().init();
    } else {
        builder.init();
    }
}
