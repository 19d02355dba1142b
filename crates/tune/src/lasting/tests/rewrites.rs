//! What becomes of files that somebody has written.

use std::collections::BTreeMap;

use super::*;

fn lines(part: Option<&str>, lines: &[&str]) -> How {
    How::Lines {
        path: "/etc/a".into(),
        part: part.map(str::to_owned),
        lines: strings(lines),
    }
}

fn file(path: &str, lines: &[&str]) -> How {
    How::File {
        path: path.into(),
        lines: strings(lines),
    }
}

fn by(how: How) -> Lasting {
    Lasting::by("somebody", how)
}

fn becomes(before: &str, how: &How, after: &str) {
    let done = edited(Some(before), how).unwrap();
    assert_eq!(done, after);
    assert_eq!(edited(Some(&done), how).unwrap(), done, "once is enough");
}

#[test]
fn a_line_of_sysctl_takes_the_place_of_all_that_set_the_same_and_every_other_byte_stays() {
    let how = lines(None, &["net.ipv4.tcp_rmem = 7 8 9"]);
    becomes(
        "# ours\n-net/ipv4/tcp_rmem=1 2 3\n\n; net.ipv4.tcp_rmem = 0\nvm.x=1\n  net.ipv4.tcp_rmem=4\nvm.y = 2",
        &how,
        "# ours\n\n; net.ipv4.tcp_rmem = 0\nvm.x=1\n  net.ipv4.tcp_rmem = 7 8 9\nvm.y = 2\n",
    );
    becomes(
        "vm.x=1\n# end\n",
        &how,
        "vm.x=1\nnet.ipv4.tcp_rmem = 7 8 9\n# end\n",
    );
    becomes("", &how, "net.ipv4.tcp_rmem = 7 8 9\n");
}

#[test]
fn a_line_of_a_part_is_set_in_that_part_alone_and_one_that_is_missing_is_made() {
    let how = lines(Some("[Link]"), &["MTUBytes=1500"]);
    becomes(
        "[Match]\nMTUBytes=1\n[Link]\nMTUBytes = 9000\n\n[X]\nMTUBytes=2\n",
        &how,
        "[Match]\nMTUBytes=1\n[Link]\nMTUBytes=1500\n\n[X]\nMTUBytes=2\n",
    );
    becomes(
        "[Link]\nName=a\n\n# about the next\n[X]\n",
        &how,
        "[Link]\nName=a\nMTUBytes=1500\n\n# about the next\n[X]\n",
    );
    becomes("[Link]\n[X]\n", &how, "[Link]\nMTUBytes=1500\n[X]\n");
    becomes("[X]\na=1\n", &how, "[X]\na=1\n\n[Link]\nMTUBytes=1500\n");
    let how = lines(Some("[sysctl]"), &["net.ipv4.tcp_rmem=7"]);
    becomes(
        "[sysctl]\nnet/ipv4/tcp_rmem = 1\n",
        &how,
        "[sysctl]\nnet.ipv4.tcp_rmem=7\n",
    );
}

#[test]
fn a_line_of_ifupdown_is_set_in_the_stanza_of_its_interface_and_as_far_in_as_its_others() {
    let how = lines(Some("iface eth0"), &["mtu 1500"]);
    let stanzas = |eth0: &str| {
        format!(
            "auto eth0 eth1\niface eth1 inet dhcp\n\tmtu 9000\niface eth0 inet static\n{eth0}allow-hotplug eth2\nsource x\n"
        )
    };
    for (before, after) in [
        ("\taddress 10.0.0.1\n", "\taddress 10.0.0.1\n\tmtu 1500\n"),
        ("  mtu 9000\n  a b\n", "  mtu 1500\n  a b\n"),
        ("", "    mtu 1500\n"),
    ] {
        becomes(&stanzas(before), &how, &stanzas(after));
    }
    let why = edited(Some("auto eth0\niface eth01 inet dhcp\n"), &how).unwrap_err();
    assert!(why.contains("no stanza"), "{why}");
}

#[test]
fn a_file_of_ours_keeps_what_earlier_plans_have_written_there() {
    let how = file(
        "/etc/a",
        &["[Match]", "Path=p", "", "[Link]", "RxBufferSize=2", "x=1"],
    );
    let fresh = "[Match]\nPath=p\n\n[Link]\nRxBufferSize=2\nx=1\n";
    assert_eq!(edited(None, &how).unwrap(), fresh);
    becomes(
        "[Match]\nPath=p\n\n[Link]\nCombinedChannels=8\nRxBufferSize=1\n",
        &how,
        "[Match]\nPath=p\n\n[Link]\nCombinedChannels=8\nRxBufferSize=2\nx=1\n",
    );
    assert!(
        edited(None, &lines(None, &["a = 1"])).is_err(),
        "it is somebody's"
    );
}

#[test]
fn what_could_be_misread_is_left_to_people() {
    let how = lines(Some("[Link]"), &["MTUBytes=1500"]);
    for text in ["[Link]\r\n", "[Link]\na=\\\nb\n", "\u{1b}"] {
        assert!(edited(Some(text), &how).is_err(), "{text:?}");
    }
    // Only a comment, and a file without parts, in which lines do not go on.
    becomes("# a\\\n[Link]\n", &how, "# a\\\n[Link]\nMTUBytes=1500\n");
    becomes("a=\\\n", &lines(None, &["b = 1"]), "a=\\\nb = 1\n");
}

fn place(text: Option<&str>, folders: &[&str]) -> Place {
    Place {
        text: text.map(str::to_owned),
        mode: 0o640,
        uid: 1,
        gid: 2,
        folders: strings(folders),
    }
}

/// What is written of these on a host with these files.
fn written(told: Vec<How>, host: &[(&str, Place)]) -> (Vec<Rewrite>, Vec<(How, String)>) {
    let host: BTreeMap<&str, &Place> = host.iter().map(|(path, place)| (*path, place)).collect();
    let look = |path: &str| {
        let place = host.get(path).map(|place| (*place).clone());
        place.ok_or_else(|| "it is a link".to_owned())
    };
    let (all, by_hand) = rewrites(told.into_iter().map(by).collect(), look);
    let by_hand = by_hand.into_iter().map(|one| (one.what.how, one.why));
    (all, by_hand.collect())
}

#[test]
fn a_file_is_written_once_whoever_wants_something_of_it_and_not_if_all_is_there() {
    let [x, y] = ["x = 1", "y = 2"].map(|line| lines(None, &[line]));
    let host = [("/etc/a", place(Some("x = 0\nz = 3\n"), &[]))];
    let (all, by_hand) = written(vec![x.clone(), y.clone()], &host);
    assert_eq!(by_hand, []);
    let [one] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(one.after, "x = 1\nz = 3\ny = 2\n");
    assert_eq!((one.mode, one.uid, one.gid), (0o640, 1, 2));
    let (goes, comes) = one.lines();
    assert_eq!(
        (goes, comes),
        (strings(&["x = 0"]), strings(&["x = 1", "y = 2"]))
    );

    let host = [("/etc/a", place(Some("x = 1\ny=2\ny = 2\n"), &[]))];
    assert_eq!(written(vec![x], &host), (Vec::new(), Vec::new()));
}

#[test]
fn folders_that_are_missing_are_made_by_the_first_that_needs_them() {
    let [a, b] = ["/etc/n/a", "/etc/n/b"];
    let host = [(a, place(None, &["/etc/n"])), (b, place(None, &["/etc/n"]))];
    let (all, _) = written(vec![file(a, &["a"]), file(b, &["b"])], &host);
    assert_eq!(all[0].folders, ["/etc/n"]);
    assert_eq!(all[1].folders, <[String; 0]>::default());
}

#[test]
fn commands_links_and_what_is_not_below_etc_are_for_people_and_all_else_is_written() {
    let told = vec![
        How::Commands(strings(&["nmcli"])),
        file("/run/a", &["x"]),
        file("/usr/lib/a", &["x"]),
        file("/etc/link", &["x"]),
        file("/etc/a", &["x"]),
    ];
    let (all, by_hand) = written(told, &[("/etc/a", place(None, &[]))]);
    assert_eq!(all.len(), 1);
    let why: Vec<&str> = by_hand.iter().map(|(_, why)| why.as_str()).collect();
    let expected = [
        "no commands are run",
        "/run/a is made anew at each start",
        "/usr/lib/a comes with the system, and goes with its next version",
        "it is a link",
    ];
    assert_eq!(why, expected);
}

#[test]
fn what_is_chosen_is_there_before_it_is_chosen() {
    let [made, active] = [
        "/etc/tuned/mine-drover/tuned.conf",
        "/etc/tuned/active_profile",
    ];
    let choice = How::Choice {
        path: active.into(),
        lines: strings(&["mine-drover"]),
        of: made.into(),
        command: "tuned-adm profile mine-drover".into(),
    };
    let told = vec![file(made, &["[main]", "include=mine"]), choice.clone()];
    let mine = (active, place(Some("mine\n"), &[]));
    let paths =
        |all: &[Rewrite]| -> Vec<String> { all.iter().map(|one| one.path.clone()).collect() };
    let (all, by_hand) = written(told.clone(), &[(made, place(None, &[])), mine.clone()]);
    assert_eq!(
        (paths(&all), by_hand),
        (strings(&[made, active]), Vec::new())
    );
    // As told already.
    let is_there = (made, place(Some("[main]\ninclude=mine\n"), &[]));
    let (all, by_hand) = written(told.clone(), &[is_there, mine.clone()]);
    assert_eq!((paths(&all), by_hand), (strings(&[active]), Vec::new()));
    // Behind a link, or one that could be misread.
    let misread = (made, place(Some("[main]\r\n"), &[]));
    for host in [vec![mine.clone()], vec![misread, mine]] {
        let (all, by_hand) = written(told.clone(), &host);
        assert_eq!(all, []);
        let [(how, _), (switch, why)] = &by_hand[..] else {
            panic!("{by_hand:?}");
        };
        assert_eq!((how, switch), (&told[0], &choice));
        assert_eq!(why, &format!("{made} has to be as above first"));
    }
}

#[test]
fn a_place_is_as_before_or_as_it_was_written_or_it_is_said_what_differs() {
    let there = place(Some("x = 0\n"), &[]);
    let host = [("/etc/a", there.clone())];
    let (all, _) = written(vec![lines(None, &["x = 1"])], &host);
    let one = &all[0];
    let with = |text: Option<&str>| Place {
        text: text.map(str::to_owned),
        ..there.clone()
    };
    assert!(one.is_before(&there) && !one.is_after(&there));
    assert!(one.is_after(&with(Some("x = 1\n"))));
    let mode = 0o600;
    let closed = Place {
        mode,
        ..there.clone()
    };
    for (place, differs) in [
        (with(None), "the file is gone"),
        (with(Some("x")), "its text is another one"),
        (closed, "its mode is 0600 and its owner 1:2"),
    ] {
        assert!(!one.is_before(&place) && !one.is_after(&place));
        assert_eq!(one.differs(&place), differs);
    }
    assert_eq!(
        one.differs(&with(Some("x = 1\n"))),
        "it has been written already"
    );
    let created = Rewrite {
        before: None,
        ..one.clone()
    };
    assert!(created.is_before(&with(None)));
    assert_eq!(created.differs(&with(Some("y"))), "there is a file");
}

#[test]
fn a_file_for_several_interfaces_is_left_to_people_where_they_need_different_things() {
    let ring = |size: &str| by(file("/etc/n.d/90-drover.conf", &["[Link]", size]));
    let both = vec![ring("MTUBytes=9000"), ring("MTUBytes=1500")];
    let (written, by_hand) = rewrites(both, |_| Ok(place(Some(""), &[])));
    assert!(written[0].after.contains("MTUBytes=9000"), "{written:?}");
    assert!(
        by_hand[0].why.contains("for another interface"),
        "{by_hand:?}"
    );
    let both = vec![ring("MTUBytes=9000"), ring("MTUBytes=9000")];
    assert_eq!(rewrites(both, |_| Ok(place(Some(""), &[]))).1, []);
    let both = vec![ring("MTUBytes=9000"), ring("RxBufferSize=1")];
    assert_eq!(rewrites(both, |_| Ok(place(Some(""), &[]))).1, []);
}

#[test]
fn a_link_file_is_written_only_if_it_is_for_one_interface_for_certain() {
    let how = How::Lines {
        path: "/etc/systemd/network/50-x.link".into(),
        part: Some("[Link]".into()),
        lines: strings(&["RxBufferSize=4096"]),
    };
    for (matches, is_written) in [
        ("MACAddress=02:00:00:00:00:01", true),
        ("Driver=mlx5_core\nPath=pci-0000:01:00.0", true),
        ("Driver=mlx5_core", false),
        ("OriginalName=*", false),
        ("MACAddress=02:00:00:00:00:01 02:00:00:00:00:02", false),
        ("Path=", false),
    ] {
        let text = format!("[Match]\n{matches}\n[Link]\nMTUBytes=1500\n");
        let (written, by_hand) = rewrites(vec![by(how.clone())], |_| Ok(place(Some(&text), &[])));
        assert_eq!(
            (written.len(), by_hand.len()),
            (usize::from(is_written), usize::from(!is_written)),
            "{matches}"
        );
    }
}
