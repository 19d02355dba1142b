mod profiles;
mod rewrites;

use super::*;

fn nic(nic: &str, what: NicSetting, to: &str) -> Step {
    Step::Nic {
        nic: nic.into(),
        what,
        from: "x".into(),
        to: to.into(),
    }
}

fn setting(name: &str, to: &str) -> Step {
    Step::setting(name, "x", to)
}

fn owner(by: SetUp, file: &str) -> NicOwner {
    let link = LinkFile {
        file: file.into(),
        lines: vec!["NamePolicy=keep kernel".into(), "MTUBytes=9000".into()],
        place: "pci-0000:03:00.0".into(),
    };
    NicOwner {
        by,
        link: Some(link),
    }
}

fn told(steps: &[Step], owners: &Owners) -> Vec<How> {
    let (told, not_kept) = lasting(steps.iter(), owners);
    assert_eq!(not_kept, []);
    told.into_iter().map(|one| one.how).collect()
}

fn strings(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

const DEFAULT: &str = "/usr/lib/systemd/network/99-default.link";

#[test]
fn settings_that_nobody_sets_later_are_in_one_file_and_others_where_they_are_set() {
    let mut owners = Owners::default();
    let steps = [
        setting("net.ipv4.tcp_rmem", "4096 131072 16777216"),
        setting("net.ipv4.tcp_timestamps", "1"),
        setting("net.ipv4.tcp_window_scaling", "1"),
    ];
    let file = |path: &str| SettingOwner::File { path: path.into() };
    let earlier = file("/usr/lib/sysctl.d/50-default.conf");
    owners.settings.insert("net.ipv4.tcp_rmem".into(), earlier);
    let later = file("/etc/sysctl.d/99-sysctl.conf");
    owners
        .settings
        .insert("net.ipv4.tcp_timestamps".into(), later);
    let expected = [
        How::File {
            path: "/etc/sysctl.d/90-drover.conf".into(),
            lines: strings(&[
                "net.ipv4.tcp_rmem = 4096 131072 16777216",
                "net.ipv4.tcp_window_scaling = 1",
            ]),
        },
        How::Lines {
            path: "/etc/sysctl.d/99-sysctl.conf".into(),
            part: None,
            lines: strings(&["net.ipv4.tcp_timestamps = 1"]),
        },
    ];
    assert_eq!(told(&steps, &owners), expected);
}

#[test]
fn lines_of_earlier_plans_stay() {
    let mut owners = Owners::default();
    let path = "/etc/sysctl.d/90-drover.conf".to_owned();
    let ours = SettingOwner::File { path: path.clone() };
    owners.settings.insert("net.ipv4.tcp_rmem".into(), ours);
    let steps = [setting("net.ipv4.tcp_timestamps", "1")];
    let expected = [How::Lines {
        path,
        part: None,
        lines: strings(&["net.ipv4.tcp_timestamps = 1"]),
    }];
    assert_eq!(told(&steps, &owners), expected);
}

#[test]
fn what_tuned_sets_is_set_by_a_profile_that_includes_the_active_one_and_tuned_starts_with() {
    let tuned = |profile: &str| SettingOwner::Tuned {
        profile: profile.into(),
    };
    let name = "net.ipv4.tcp_wmem";
    let steps = [setting(name, "4096 16384 16777216")];
    let mut owners = Owners::default();
    owners.settings.insert(name.into(), tuned("virtual-host"));
    owners.tuned = Tuned {
        active: strings(&["powersave", "virtual-host"]),
        folder: "/etc/tuned".into(),
        chosen_elsewhere: None,
    };
    let made = How::File {
        path: "/etc/tuned/virtual-host-drover/tuned.conf".into(),
        lines: strings(&[
            "[main]",
            "include=virtual-host",
            "",
            "[sysctl]",
            "net.ipv4.tcp_wmem=4096 16384 16777216",
        ]),
    };
    let command = "tuned-adm profile powersave virtual-host-drover";
    let switched = How::Choice {
        path: "/etc/tuned/active_profile".into(),
        lines: strings(&["powersave virtual-host-drover"]),
        of: "/etc/tuned/virtual-host-drover/tuned.conf".into(),
        command: command.into(),
    };
    assert_eq!(told(&steps, &owners), [made.clone(), switched.clone()]);
    let text = edited(Some("powersave virtual-host"), &switched).unwrap();
    assert_eq!(text, "powersave virtual-host-drover\n");
    owners.tuned.chosen_elsewhere = Some("it does".into());
    let by_hand = How::Commands(strings(&[command]));
    assert_eq!(told(&steps, &owners), [made, by_hand]);
    owners
        .settings
        .insert(name.into(), tuned("virtual-host-drover"));
    let expected = [How::Lines {
        path: "/etc/tuned/virtual-host-drover/tuned.conf".into(),
        part: Some("[sysctl]".into()),
        lines: strings(&["net.ipv4.tcp_wmem=4096 16384 16777216"]),
    }];
    assert_eq!(told(&steps, &owners), expected);
}

#[test]
fn hardware_that_udev_sets_up_gets_a_file_of_its_own_or_lines_in_somebodys() {
    let mut owners = Owners::default();
    owners
        .nics
        .insert("ens1".into(), owner(SetUp::Udev, DEFAULT));
    let steps = [
        nic("ens1", NicSetting::ReceiveRing, "4096"),
        nic("ens1", NicSetting::Mtu, "1500"),
        nic(
            "ens1",
            NicSetting::Negotiation,
            "off speed 10000 duplex full",
        ),
    ];
    let own = [
        "RxBufferSize=4096",
        "MTUBytes=1500",
        "AutoNegotiation=no",
        "BitsPerSecond=10000M",
        "Duplex=full",
    ];
    let head = [
        "[Match]",
        "Path=pci-0000:03:00.0",
        "",
        "[Link]",
        "NamePolicy=keep kernel",
    ];
    let expected = [How::File {
        path: "/etc/systemd/network/10-drover-ens1.link".into(),
        lines: strings(&[&head[..], &own[..]].concat()),
    }];
    assert_eq!(told(&steps, &owners), expected);
    let theirs = "/etc/systemd/network/20-storage.link";
    owners
        .nics
        .insert("ens1".into(), owner(SetUp::Udev, theirs));
    let expected = [How::Lines {
        path: theirs.into(),
        part: Some("[Link]".into()),
        lines: strings(&own),
    }];
    assert_eq!(told(&steps, &owners), expected);
}

#[test]
fn packets_are_set_where_addresses_are_and_hardware_by_udev() {
    let mut owners = Owners::default();
    let file = "/etc/network/interfaces".to_owned();
    let ifupdown = owner(SetUp::Ifupdown { file: file.clone() }, DEFAULT);
    owners.nics.insert("eth0".into(), ifupdown);
    let network = "/usr/lib/systemd/network/lan.network".to_owned();
    let networkd = SetUp::Networkd { file: network };
    owners.nics.insert("eth1".into(), owner(networkd, DEFAULT));
    let steps = [
        nic("eth0", NicSetting::Mtu, "1500"),
        nic("eth1", NicSetting::Mtu, "1400"),
        nic("eth1", NicSetting::CombinedChannels, "8"),
    ];
    let answers = told(&steps, &owners);
    let lines = |path: String, part: &str, line: &str| How::Lines {
        path,
        part: Some(part.into()),
        lines: strings(&[line]),
    };
    assert_eq!(answers[0], lines(file, "iface eth0", "mtu 1500"));
    let beside = How::File {
        path: "/etc/systemd/network/lan.network.d/90-drover.conf".into(),
        lines: strings(&[
            "# For every interface that the file is about",
            "[Link]",
            "MTUBytes=1400",
        ]),
    };
    assert_eq!(answers[1], beside);
    let How::File { path, lines } = &answers[2] else {
        panic!("{answers:?}");
    };
    assert_eq!(path, "/etc/systemd/network/10-drover-eth1.link");
    assert_eq!(lines.last().unwrap(), "CombinedChannels=8");
}

#[test]
fn what_nobody_keeps_is_named_with_the_reason() {
    let mut owners = Owners::default();
    let mut of_udev = owner(SetUp::Udev, DEFAULT);
    let fec = nic("ens1", NicSetting::Fec, "rs");
    owners.nics.insert("ens1".into(), of_udev.clone());
    of_udev.link = None;
    owners.nics.insert("ens2".into(), of_udev);
    let interrupt = Step::File {
        path: "proc/irq/7/smp_affinity_list".into(),
        from: "0".into(),
        to: "1".into(),
    };
    let steps = [
        fec,
        nic("ens2", NicSetting::ReceiveRing, "1"),
        nic("ens3", NicSetting::ReceiveRing, "1"),
        interrupt,
    ];
    let (answers, not_kept) = lasting(steps.iter(), &owners);
    assert_eq!(answers, []);
    let why: Vec<&str> = not_kept.iter().map(|one| one.why.as_str()).collect();
    let expected = [
        "a .link has no word for the correction of errors",
        "udev tells nothing of how it sets ens2 up",
        "it is not known who sets ens3 up",
        "nobody keeps it: whoever pins interrupts and queues does so at each start",
    ];
    assert_eq!(why, expected);
    assert_eq!(not_kept[0].step, "ethtool --set-fec ens1 encoding rs");
}

#[test]
fn pause_frames_have_words_in_a_link() {
    let (what, to) = (NicSetting::Pause, "rx off tx on");
    let lines = link::lines(&what, "", to).unwrap();
    assert_eq!(lines, ["RxFlowControl=no", "TxFlowControl=yes"]);
    let forced = "autoneg off rx off tx off";
    let lines = link::lines(&what, "", forced).unwrap();
    assert_eq!(lines[0], "AutoNegotiationFlowControl=no");
    let agreed = "autoneg on rx off tx off";
    assert_eq!(link::lines(&what, "", agreed).unwrap().len(), 3);
    assert!(link::lines(&what, "", "off").is_err());
}

#[test]
fn what_is_made_anew_at_each_start_is_told_with_who_makes_it() {
    let mut owners = Owners::default();
    let file = "/run/systemd/network/10-netplan-ens1.network".to_owned();
    let by_netplan = SetUp::Networkd { file };
    let link = "/run/systemd/network/10-netplan-ens1.link";
    owners.nics.insert("ens1".into(), owner(by_netplan, link));
    let steps = [
        nic("ens1", NicSetting::Mtu, "1500"),
        nic("ens1", NicSetting::ReceiveRing, "4096"),
    ];
    let (told, not_kept) = lasting(steps.iter(), &owners);
    assert_eq!(told, []);
    assert_eq!(not_kept.len(), 2);
    for NotKept { why, .. } in not_kept {
        assert!(why.contains("by netplan"), "{why}");
    }
}
