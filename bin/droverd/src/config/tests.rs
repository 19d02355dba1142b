use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("d.toml")).map_err(|error| error.to_string())
}

fn example() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/droverd.toml");
    std::fs::read_to_string(path).unwrap()
}

/// The example with its settings in force: `#key = value` becomes `key = value`; prose begins
/// with `# `.
fn example_in_force() -> String {
    let setting = |line: &str| {
        line.strip_prefix('#')
            .filter(|l| !l.starts_with(' '))
            .map(str::to_owned)
    };
    let lines: Vec<_> = example()
        .lines()
        .map(|line| setting(line).unwrap_or_else(|| line.to_owned()))
        .collect();
    lines.join("\n")
}

#[test]
fn an_empty_file_is_a_configuration() {
    let config = parse("").unwrap();
    assert_eq!(config.socket, Path::new("/run/drover/droverd.sock"));
    assert_eq!(config.memory_headroom, Bytes(512 << 20));
    assert_eq!(config.listen, [SocketAddr::from(([0, 0, 0, 0], 7470))]);
}

#[test]
fn the_example_as_shipped_is_the_default() {
    assert_eq!(parse(&example()), parse(""));
}

#[test]
fn the_settings_in_the_example_are_the_defaults() {
    let mut shown = parse(&example_in_force()).unwrap();
    assert_eq!(
        shown.peers.len(),
        2,
        "peers have no default, the example shows two"
    );
    let default = parse("").unwrap();
    shown.peers.clear();
    shown.host = default.host.clone();
    // These have no default either.
    assert_eq!(shown.labels.len(), 1);
    shown.labels.clear();
    assert_eq!(shown.etcd.take().unwrap().members.len(), 3);
    assert!(shown.policy.failure_domain.take().is_some());
    assert!(shown.policy.guest_bandwidth.take().is_some());
    assert!(shown.policy.at_once.take().is_some());
    assert_eq!(shown, default);
}

#[test]
fn every_key_is_in_the_example() {
    // An unknown key makes the parser list the known ones.
    let sections = [
        "",
        "[api]\n",
        "[migration]\n",
        "[migration.convergence]\n",
        "[networks]\n",
        "[qemu]\n",
        "[libvirt]\n",
        "[metrics]\n",
        "[checkpoints]\n",
        "[limits]\n",
        "[policy]\n",
        "[store]\n",
        "[[peers]]\nhost = \"b\"\n",
    ];
    let example = example();
    for section in sections {
        let refused = parse(&format!("{section}zz = 1")).unwrap_err();
        let keys: Vec<_> = refused.split('`').skip(5).step_by(2).collect();
        assert!(
            keys.len() >= 2 || ["[qemu]\n", "[libvirt]\n", "[metrics]\n"].contains(&section),
            "{refused}"
        );
        for key in keys {
            let there = |line: &str| {
                let line = line.trim_start_matches('#');
                line.starts_with(&format!("{key} ="))
                    || line.trim_matches(['[', ']']).rsplit('.').next() == Some(key)
            };
            assert!(
                example.lines().any(there),
                "`{key}` of {section:?} is not in the example"
            );
        }
    }
}

#[test]
fn etcd_is_named_whole_or_not_at_all() {
    let store = |text: &str| parse(&format!("[store]\n{text}"));
    let members =
        "etcd = [\"https://10.0.0.1:2379\", \"https://[fd00::1]:2379/\"]\nca = \"/ca.pem\"";
    let etcd = store(members).unwrap().etcd.unwrap();
    assert_eq!(etcd.members, ["10.0.0.1:2379", "[fd00::1]:2379"]);
    assert_eq!(etcd.tls.unwrap().own, None);
    let plain = store("etcd = [\"http://a:2379\"]").unwrap().etcd.unwrap();
    assert_eq!(plain.tls, None);
    let cases = [
        (
            "etcd = [\"10.0.0.1:2379\"]",
            "key `store.etcd`: \"10.0.0.1:2379\" is no member",
        ),
        (
            "etcd = [\"https://a\"]",
            "is no member of etcd: write https://",
        ),
        ("etcd = [\"https://a:1\"]", "key `store.ca`: it names"),
        (
            "etcd = [\"https://a:1\", \"http://b:1\"]",
            "write all alike",
        ),
        ("etcd = [\"http://a:1\"]\nca = \"/ca\"", "named with http"),
        ("ca = \"/ca\"", "no member of one is named"),
        (
            "etcd = [\"https://a:1\"]\nca = \"/ca\"\nkey = \"/k\"",
            "key `store.certificate`",
        ),
        (
            "etcd = [\"https://a:1\"]\nca = \"/ca\"\ncertificate = \"/c\"",
            "key `store.key`",
        ),
    ];
    for (text, expected) in cases {
        let refused = store(text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
    let many = vec!["\"http://a:1\""; 17].join(",");
    assert!(
        store(&format!("etcd = [{many}]"))
            .unwrap_err()
            .contains("1 to 16")
    );
}

#[test]
fn a_bad_value_is_refused_with_file_line_and_key() {
    let cases = [
        (
            "hots = \"a\"",
            "d.toml, line 1, key `hots`: unknown field `hots`",
        ),
        (
            "host = \"a b\"",
            "line 1, key `host`: name \"a b\" is not usable",
        ),
        (
            "runtime = \"/run/a-directory-whose-name-is-a-little-longer\"",
            "key `runtime`: a path of 46 bytes; with more than 43 the sockets below it are longer",
        ),
        (
            "\n\nstate = \"var\"",
            "line 3, key `state`: \"var\" is no absolute path",
        ),
        (
            "[migration]\nlanes_per_path = 99",
            "line 2, key `migration.lanes_per_path`: 99",
        ),
        (
            "[migration]\nchannels = \"many\"",
            "line 2, key `migration.channels`: \"many\"",
        ),
        (
            "[migration]\nencryption = \"no\"",
            "line 2, key `migration.encryption`: unknown variant `no`, expected `on` or `off`",
        ),
        (
            "[migration]\nverify = \"on\"",
            "line 2, key `migration.verify`: invalid type: string \"on\", expected a boolean",
        ),
        (
            "[migration]\nreduction = \"zstd\"",
            "line 2, key `migration.reduction`: \"zstd\" is no way to reduce",
        ),
        (
            "[migration]\nreduction_memory = \"1 MiB\"",
            "1 MiB is no memory for reduction: give 16 MiB to 16 GiB",
        ),
        (
            "[migration]\nreduction_memory = 0",
            "0 B is no memory for reduction: give 16 MiB to 16 GiB",
        ),
        (
            "[checkpoints]\nmemory = \"1 MiB\"",
            "1 MiB is no memory for pages that wait to be kept: give 16 MiB to 16 GiB",
        ),
        (
            "[migration]\nplacement = \"cpu\"",
            "line 2, key `migration.placement`: unknown variant `cpu`, expected `nic` or `none`",
        ),
        (
            "[migration]\ncpu_latency = \"1us\"",
            "line 2, key `migration.cpu_latency`: \"1us\" is no CPU latency: write \"2us\" to \"1000us\", or \"off\"",
        ),
        (
            "[migration]\ncpu_latency = \"20ms\"",
            "\"20ms\" is no CPU latency",
        ),
        (
            "[migration]\ncpu_latency = \"us\"",
            "\"us\" is no CPU latency",
        ),
        (
            "[migration]\ncpu_latency = 20",
            "key `migration.cpu_latency`: invalid type: integer `20`",
        ),
        (
            "[migration]\ninterrupts = \"nic\"",
            "line 2, key `migration.interrupts`: unknown variant `nic`, expected `leave` or `near`",
        ),
        ("[migration]\nchannels = 17", "write \"auto\", or 1 to 16"),
        (
            "[migration]\ndata_port = 70000",
            "70000 is no port: give 0 to 65535",
        ),
        (
            "[migration.convergence]\ndowntime_limit_ms = 0",
            "line 2, key `migration.convergence.downtime_limit_ms`: 0 is no downtime limit in milliseconds: give 1 \
             to 2000000",
        ),
        (
            "[migration.convergence]\nthrottle = \"on\"",
            "expected one of `off`",
        ),
        ("[migration]\noutage_limit_s = 3601", "give 0 to 3600"),
        (
            "[migration]\nshared_pages_keep_minutes = 0",
            "0 is no time in minutes to keep shared pages: give 1 to 10080",
        ),
        (
            "[migration]\nshared_pages_keep_minutes = 10081",
            "10081 is no time in minutes to keep shared pages: give 1 to 10080",
        ),
        (
            "[limits]\nhost = \"fast\"",
            "line 2, key `limits.host`: \"fast\" is no limit: write 5gbit, 200mbit (1mbit at least)",
        ),
        (
            "[metrics]\nlisten = \"on\"",
            "line 2, key `metrics.listen`: \"on\" is no address: write 10.0.0.1, 10.0.0.1:7472 or \
             [fd00::1]:7472, or \"off\"",
        ),
        (
            "[networks]\ninclude = [\n  \"10.0.0.0/33\",\n]",
            "line 2, key `networks.include`",
        ),
        ("[networks]\nexclude = [\"10.0.0.1\"]", "names no network"),
        (
            "[api]\nlisten = [\"here\"]",
            "\"here\" is no address: write 10.0.0.1",
        ),
        ("[api]\nlisten = [\"10.0.0.1:0\"]", "port 0"),
        (
            "[qemu]\nbinaries = [\"qemu\"]",
            "line 2, key `qemu.binaries`",
        ),
        (
            "memory_headroom = \"lots\"",
            "line 1, key `memory_headroom`: \"lots\" is not a size",
        ),
        ("[[peers]]\nhost = \"b\"", "missing field `api`"),
        (
            "[[peers]]\nhost = \"b\"\napi = []",
            "0 addresses: give 1 to 16",
        ),
        (
            "[[peers]]\nhost = \"b\"\napi = \"0.0.0.0\"",
            "nobody's address",
        ),
        (
            "[migration]\ndata_port = 7470",
            "key `migration.data_port`: 7470 is the port of",
        ),
        (
            "labels = { \"top rack\" = \"r1\" }",
            "line 1, key `labels`: \"top rack\" is not usable as a label",
        ),
        (
            "[policy]\nspread = \"wide\"",
            "line 2, key `policy.spread`: unknown variant `wide`, expected one of `ignore`",
        ),
        (
            "[policy]\ninbound = 0",
            "key `policy`: the number of migrations at once of the policy is 0: 1 to 64 make sense",
        ),
        (
            "[policy]\nspread = \"prefer\"",
            "key `policy`: failure domains are to be used, and failure_domain names no label",
        ),
        ("host = ", "line 1"),
    ];
    for (text, expected) in cases {
        let refused = parse(text).unwrap_err();
        assert!(
            refused.contains(expected),
            "{text:?}:\n  {refused}\n  lacks {expected}"
        );
        assert!(refused.starts_with("d.toml, "), "{refused}");
    }
}

#[test]
fn peers_that_contradict_each_other_are_refused() {
    let peer = |host: &str, api: &str| format!("[[peers]]\nhost = \"{host}\"\napi = \"{api}\"\n");
    let own = format!("host = \"a\"\n{}", peer("a", "10.0.0.1"));
    assert!(parse(&own).unwrap_err().contains("this host's own name"));
    let twice = peer("b", "10.0.0.2") + &peer("b", "10.0.0.3");
    assert!(parse(&twice).unwrap_err().contains("b is there twice"));
}

#[test]
fn a_peers_addresses_have_the_usual_port_unless_they_say_otherwise() {
    let config =
        parse("[[peers]]\nhost = \"b\"\napi = [\"10.0.0.2\", \"[fd00::2]:9000\"]").unwrap();
    let peer = config.peer(&"b".parse().unwrap()).unwrap();
    let shown: Vec<_> = peer.api.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.2:7470", "[fd00::2]:9000"]);
}

#[test]
fn a_missing_file_is_refused_with_what_to_do() {
    let refused = Config::load(Path::new("/nowhere/d.toml"))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("/nowhere/d.toml"), "{refused}");
    assert!(refused.contains("--config"), "{refused}");
}

#[test]
fn a_file_that_is_too_long_is_refused_with_both_lengths_and_never_read_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.toml");
    let most = usize::try_from(limits::FILE_BYTES).unwrap();
    let mut text = "#".repeat(most - 12) + "\nhost = \"a\"\n";
    assert_eq!(text.len(), most);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(Config::load(&path).unwrap().host.as_str(), "a");
    // What is beyond the limit would have been left out.
    text += "[migration]\nverify = true\n";
    std::fs::write(&path, &text).unwrap();
    let refused = Config::load(&path).unwrap_err().to_string();
    let (length, most) = (text.len().to_string(), most.to_string());
    assert!(
        refused.contains(&length) && refused.contains(&most),
        "{refused}"
    );
    // A file without an end is not read for ever.
    let refused = Config::load(Path::new("/dev/zero"))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&most) && refused.contains("--config"),
        "{refused}"
    );
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.toml");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let refused = Config::load(&path).unwrap_err().to_string();
    assert!(refused.contains("UTF-8"), "{refused}");
}

#[test]
fn a_socket_path_too_long_for_the_kernel_is_refused() {
    let long = format!("/{}", "x".repeat(113));
    let socket = parse(&format!("[api]\nsocket = \"{long}\"")).unwrap_err();
    assert!(
        socket.contains("key `api.socket`: a path of 114 bytes"),
        "{socket}"
    );
    // Those of guests and relays are longer than the agent's own.
    let runtime = parse(&format!("runtime = \"{long}\"")).unwrap_err();
    assert!(
        runtime.contains("key `runtime`: a path of 114 bytes"),
        "{runtime}"
    );
}

#[test]
fn a_cpu_latency_is_a_number_of_microseconds_or_off() {
    let of = |text: &str| {
        let config = parse(&format!("[migration]\ncpu_latency = \"{text}\""));
        config.unwrap().migration.cpu_latency_us
    };
    assert_eq!(of("20us"), Some(20));
    assert_eq!(of("1000 us"), Some(1000));
    assert_eq!(of("off"), None);
    assert_eq!(parse("").unwrap().migration.cpu_latency_us, Some(20));
}

#[test]
fn shared_pages_are_kept_for_as_many_minutes_as_it_says_and_for_five_where_it_does_not() {
    let keep = |text: &str| parse(text).unwrap().migration.shared_pages_keep;
    assert_eq!(keep(""), Duration::from_secs(5 * 60));
    let week = keep("[migration]\nshared_pages_keep_minutes = 10080");
    assert_eq!(week, Duration::from_secs(7 * 24 * 3600));
}

#[test]
fn interrupts_are_left_where_they_are_unless_they_are_to_be_near() {
    let near = parse("[migration]\ninterrupts = \"near\"").unwrap();
    assert_eq!(near.migration.interrupts, InterruptsBy::Near);
    assert_eq!(parse("").unwrap().migration.interrupts, InterruptsBy::Leave);
}
