use super::*;
use serde_json::json;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn ages_are_told_in_the_unit_that_fits() {
    let then = at("2026-11-21T20:00:00Z");
    let age = |now: &str| age(then, at(now));
    assert_eq!(age("2026-11-21T20:00:08Z"), "8 s");
    assert_eq!(age("2026-11-21T20:05:08Z"), "5 min");
    assert_eq!(age("2026-11-21T23:05:08Z"), "3 h");
    assert_eq!(age("2026-12-03T23:05:08Z"), "12 d");
    assert_eq!(age("2026-11-21T19:00:00Z"), "0 s", "clocks may be set back");
}

#[test]
fn times_are_told_in_the_unit_that_fits() {
    assert_eq!(milliseconds(85), "85 ms");
    assert_eq!(milliseconds(3250), "3.2 s");
    assert_eq!(milliseconds(125_000), "2 min 5 s");
}

#[test]
fn a_table_is_as_wide_as_its_cells() {
    let text = table(&[
        row(&["NAME", "STATE"]),
        row(&["web", "running"]),
        row(&["a-long-one", "-"]),
    ]);
    assert_eq!(
        text,
        "NAME        STATE\nweb         running\na-long-one  -\n"
    );
}

#[test]
fn problems_of_guests_stand_below_the_list() {
    let list: Vec<VmView> = serde_json::from_value(json!([
        {"name": "web", "state": "stopped", "memory": 1 << 30, "vcpus": 2},
        {"name": "bad", "state": "invalid", "problem": "line 3: nonsense"},
        {"name": "Käfer 1", "state": "running", "source": "libvirt", "memory": 1 << 30, "vcpus": 1, "pid": 47},
    ]))
    .unwrap();
    insta::assert_snapshot!(vms(&list), @r"
    NAME     STATE    SOURCE   SINCE  MEMORY  VCPUS  PID  MACHINE
    web      stopped  drover   -      1 GiB   2      -    -
    bad      invalid  drover   -      -       -      -    -
    Käfer 1  running  libvirt  -      1 GiB   1      47   -
    bad: line 3: nonsense
    ");
    assert!(vms(&[]).contains("define one"));
}

#[test]
fn a_guest_is_shown_with_how_it_ended() {
    let view: VmView = serde_json::from_value(json!({
        "name": "web", "state": "failed", "memory": 1 << 30, "vcpus": 2,
        "last_exit": {"exit": {"signal": 9}, "stderr": ["disk on fire"],
                      "at": "2026-11-21T20:00:00Z", "expected": false},
        "problem": "qemu ended unasked, with signal 9",
    }))
    .unwrap();
    insta::assert_snapshot!(vm(&view), @r"
    name       web
    state      failed
    source     drover
    memory     1 GiB
    vcpus      2
    problem    qemu ended unasked, with signal 9
    last exit  signal 9, unasked, 2026-11-21T20:00:00Z
               disk on fire
    ");
}
