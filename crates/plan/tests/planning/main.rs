//! What plans are made of which facts: refusals, golden plans, and properties held by a checker that
//! shares no code with the planner.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod avoid;
mod build;
mod checker;
mod disks;
mod files;
mod forecasts;
mod golden;
mod lost;
mod models;
mod moving;
mod nonsense;
mod optimum;
mod packing;
mod properties;
mod refusals;
mod rules;
mod still;
mod tight;
