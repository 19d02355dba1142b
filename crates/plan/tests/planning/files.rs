//! Facts, policies, requests, plans and refusals as JSON: read as written, or refused.

use drover_plan::inventory::{HostState, Inventory};
use drover_plan::{ClusterPolicy, NotThisPlan, Plan, Refusal, Request, Text, plan};
use drover_types::{ByteRate, Bytes};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::build::{drain, host, inventory, loose, vm};
use crate::models::case;

fn facts() -> Inventory {
    inventory(
        [host("h1", 32), host("h2", 32)],
        [vm("web", "h1", 8), vm("db", "h2", 8)],
    )
}

fn made() -> Plan {
    plan(&facts(), &loose(), &drain(&["h1"])).unwrap()
}

fn edited(change: impl FnOnce(&mut Value)) -> Result<Plan, serde_json::Error> {
    let mut value = serde_json::to_value(made()).unwrap();
    change(&mut value);
    serde_json::from_value(value)
}

proptest! {
    #[test]
    fn all_documents_are_read_as_they_are_written(case in case()) {
        let text = serde_json::to_string(&case.inventory).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Inventory>(&text).unwrap(), &case.inventory);
        let text = serde_json::to_string(&case.policy).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ClusterPolicy>(&text).unwrap(), &case.policy);
        let text = serde_json::to_string(&case.request).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Request>(&text).unwrap(), &case.request);
        match plan(&case.inventory, &case.policy, &case.request) {
            Ok(plan) => {
                let text = serde_json::to_string(&plan).unwrap();
                let read: Plan = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(read.verify(&case.inventory, &case.policy), Ok(()));
                prop_assert_eq!(read, plan);
            }
            Err(refusal) => {
                let text = serde_json::to_string(&refusal).unwrap();
                prop_assert_eq!(serde_json::from_str::<Refusal>(&text).unwrap(), refusal);
            }
        }
    }
}

#[test]
fn a_plan_that_was_edited_is_refused() {
    let changes: [fn(&mut Value); 4] = [
        |plan| plan["steps"][0]["to"] = json!("h1"),
        |plan| plan["steps"] = json!([]),
        |plan| plan["afterwards"]["losses"]["can_lose"] = json!(7),
        |plan| plan["inputs"] = json!("0".repeat(64)),
    ];
    for change in changes {
        let refused = edited(change)
            .unwrap()
            .verify(&facts(), &loose())
            .unwrap_err();
        assert!(matches!(refused, NotThisPlan::Edited { .. }), "{refused}");
    }
}

#[test]
fn a_plan_of_another_version_or_with_words_that_nobody_knows_is_refused() {
    let other = edited(|plan| plan["format"] = json!(4)).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("format 4, and this version reads 1 to 3"),
        "{other}"
    );
    let words = edited(|plan| plan["steps"][0]["also"] = json!("restart")).unwrap_err();
    assert!(
        words.to_string().contains("unknown field `also`"),
        "{words}"
    );
    let digest = edited(|plan| plan["seal"] = json!("abc")).unwrap_err();
    assert!(digest.to_string().contains("no digest"), "{digest}");
}

#[test]
fn a_plan_has_the_second_format_only_where_versions_before_would_not_understand_it() {
    let format = |facts: &Inventory| {
        let made = plan(facts, &loose(), &drain(&["h1"])).unwrap();
        serde_json::to_value(made).unwrap()["format"].clone()
    };
    let text = |words: &str| Text::from(words.to_owned());
    let mut called = facts();
    assert_eq!(format(&called), json!(1));
    called.vms[0].called = Some(text("libvirt's \"web\""));
    assert_eq!(format(&called), json!(2));
    let mut lacking = facts();
    lacking.hosts[1].lacks = [(text("network"), text("is not there"))].into();
    assert_eq!(format(&lacking), json!(2));
}

#[test]
fn a_plan_is_outdated_when_something_changes_that_it_rests_on() {
    type Change = fn(&mut Inventory, &mut ClusterPolicy);
    let changes: [Change; 10] = [
        |facts, _| {
            facts.vms[0]
                .needs
                .extend([Text::from("network".to_owned())])
        },
        |facts, _| {
            let network = Text::from("network".to_owned());
            facts.hosts[1].lacks.insert(network.clone(), network);
        },
        |facts, _| facts.vms.push(vm("new", "h1", 1)),
        |facts, _| drop(facts.vms.pop()),
        |facts, _| facts.vms[0].memory = Bytes(9 << 30),
        |facts, _| facts.vms[0].policy.priority = 7,
        |facts, _| facts.hosts[1].memory = Bytes(31 << 30),
        |facts, _| facts.hosts[1].state = HostState::Cordoned,
        |facts, _| facts.hosts[0].state = HostState::Unreachable,
        |_, policy| policy.inbound = 7,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let (mut facts, mut policy) = (facts(), loose());
        change(&mut facts, &mut policy);
        let refused = made().verify(&facts, &policy).unwrap_err();
        assert!(
            matches!(refused, NotThisPlan::Outdated { .. }),
            "{index}: {refused}"
        );
        assert!(
            refused.to_string().contains("plan again to drain h1"),
            "{refused}"
        );
    }
}

#[test]
fn a_plan_is_still_good_when_guests_went_on_running_and_its_host_was_cordoned() {
    let mut facts = facts();
    facts.hosts[0].state = HostState::Cordoned;
    facts.hosts[1].facts_age_seconds = 50;
    facts.vms[0].memory_used = Bytes(1);
    facts.vms[0].dirty_rate = Some(ByteRate(1 << 30));
    facts.vms[0].working_set = Some(Bytes(5));
    facts.vms[0].called = Some(Text::from("what it is called now".to_owned()));
    facts.vms.reverse();
    facts.hosts[1].memory_for_host = Bytes(1 << 30);
    assert_eq!(made().verify(&facts, &loose()), Ok(()));
}

#[test]
fn a_plan_is_outdated_when_others_than_guests_have_taken_the_room_that_it_needs() {
    let mut facts = facts();
    let to = made().steps[0].to.clone();
    let host = facts.hosts.iter_mut().find(|host| host.name == to).unwrap();
    host.memory_for_host = host.memory;
    let refused = made().verify(&facts, &loose()).unwrap_err();
    assert!(matches!(refused, NotThisPlan::NoRoom { .. }), "{refused}");
    let words = refused.to_string();
    assert!(
        words.contains("less for guests than this plan needs"),
        "{words}"
    );
    assert!(words.contains("plan again to drain h1"), "{words}");
}

#[test]
fn words_that_no_policy_or_inventory_has_are_refused_with_those_that_it_has() {
    let policy = |text: &str| {
        serde_json::from_str::<ClusterPolicy>(text)
            .unwrap_err()
            .to_string()
    };
    assert!(policy(r#"{"headrom": 5}"#).contains("unknown field `headrom`"));
    assert!(
        policy(r#"{"spread": "sometimes"}"#)
            .contains("expected one of `ignore`, `prefer`, `require`")
    );
    assert!(
        policy(r#"{"headroom": {"kind": "percent", "percent": 5, "x": 1}}"#)
            .contains("unknown field `x`")
    );
    let with = |vm: Value| {
        let mut value = serde_json::to_value(facts()).unwrap();
        value["vms"][0]["policy"] = vm;
        serde_json::from_value::<Inventory>(value)
            .unwrap_err()
            .to_string()
    };
    let words = with(json!({"cannot_move": "poweroff"}));
    assert!(
        words.contains("`block`, `skip`, `suspend`, `stop-and-start`"),
        "{words}"
    );
    assert!(with(json!({"apart": [{"group": "a b"}]})).contains("not usable as a label"));
    assert!(with(json!({"priority": -1})).contains("invalid value"));
    let request = serde_json::from_str::<Request>(r#"{"kind": "explode"}"#).unwrap_err();
    assert!(
        request
            .to_string()
            .contains("`drain`, `resume`, `rebalance`"),
        "{request}"
    );
}
