//! `drover drain`, `resume`, `rebalance`, `run` and `cancel --run` against an agent that plays a script.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "runs/agent.rs"]
mod agent;
#[path = "runs/views.rs"]
mod views;

use agent::{Agent, Look, document};
use serde_json::{Value, json};
use views::{ID, ended, one_move, planned, refusal, view};

const DRAIN: [&str; 2] = ["drain", "a"];

fn web_moved() -> Value {
    one_move(
        1,
        "web",
        "moved",
        &json!({"ended_at": "2026-11-22T16:00:04.1Z"}),
    )
}

fn completed() -> Value {
    ended(
        "completed",
        &json!({"moves": [web_moved()], "cordoned": ["a"]}),
    )
}

fn partial() -> Value {
    let failed =
        json!({"ended_at": "2026-11-22T16:00:09Z", "cause": "no path is left", "attempt": 2});
    ended(
        "partial",
        &json!({
            "moves": [web_moved(), one_move(2, "db", "failed", &failed)],
            "left": [{"vm": "ci", "host": "a", "why": "b: is full\nc: is cordoned",
                      "then": "runs on there; the host does not become empty"}],
            "cause": "db could not be moved", "next": "look at eth1 of b", "cordoned": ["a"],
        }),
    )
}

#[test]
fn a_drain_is_followed_to_its_end_with_its_plan_and_a_line_for_each_event() {
    let plan = planned();
    let moving = |state: &str| {
        let moves = json!([one_move(1, "web", state, &Value::Null)]);
        view(&json!({"phase": "moving", "plan": plan, "moves": moves}))
    };
    let agent = Agent::start(vec![
        Look::Is(view(&json!({"phase": "planning"}))),
        Look::Is(moving("waiting")),
        Look::Is(moving("moving")),
        Look::Is(completed()),
    ]);
    let (code, stdout, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(0), "{stderr}");
    insta::assert_snapshot!(stdout, @r"
    Drain a: nothing to move (plan 00000000)
    First, a is cordoned: it takes no more guests.

    Afterwards:
      The cluster can lose any host.

    NO  GUEST  FROM  TO  STATE  TOOK   WHY
    1   web    a     b   moved  4.1 s
    a takes no guests; `drover resume a` has it take them again
    Drain a: done, 1 of 1 guest moved in 12.3 s
    ");
    insta::assert_snapshot!(stderr, @r"
    run 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a, carried out by c
    planning
    1 web a -> b moving
    1 web a -> b moved in 4.1 s
    ");
    let request = json!({"request": {"kind": "drain", "hosts": ["a"]}, "by": "eve"});
    assert_eq!(agent.calls()[0], ("POST /v1/runs".to_owned(), request));
}

#[test]
fn a_drain_that_leaves_guests_tells_which_and_why_and_ends_with_6() {
    let agent = Agent::start(vec![Look::Is(partial())]);
    let (code, stdout, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(6), "{stderr}");
    insta::assert_snapshot!(stdout, @r"
    NO  GUEST  FROM  TO  STATE          TOOK   WHY
    1   web    a     b   moved          4.1 s
    2   db     a     b   failed, try 2  9.0 s  no path is left

    Not moved:
      ci on a: runs on there; the host does not become empty
        b: is full
        c: is cordoned
    a takes no guests; `drover resume a` has it take them again
    ");
    insta::assert_snapshot!(stderr, @r"
    run 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a, carried out by c
    1 web a -> b moved in 4.1 s
    2 db a -> b failed after 9.0 s: no path is left
    drover: not all is done: 1 of 2 guests moved in 12.3 s; db could not be moved
      next: look at eth1 of b
    ");
}

#[test]
fn json_is_one_document_at_the_end_however_it_ends() {
    for (look, exit, error) in [
        (completed(), 0, Value::Null),
        (partial(), 6, json!("run-partial")),
        (
            ended(
                "refused",
                &json!({"cause": "No plan: 1 guest cannot move."}),
            ),
            4,
            json!("run-refused"),
        ),
        (ended("cancelled", &Value::Null), 5, json!("cancelled")),
        (ended("so-so", &Value::Null), 1, json!("error")),
    ] {
        let agent = Agent::start(vec![Look::Is(look.clone())]);
        let (code, stdout, stderr) = agent.run(&[&DRAIN[..], &["--json"]].concat());
        assert_eq!((code, stderr.as_str()), (Some(exit), ""));
        let document = document(&stdout);
        assert_eq!(document["exit_code"], exit);
        assert_eq!(document["error"]["code"], error);
        assert_eq!(
            document["run"]["moves"],
            look.get("moves").cloned().unwrap_or(json!([]))
        );
    }
}

#[test]
fn a_run_without_a_plan_ends_with_4_and_every_reason() {
    let cause = "No plan: 1 guest cannot move.\n  web on a: must move\n    b: is cordoned";
    let agent = Agent::start(vec![Look::Is(ended("refused", &json!({"cause": cause})))]);
    let (code, stdout, stderr) = agent.run(&DRAIN);
    assert_eq!((code, stdout.as_str()), (Some(4), ""));
    assert!(stderr.ends_with(&format!("drover: {cause}\n")), "{stderr}");
}

#[test]
fn a_run_that_was_cancelled_ends_with_5_and_what_was_moved_until_then() {
    let dropped = one_move(2, "db", "dropped", &Value::Null);
    let look = ended("cancelled", &json!({"moves": [web_moved(), dropped]}));
    let agent = Agent::start(vec![Look::Is(look)]);
    let (code, stdout, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(5));
    assert!(stdout.contains("db     a     b   dropped"), "{stdout}");
    assert!(
        stderr.ends_with("drover: cancelled: 1 of 2 guests moved in 12.3 s\n"),
        "{stderr}"
    );
}

#[test]
fn ctrl_c_stops_following_and_the_run_goes_on() {
    for look in [Look::Is(view(&Value::Null)), Look::Hangs] {
        let agent = Agent::start(vec![look]);
        let (code, _, stderr) = agent.run_interrupted(&DRAIN);
        assert_eq!(code, Some(6), "{stderr}");
        let said = format!(
            "drover: no longer followed: the run goes on\n  next: `drover run {ID}` shows it, \
             `drover cancel --run` ends it\n"
        );
        assert!(stderr.ends_with(&said), "{stderr}");
        assert!(
            !agent
                .calls()
                .iter()
                .any(|(call, _)| call.ends_with("/cancel"))
        );
    }
    let agent = Agent::start(vec![Look::Is(view(&Value::Null))]);
    let (code, stdout, stderr) = agent.run_interrupted(&[&DRAIN[..], &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (Some(6), ""));
    assert_eq!(document(&stdout)["error"]["code"], "not-followed");
    assert_eq!(document(&stdout)["run"]["id"], ID);
}

#[test]
fn ctrl_c_before_the_agent_has_answered_says_that_the_run_may_have_begun() {
    let agent = Agent::beginning(Look::Hangs);
    let (code, stdout, stderr) = agent.run_interrupted(&DRAIN);
    assert_eq!((code, stdout.as_str()), (Some(6), ""));
    assert!(stderr.contains("the run may have begun"), "{stderr}");
    assert!(
        stderr.contains("`drover run` shows whether it has"),
        "{stderr}"
    );
}

#[test]
fn an_answer_that_was_lost_leaves_open_whether_the_run_began() {
    let agent = Agent::beginning(Look::ClosesTheConnection);
    let (code, _, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(7));
    assert!(
        stderr.contains("it may have begun all the same"),
        "{stderr}"
    );
}

#[test]
fn an_agent_that_is_away_or_without_its_store_for_a_moment_is_waited_for() {
    let away = refusal("store-unavailable", "the file is locked");
    let agent = Agent::start(vec![
        Look::Is(view(&Value::Null)),
        Look::ClosesTheConnection,
        Look::Answers(503, away),
        Look::ClosesTheConnection,
        Look::Is(completed()),
    ]);
    let (code, stdout, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.ends_with("Drain a: done, 1 of 1 guest moved in 12.3 s\n"),
        "{stdout}"
    );
}

#[test]
fn a_run_that_the_agent_no_longer_knows_is_not_waited_for() {
    let gone = refusal("no-such-run", "no run of that id");
    let agent = Agent::start(vec![Look::Answers(404, gone)]);
    let (code, _, stderr) = agent.run(&DRAIN);
    assert_eq!(code, Some(4));
    assert!(stderr.ends_with("drover: no run of that id\n"), "{stderr}");
}

#[test]
fn what_the_agent_refuses_to_begin_ends_with_4_and_its_word() {
    for code in ["run-under-way", "not-the-coordinator", "plan-outdated"] {
        let agent = Agent::beginning(Look::Answers(409, refusal(code, "not now")));
        let (exit, stdout, _) = agent.run(&[&DRAIN[..], &["--json"]].concat());
        assert_eq!(exit, Some(4), "{code}");
        assert_eq!(document(&stdout)["error"]["code"], code);
        assert_eq!(agent.calls().len(), 1, "nothing was followed");
    }
}

#[test]
fn a_plan_from_a_file_is_carried_out_exactly_and_an_edited_one_is_not_even_asked_for() {
    let agent = Agent::start(vec![Look::Is(completed())]);
    let file = agent.path("plan.json");
    let write = |value: &Value| std::fs::write(&file, value.to_string()).unwrap();
    let from_file = ["drain", "--plan", &file];
    let plan = planned();
    write(&plan);
    let (code, _, stderr) = agent.run(&from_file);
    assert_eq!(code, Some(0), "{stderr}");
    let calls = agent.calls();
    assert_eq!(calls[0].1["plan"], plan);
    assert_eq!(calls[0].1["request"], plan["request"]);

    let mut edited = plan.clone();
    edited["cordon"] = json!([]);
    let mut rebalance = plan;
    rebalance["request"] = json!({"kind": "rebalance", "min_gain": 1, "most_moves": 1});
    for (content, said) in [
        (edited, "was changed after it was made"),
        (views::sealed(&rebalance), "is not of a drain"),
        (json!({"format": 9}), "is no plan"),
    ] {
        write(&content);
        let (code, _, stderr) = agent.run(&from_file);
        assert_eq!(code, Some(4), "{stderr}");
        assert!(stderr.contains(said) && stderr.contains(&file), "{stderr}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(agent.run(&from_file).0, Some(1), "no file");
    assert_eq!(agent.calls().len(), calls.len(), "nothing was asked");
}

#[test]
fn a_dry_run_asks_for_a_plan_and_for_nothing_else() {
    let agent = Agent::start(vec![]);
    let file = agent.path("plan.json");
    let (code, stdout, stderr) = agent.run(&["drain", "a", "--dry-run", "-o", &file]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("Nothing was changed."), "{stdout}");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(written, planned());
    let (code, ..) = agent.run(&["rebalance", "--dry-run", "--min-gain", "2.5", "--most", "3"]);
    assert_eq!(code, Some(0));
    let request = |value: Value| ("POST /v1/plan".to_owned(), json!({"request": value}));
    let drain = json!({"kind": "drain", "hosts": ["a"]});
    let rebalance = json!({"kind": "rebalance", "min_gain": 250, "most_moves": 3});
    assert_eq!(agent.calls(), [request(drain), request(rebalance)]);
}

#[test]
fn a_guest_that_did_not_come_home_is_a_warning() {
    let left =
        json!([{"vm": "db", "host": "b", "why": "a: has no room", "then": "stays where it is"}]);
    let request = json!({"kind": "resume", "host": "a", "homes": []});
    let look = ended("completed", &json!({"request": request, "left": left}));
    let agent = Agent::start(vec![Look::Is(look)]);
    let (code, stdout, stderr) = agent.run(&["resume", "a", "--fail-back"]);
    assert_eq!(code, Some(0), "{stderr}");
    let warning = "guest db is not home, it is on b: a: has no room";
    assert_eq!(
        stdout,
        format!("Resume a: done, nothing was moved\nwarning: {warning}\n")
    );
    let asked = json!({"request": request, "fail_back": true, "by": "eve"});
    assert_eq!(agent.calls()[0].1, asked);
    let (_, stdout, _) = agent.run(&["resume", "a", "--json"]);
    assert_eq!(document(&stdout)["warnings"], json!([warning]));
}

#[test]
fn detached_a_run_is_begun_and_not_looked_at() {
    let agent = Agent::start(vec![]);
    let (code, stdout, stderr) = agent.run(&["rebalance", "--detach"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(
        stdout.contains(&format!("`drover run {ID}` shows it")),
        "{stdout}"
    );
    let request = json!({"kind": "rebalance", "min_gain": 500, "most_moves": 10});
    let calls = agent.calls();
    assert_eq!((calls.len(), &calls[0].1["request"]), (1, &request));
}

#[test]
fn runs_are_listed_shown_and_followed_again() {
    let moves = json!({"phase": "moving", "moves": [web_moved(), one_move(2, "db", "moving", &Value::Null)]});
    let runs = Look::Is(json!([view(&moves), completed()]));
    let agent = Agent::start(vec![runs.clone()]);
    let (code, stdout, _) = agent.run(&["run"]);
    assert_eq!(code, Some(0));
    let lines: Vec<_> = stdout.lines().collect();
    assert!(
        lines[1].starts_with("Drain a  moving     1 of 2  "),
        "{stdout}"
    );
    assert!(
        lines[2].starts_with("Drain a  completed  1 of 1  "),
        "{stdout}"
    );
    assert!(
        lines[1].ends_with(&format!("-       eve  {ID}")),
        "{stdout}"
    );

    let agent = Agent::start(vec![Look::Is(partial())]);
    let (code, stdout, _) = agent.run(&["run", ID]);
    assert_eq!(code, Some(0), "looking at it is no failure");
    for said in [
        "carried out by  c",
        "db     a     b   failed, try 2",
        "no path is left",
        "Not moved:",
    ] {
        assert!(stdout.contains(said), "{said}: {stdout}");
    }

    let agent = Agent::start(vec![runs, Look::Is(view(&moves)), Look::Is(partial())]);
    let (code, ..) = agent.run(&["run", "--follow"]);
    assert_eq!(code, Some(6));
}

#[test]
fn a_run_is_cancelled_by_its_id_or_because_it_is_under_way() {
    let agent = Agent::start(vec![Look::Is(json!([completed(), view(&Value::Null)]))]);
    let (code, stdout, stderr) = agent.run(&["cancel", "--run", "--let-finish", "--uncordon"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.starts_with("Drain a is being cancelled: no further move begins"),
        "{stdout}"
    );
    let (code, ..) = agent.run(&["cancel", "--run", ID]);
    assert_eq!(code, Some(0));
    let cancel = format!("POST /v1/runs/{ID}/cancel");
    let cancels: Vec<_> = agent
        .calls()
        .into_iter()
        .filter(|(call, _)| *call == cancel)
        .collect();
    assert_eq!(cancels[0].1, json!({"running": "finish", "uncordon": true}));
    assert_eq!(
        cancels[1].1,
        json!({"running": "cancel", "uncordon": false})
    );

    let agent = Agent::start(vec![Look::Is(json!([completed()]))]);
    let (code, _, stderr) = agent.run(&["cancel", "--run"]);
    assert_eq!(code, Some(4));
    assert!(stderr.contains("no run is under way"), "{stderr}");
}

#[test]
fn what_contradicts_itself_is_wrong_usage_and_nothing_is_asked() {
    let agent = Agent::start(vec![]);
    for arguments in [
        &["drain"][..],
        &["drain", "a", "--plan", "p.json"],
        &["drain", "a", "-o", "p.json"],
        &["drain", "--plan", "p.json", "-o", "q.json"],
        &["drain", "--plan", "p.json", "--dry-run"],
        &["drain", "a", "--dry-run", "--detach"],
        &["drain", "a", "--dry-run", "--force"],
        &["rebalance", "--min-gain", "-1"],
        &["rebalance", "--most", "0"],
        &["cancel"],
        &["cancel", "web", "--run"],
        &["cancel", "web", "--uncordon"],
        &["cancel", "web", "--let-finish"],
        &["cancel", "--run", "web"],
        &["run", "web"],
    ] {
        let (code, _, stderr) = agent.run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
    }
    assert_eq!(agent.calls(), []);
}

#[test]
fn maintenance_is_a_drain_and_a_way_home_by_other_names() {
    let agent = Agent::start(vec![Look::Is(completed())]);
    let (code, _, stderr) = agent.run(&["maintenance", "on", "a"]);
    assert_eq!(code, Some(0), "{stderr}");
    let asked = &agent.calls()[0].1;
    assert_eq!(asked["request"], json!({"kind": "drain", "hosts": ["a"]}));

    let agent = Agent::start(vec![Look::Is(completed())]);
    let (code, _, stderr) = agent.run(&["maintenance", "off", "a"]);
    assert_eq!(code, Some(0), "{stderr}");
    let asked = &agent.calls()[0].1;
    assert_eq!(asked["request"]["kind"], "resume");
    assert_eq!(asked["fail_back"], true);
}
