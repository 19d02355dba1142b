//! `drover doctor --all --paths` of agents on the loopback, between which there is no path. Those that have some are tests of
//! `droverd`.

mod hosts;

use hosts::Host;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_asked_is_named_and_a_silent_member_is_named_once() {
    let a = Host::start("a").await;
    a.done(&["cluster", "init"]);
    let mut b = Host::start("b").await;
    a.join(&b);

    let ran = a.drover(&["doctor", "--all", "--paths", "--json"]);
    let document = ran.document();
    // By what the machine is: with a finding, or for want of a path.
    assert!(matches!(ran.code, Some(1 | 2)), "{document:#}");
    assert_eq!(document["paths"], Value::Array(Vec::new()));
    assert_eq!(document["left_out"], Value::Array(Vec::new()));
    // Both have the addresses of this machine.
    let skipped = document["skipped"].as_array().unwrap();
    let left_out = document["paths_left_out"].as_array().unwrap().iter();
    let (of_nics, pairs): (Vec<_>, Vec<_>) = left_out.partition(|left| left["nic"].is_string());
    let pairs: Vec<_> = pairs
        .iter()
        .map(|pair| (&pair["near"], &pair["far"]))
        .collect();
    assert_eq!(
        pairs,
        [(&"a".into(), &"b".into()), (&"b".into(), &"a".into())]
    );
    for left in of_nics {
        let same = |one: &&Value| {
            one["rule"] == "path-reach"
                && one["subject"]["nic"] == left["nic"]
                && one["because"] == left["why"]
        };
        assert!(skipped.iter().any(|one| same(&one)), "{document:#}");
    }
    // Of that rule alone nothing is found, but that one pair could not be asked is no "all is well".
    let explained = a.drover(&["doctor", "--all", "--paths", "--explain=path-reach"]);
    assert_eq!(explained.code, Some(1), "{}", explained.stdout);
    assert!(explained.stdout.contains("not asked: a to b"));
    let said = a.drover(&["doctor", "--all", "--paths=b"]).stdout;
    assert!(said.starts_with("0 paths were asked\n"), "{said}");

    b.stop();
    let document = a
        .drover(&["doctor", "--all", "--paths", "--json"])
        .document();
    let silent: Vec<_> = document["left_out"].as_array().unwrap().iter().collect();
    assert_eq!(silent.len(), 1, "{document:#}");
    assert_eq!(silent[0]["host"], "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_one_host_alone_and_of_a_host_that_is_not_there_are_refused() {
    let a = Host::start("a").await;
    let alone = a.drover(&["doctor", "--paths"]);
    assert_eq!(alone.code, Some(2));
    assert!(alone.stderr.contains("--all"), "{}", alone.stderr);
    let without = a.drover(&["doctor", "--all", "--paths"]);
    assert_eq!(without.code, Some(1), "{}", without.stderr);
    assert!(without.stderr.contains("cluster"), "{}", without.stderr);
    a.done(&["cluster", "init"]);
    let unknown = a.drover(&["doctor", "--all", "--paths=x"]);
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("no host x"), "{}", unknown.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_told_since_all_were_asked_and_what_the_agent_cannot_use_or_keep_is_said() {
    let a = Host::start("a").await;
    a.done(&["cluster", "init"]);
    let since = |more: &[&str]| {
        let all = ["doctor", "--all", "--since", "1h"];
        a.drover(&[&all[..], more].concat())
    };
    let never = since(&[]).stdout;
    assert!(
        never.starts_with("the agent keeps nothing of before"),
        "{never}"
    );
    a.drover(&["doctor", "--all", "--paths"]);
    let document = since(&["--json"]).document();
    let told = &document["since"];
    assert!(told["asked"].is_string(), "{document:#}");
    assert_eq!(told["paths"], Value::Array(Vec::new()));
    let told = since(&["--paths"]).stdout;
    assert!(told.contains("changed since 20"), "{told}");

    let kept = a.place.path("state/doctor");
    for file in std::fs::read_dir(&kept).unwrap() {
        std::fs::write(file.unwrap().path(), "{").unwrap();
    }
    let damaged = since(&[]).stdout;
    assert!(damaged.starts_with("not usable: "), "{damaged}");
    assert!(damaged.contains("keeps nothing of before"), "{damaged}");

    std::fs::remove_dir_all(&kept).unwrap();
    std::fs::write(&kept, "in the way").unwrap();
    let said = a.drover(&["doctor", "--all", "--paths"]).stdout;
    assert!(said.contains("the agent does not keep them: "), "{said}");
    let refused = since(&[]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("state/doctor"),
        "{}",
        refused.stderr
    );
}
