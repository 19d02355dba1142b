//! Plans from reports, and plans in files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod reports;

use drover_change::{FileError, LastingFile, PlanError, read, write};
use drover_tune::{Disruption, NicSetting};
use reports::{all, file, nic, planned, report, rules};

#[test]
fn a_plan_has_what_is_safe_once_and_says_what_it_leaves_out() {
    let (plan, left_out) = planned(&all(), false);
    assert_eq!(rules(&plan), ["tcp-buffers", "nic-offloads"]);
    plan.check().unwrap();
    assert!(!plan.bounces());
    let said: Vec<String> = left_out
        .iter()
        .map(|(rule, why)| format!("{rule}: {why}"))
        .collect();
    assert_eq!(
        said,
        [
            "tcp-same: another change does the same",
            "tcp-other: net.ipv4.tcp_wmem becomes \"4096 16384 8388608\" already, by another change",
            "nic-queues: it may bounce the link",
            "mtu-layers: it may bounce the link",
            "firmware: it is persistent",
        ]
    );
}

#[test]
fn what_bounces_a_link_is_asked_for_by_word_and_so_are_larger_packets() {
    let (plan, left_out) = planned(&all(), true);
    let bounce = ["nic-queues", "mtu-layers"];
    assert_eq!(
        rules(&plan),
        [&["tcp-buffers", "nic-offloads"][..], &bounce].concat()
    );
    assert!(plan.bounces());
    assert!(
        !left_out.iter().any(|(rule, _)| bounce.contains(&&**rule)),
        "{left_out:?}"
    );
}

#[test]
fn a_file_shows_a_diff_and_is_read_as_the_plan_that_it_was_written_from() {
    let (plan, _) = planned(&all(), true);
    let text = write(&plan).unwrap();
    for line in [
        "# - net.ipv4.tcp_wmem = 4096 16384 4194304",
        "# + net.ipv4.tcp_wmem = 4096 16384 8388608",
        "#   sysctl -w 'net.ipv4.tcp_wmem=4096 16384 8388608'",
        "# - ens1f0 rx-gro = off",
        "#   ethtool -L ens1f0 combined 8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(read(&text).unwrap(), plan);
    let bare: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(read(&bare.join("\n")).unwrap(), plan);
    // An operator takes one change out.
    let (head, rest) = text.split_once("\n[[changes]]\n").unwrap();
    let (_, rest) = rest.split_once("\n[[changes]]\n").unwrap();
    let fewer = read(&format!("{head}\n[[changes]]\n{rest}")).unwrap();
    assert_eq!(rules(&fewer), ["nic-offloads", "nic-queues", "mtu-layers"]);
}

#[test]
fn a_file_that_says_more_or_less_than_a_plan_is_refused() {
    let text = write(&planned(&report(&[]), false).0).unwrap();
    assert_eq!(read(&text), Err(FileError::Plan(PlanError::Empty)));
    let change = "[[changes]]\nrule='r'\ndisruption='safe'\nwhy='w'\n[[changes.steps]]\nfrom='1'\n";
    let with = |step: &str| read(&format!("{text}\n{change}{step}\n"));
    assert!(with("to='2'\nfile='proc/irq/7/smp_affinity_list'").is_ok());
    for wrong in [
        "to='2'",
        "to='2'\nfile='proc/irq/7/smp_affinity_list'\nnic='a'",
        "to='2'\nnic='a'\nsetting='mtu'\nfeature='x'",
    ] {
        assert!(
            matches!(with(wrong), Err(FileError::Step { step: 1, .. })),
            "{wrong}"
        );
    }
    for strange in [
        "file='proc/irq/7/smp_affinity_list'",
        "to='2'\nfile='proc/sys/net/ipv4/tcp_timestamps'\nhow='fast'",
        "to='2'\nnic='a'\nsetting='colour'",
    ] {
        assert!(
            matches!(with(strange), Err(FileError::Text(_))),
            "{strange}"
        );
    }

    let escape = with("to=\"\\u001b[2J\"\nfile='proc/irq/7/smp_affinity_list'");
    assert!(
        matches!(escape, Err(FileError::Plan(PlanError::Word { .. }))),
        "{escape:?}"
    );
    let twice = format!(
        "to='2'\nfile='proc/irq/7/smp_affinity_list'\n{change}to='3'\nfile='proc/irq/7/smp_affinity_list'"
    );
    assert!(matches!(
        with(&twice),
        Err(FileError::Plan(PlanError::Twice { .. }))
    ));
}

#[test]
fn a_file_that_is_too_long_is_not_looked_at() {
    let long = "#".repeat((4 << 20) + 1);
    assert!(matches!(read(&long), Err(FileError::Long { .. })));
}

#[test]
fn files_of_an_interface_whose_queues_become_others_are_left_out() {
    let far = file("proc/irq/7/smp_affinity_list", "0-3");
    let found = report(&[
        ("nic-interrupts", Disruption::Safe, vec![far]),
        (
            "nic-queues",
            Disruption::BouncesLink,
            vec![nic(NicSetting::CombinedChannels, "1", "8")],
        ),
    ]);
    let (plan, left_out) = planned(&found, true);
    assert_eq!(rules(&plan), ["nic-queues"]);
    assert_eq!(left_out[0].0, "nic-interrupts");
    assert!(
        left_out[0].1.contains("run the doctor again"),
        "{left_out:?}"
    );
    // As long as these stay, so do they.
    assert_eq!(rules(&planned(&found, false).0), ["nic-interrupts"]);
}

/// As one is with what makes it last.
fn lasting() -> Vec<LastingFile> {
    let file = |file: &str, was: &str, goes: &[&str]| LastingFile {
        by: "somebody".into(),
        file: file.into(),
        was: was.into(),
        goes: goes.iter().map(|line| (*line).to_owned()).collect(),
        comes: vec!["x = \"1\"".to_owned(), "y = 2".to_owned()],
    };
    vec![
        file("/etc/new", LastingFile::NONE, &[]),
        file("/etc/old", "sha256:00", &["x = 0"]),
    ]
}

#[test]
fn what_makes_it_last_is_shown_as_a_diff_and_read_as_it_was_written() {
    let (mut plan, _) = planned(&all(), false);
    for files in [lasting(), Vec::new()] {
        plan.lasting = Some(files);
        let text = write(&plan).unwrap();
        assert_eq!(read(&text).unwrap(), plan, "{text}");
    }
    plan.lasting = Some(lasting());
    let text = write(&plan).unwrap();
    let (_, shown) = text.split_once("[lasting]").unwrap();
    let diff: Vec<&str> = shown.lines().filter(|line| line.starts_with('#')).collect();
    let expected = [
        "# /etc/new, which is new",
        "# + x = \"1\"",
        "# + y = 2",
        "# /etc/old",
        "# - x = 0",
        "# + x = \"1\"",
        "# + y = 2",
    ];
    assert_eq!(diff, expected);
    // An operator takes a line out, and what belongs to it.
    let fewer = shown.lines().filter(|line| !line.contains("\"y = 2\""));
    let fewer: Vec<&str> = fewer.collect();
    let head = text.split("[lasting]").next().unwrap();
    let fewer = read(&format!("{head}[lasting]{}", fewer.join("\n"))).unwrap();
    let files = fewer.lasting.unwrap();
    assert!(
        files.iter().all(|file| file.comes == ["x = \"1\""]),
        "{files:#?}"
    );
}

#[test]
fn what_would_be_an_order_to_a_terminal_is_no_line_of_a_file() {
    let (mut plan, _) = planned(&all(), false);
    let spoils: [fn(&mut LastingFile, String); 5] = [
        |file, word| file.by = word,
        |file, word| file.file = word,
        |file, word| file.was = word,
        |file, word| file.goes = vec![word],
        |file, word| file.comes = vec![word],
    ];
    for spoil in spoils {
        let mut files = lasting();
        spoil(&mut files[0], "\u{1b}[2J".to_owned());
        plan.lasting = Some(files);
        assert!(matches!(plan.check(), Err(PlanError::Word { .. })));
    }
}
