//! Scenarios of the lab, with a small guest.

use drover_lab::scenario::{Found, Plan, show};
use drover_lab::settings::LabName;
use drover_lab::{Lab, require};

/// What became of a scenario; `None`, and said so, where that is not possible.
pub async fn scenario(name: &str) -> Option<Found> {
    scenarios(&[name]).await?.pop()
}

/// What became of these, one after the other in one lab.
pub async fn scenarios(names: &[&str]) -> Option<Vec<Found>> {
    let qemu = super::qemu().await?;
    if let Err(missing) = require::check_faults() {
        println!("skipped, because {missing}");
        return None;
    }
    let lab: LabName = format!("{}{}", names[0].replace('-', ""), std::process::id())
        .parse()
        .unwrap();
    let plan = Plan {
        name: lab.clone(),
        guest: super::small_guest(qemu, 7),
        only: names.iter().map(|&name| name.to_owned()).collect(),
        repeats: 1,
    };
    let shown = show(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&lab).await.unwrap();
    let mut found = shown.unwrap().scenarios;
    found.retain(|found| names.contains(&found.name.as_str()));
    assert_eq!(found.len(), names.len(), "{names:?}");
    Some(found)
}
