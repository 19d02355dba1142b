//! What is written down of loads of several hosts: what each path carried, or why that is not known.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::{LoadedTogether, LoadedView};
use drover_reach::limits::LOAD_ORDERED;
use drover_tune::facts::{Carried, Fact, Joint, Path, Together};
use drover_types::HostName;

use super::hold::Loads;
use super::limits;
use super::milliseconds;
use super::sets::Kind;

/// What a host says of a path counts as far as it was asked: whether that was to be loaded, or why not. An agent that knows nothing of loads says nothing of
/// them.
pub fn as_asked(near: &HostName, path: &mut Path, load: Option<&Result<(), String>>) {
    path.together = None;
    let told = path.carried.take();
    let older = || format!("the agent of {near} is of a version that loads no path");
    path.carried = load.map(|load| match load {
        Ok(()) => told.unwrap_or_else(|| Fact::unknown(older())),
        Err(why) => Fact::unknown(why),
    });
}

/// Until it is.
pub fn not_loaded_yet(path: &Path) -> Together {
    let why = match &path.carried {
        Some(Fact::Unknown(why)) => format!("it was not measured alone: {why}"),
        _ => "it was not loaded with others".to_owned(),
    };
    Together {
        beside: false,
        to_one: Fact::unknown(&why),
        each_other: Fact::unknown(&why),
    }
}

/// Where two hosts may load each other yet, so that others would be found as their fault: says so of all paths, and loads none.
pub fn leave_out(loads: &Loads, paths: &mut [Path]) -> LoadedTogether {
    let why = "two hosts were still loading each other when the time for all was over: name the hosts that matter";
    for path in paths.iter_mut() {
        path.together = Some(Together {
            beside: false,
            to_one: Fact::unknown(why),
            each_other: Fact::unknown(why),
        });
    }
    nothing(loads, paths)
}

/// Before any was loaded.
pub fn nothing(loads: &Loads, paths: &[Path]) -> LoadedTogether {
    LoadedTogether {
        budget_ms: milliseconds(limits::LOADS_TOGETHER),
        paths: u32::try_from(paths.len()).unwrap_or(u32::MAX),
        share: loads.request.share,
        ..LoadedTogether::default()
    }
}

/// Whether it is known what it carried with others.
pub fn was_measured(path: &Path) -> bool {
    let joint = path.together.iter();
    let mut joint = joint.flat_map(|together| [&together.to_one, &together.each_other]);
    joint.any(|joint| joint.known().is_some())
}

/// A host that may have begun at another time than the others measured something else. Its order came no later than it and its answer took on their ways.
pub fn unless_late(near: &HostName, mut view: LoadedView, since_sent: Duration) -> LoadedView {
    let took = Duration::from_millis(view.took_ms);
    let away = since_sent.saturating_sub(took);
    if away > LOAD_ORDERED {
        let (away, most) = (away.as_millis(), LOAD_ORDERED.as_millis());
        let why = format!(
            "{near} may have begun later than the others: its order and its answer were {away} ms on their ways, and may be {most} ms"
        );
        for path in &mut view.paths {
            path.carried = Fact::unknown(&why);
        }
    }
    view
}

/// What a host told of one of its paths.
pub fn of_path(path: &Path, told: &BTreeMap<String, Result<LoadedView, String>>) -> Fact<Carried> {
    let near = path.near.host.as_str();
    let view = match told.get(near) {
        Some(Ok(view)) => view,
        Some(Err(why)) => return Fact::unknown(why),
        None => return Fact::unknown(format!("{near} was not asked")),
    };
    let mut all = view.paths.iter();
    let found = all.find(|one| one.nic == path.near.nic && one.to == path.far.address);
    found.map_or_else(
        || Fact::unknown(format!("{near} did not tell what it carried")),
        |found| found.carried.clone(),
    )
}

/// Writes that down.
pub fn put_one(path: &mut Path, kind: Kind, joint: Fact<Joint>) {
    let Some(together) = &mut path.together else {
        return;
    };
    match kind {
        Kind::ToOne => together.to_one = joint,
        Kind::EachOther => together.each_other = joint,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::LoadedPath;
    use drover_tune::facts::{HeldUpBy, PathEnd};

    use super::*;

    fn end(host: &str, last: u8) -> PathEnd {
        PathEnd {
            host: host.into(),
            nic: "n0".into(),
            address: [10, 0, 0, last].into(),
            mtu: 1500,
        }
    }

    fn path(carried: Fact<Carried>) -> Path {
        let unknown = "not asked";
        Path {
            near: end("a", 1),
            far: end("b", 2),
            route: Fact::unknown(unknown),
            refused: None,
            answers: Fact::unknown(unknown),
            arrivals: Fact::unknown(unknown),
            there: Fact::unknown(unknown),
            back: Fact::unknown(unknown),
            round_trip: Fact::unknown(unknown),
            counted: Fact::unknown(unknown),
            carried: Some(carried),
            together: None,
        }
    }

    const CARRIED: Carried = Carried {
        rate: 7,
        line: None,
        allowed: None,
        packets: 1,
        again: 0,
        held_up_by: HeldUpBy::Path,
        slot: None,
    };

    #[test]
    fn a_host_is_believed_about_its_own_paths_and_what_it_does_not_tell_is_not_known() {
        let path = path(Fact::Known(CARRIED));
        let view = |last: u8| {
            let paths = vec![LoadedPath {
                nic: "n0".into(),
                to: [10, 0, 0, last].into(),
                carried: Fact::Known(CARRIED),
            }];
            Ok(LoadedView {
                paths,
                ..LoadedView::default()
            })
        };
        let of = |host: &str, view: Result<LoadedView, String>| {
            of_path(&path, &BTreeMap::from([(host.to_owned(), view)]))
        };
        assert_eq!(of("a", view(2)), Fact::Known(CARRIED));
        for (found, told) in [
            (of("a", view(3)), "a did not tell what it carried"),
            (of("a", Err("a is busy".into())), "a is busy"),
            (of("c", view(2)), "a was not asked"),
        ] {
            assert_eq!(found, Fact::unknown(told));
        }
    }

    #[test]
    fn what_a_host_tells_of_loads_that_it_was_not_asked_for_does_not_count() {
        let near = "a".parse().unwrap();
        let told = |load: Option<Result<(), &str>>, carried| {
            let mut path = path(Fact::unknown("not asked"));
            path.carried = carried;
            path.together = Some(not_loaded_yet(&path));
            let load = load.map(|load| load.map_err(str::to_owned));
            as_asked(&near, &mut path, load.as_ref());
            assert_eq!(path.together, None);
            path.carried
        };
        let carried = Some(Fact::Known(CARRIED));
        assert_eq!(told(None, carried.clone()), None);
        assert_eq!(told(Some(Ok(())), carried.clone()), carried);
        let busy = "b is busy with a load of c";
        assert_eq!(told(Some(Err(busy)), carried), Some(Fact::unknown(busy)));
        let older = "the agent of a is of a version that loads no path";
        assert_eq!(told(Some(Ok(())), None), Some(Fact::unknown(older)));
    }

    #[test]
    fn what_a_host_measured_that_may_have_begun_late_is_not_known_and_what_spoils_others_is_told() {
        let near = "a".parse().unwrap();
        let after = |ms| {
            let view = LoadedView {
                paths: vec![LoadedPath {
                    nic: "n0".into(),
                    to: [10, 0, 0, 2].into(),
                    carried: Fact::Known(CARRIED),
                }],
                took_ms: 2_800,
                spoiled: Some("1 migration was under way at a".into()),
            };
            unless_late(&near, view, Duration::from_millis(ms))
        };
        assert_eq!(after(3_000).paths[0].carried, Fact::Known(CARRIED));
        // What it says cannot be more than there was.
        assert_eq!(after(1_000).paths[0].carried, Fact::Known(CARRIED));
        let late = after(3_001);
        let why = late.paths[0].carried.get().unwrap_err();
        assert!(
            why.starts_with("a may have begun later than the others"),
            "{why}"
        );
        assert!(late.spoiled.is_some());
    }

    #[test]
    fn why_a_path_was_not_loaded_alone_is_why_it_is_not_with_others() {
        let together = not_loaded_yet(&path(Fact::unknown("b is busy with a load of c")));
        let why = "it was not measured alone: b is busy with a load of c";
        assert_eq!(together.to_one, Fact::unknown(why));
        assert_eq!(together.each_other, Fact::unknown(why));
    }
}
