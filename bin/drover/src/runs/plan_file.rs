//! A plan that comes back from a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use drover_plan::{Plan, Request};

use crate::failure::{Failure, exit};
use crate::limits::PLAN_FILE_BYTES;

/// Reads the plan of a drain, which has to be as it was made.
pub fn read(path: &Path) -> Result<Plan, Failure> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let opened = File::open(path);
    opened
        .and_then(|file| file.take(PLAN_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::error(format!("cannot read the plan {shown}: {error}")))?;
    if bytes.len() as u64 > PLAN_FILE_BYTES {
        let most = PLAN_FILE_BYTES >> 20;
        return Err(unusable(format!(
            "{shown} is no plan: it has more than {most} MiB"
        )));
    }
    let plan: Plan = drover_api::decode(&bytes)
        .map_err(|problem| unusable(format!("{shown} is no plan: {problem}")))?;
    plan.check_seal()
        .map_err(|problem| unusable(format!("{shown}: {problem}")))?;
    match plan.request {
        Request::Drain { .. } => Ok(plan),
        Request::Resume { .. } | Request::Rebalance { .. } => {
            Err(unusable(format!("the plan in {shown} is not of a drain")))
        }
    }
}

fn unusable(message: String) -> Failure {
    Failure::new(exit::REFUSED, "plan-unusable", message)
        .next("`drover drain HOST... --dry-run -o FILE` writes one")
}
