//! QEMU's arguments, as far as rules ask about them.

use crate::facts::Argument;

/// Options that rules ask about, and whether they take a value. What is not here is not told to anybody: it may hold a secret.
const ASKED: [(&str, bool); 11] = [
    ("accel", true),
    ("chardev", true),
    ("cpu", true),
    ("device", true),
    ("enable-kvm", false),
    ("global", true),
    ("mem-path", true),
    ("mem-prealloc", false),
    ("netdev", true),
    ("nic", true),
    ("object", true),
];

/// Of `-object` and `-device`, kinds that rules ask about.
const KINDS: [&str; 3] = ["memory-backend-", "virtio-net", "virtserialport"];

/// What is told of memory that is written as JSON.
pub(crate) const JSON_MEMORY: &str = r#"{"qom-type":"memory-backend-"}"#;

/// What carries a guest's packets, of which rules ask more than what it is. Of others an argument may hold a secret: a command, a cookie.
const CARRIERS: [&str; 4] = ["tap", "bridge", "vhost-user", "vhost-vdpa"];

/// Those of a definition's arguments that rules ask about.
#[must_use]
pub fn arguments(args: &[String]) -> Vec<Argument> {
    let mut found = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some((option, takes)) = asked(arg) else {
            continue;
        };
        let value = if takes { args.next() } else { None };
        let value = value.map(|value| told(option, value));
        let argument = Argument {
            option: format!("-{option}"),
            value,
        };
        if is_asked_about(&argument) {
            found.push(argument);
        }
    }
    found
}

/// What of a value may be told.
fn told(option: &str, value: &str) -> String {
    let parts = Value::of(value);
    if option == "object" && parts.is_json() {
        let is_memory = value.contains("memory-backend-");
        return if is_memory { JSON_MEMORY } else { "{}" }.to_owned();
    }
    let is_net = matches!(option, "netdev" | "nic");
    if !is_net || CARRIERS.contains(&parts.kind()) {
        return value.to_owned();
    }
    if parts.is_json() {
        return "{}".to_owned();
    }
    let id = parts.get("id").map(|id| format!("id={id}"));
    let told = [parts.kind().to_owned()].into_iter().chain(id);
    told.collect::<Vec<_>>().join(",")
}

/// QEMU takes one dash or two.
fn asked(arg: &str) -> Option<(&'static str, bool)> {
    let name = arg.strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    ASKED.into_iter().find(|(option, _)| *option == name)
}

fn is_asked_about(argument: &Argument) -> bool {
    let value = argument.value.as_deref().unwrap_or_default();
    match argument.option.as_str() {
        "-object" if value == JSON_MEMORY => true,
        "-global" => value.starts_with("virtio-net"),
        "-object" | "-device" => {
            let kind = Value::of(value).kind().to_owned();
            KINDS.iter().any(|asked| kind.starts_with(asked))
        }
        "-chardev" => Value::of(value).kind() == "socket",
        _ => true,
    }
}

/// The last argument of that option, which is the one that counts where it may be given once.
#[must_use]
pub fn last<'a>(arguments: &'a [Argument], option: &str) -> Option<&'a Argument> {
    let mut of = arguments.iter().rev();
    of.find(|argument| argument.option == option)
}

/// Whether QEMU emulates a guest's processor: what is asked for first and can be had, `hardware` being there or not, or QEMU's own
/// choice where nothing is asked for (`configure_accelerators` in its `system/vl.c`).
#[must_use]
pub fn is_emulated(machine: Option<&str>, arguments: &[Argument], hardware: bool) -> bool {
    let of_machine = machine.unwrap_or_default().split(',');
    let mut of_machine = of_machine.filter_map(|part| part.strip_prefix("accel="));
    let of_option = last(arguments, "-accel").and_then(|argument| argument.value.as_deref());
    let asked = of_option.or(of_machine.next_back());
    let first = |asked: &str| {
        let wanted = asked.split(',').next().unwrap_or_default();
        let mut kinds = wanted.strip_prefix("accel=").unwrap_or(wanted).split(':');
        kinds.find(|kind| *kind == "tcg" || hardware) == Some("tcg")
    };
    match asked {
        Some(asked) => first(asked) || !hardware,
        None => last(arguments, "-enable-kvm").is_none(),
    }
}

/// The feature that a part of `-cpu`'s value asks for: `+sse4.1`, `sse4.1=on`, `sse4.1`.
#[must_use]
pub fn turns_on(part: &str) -> Option<&str> {
    match (part.strip_prefix('+'), part.split_once('=')) {
        (Some(feature), _) => Some(feature),
        (None, Some((feature, "on" | "yes" | "true"))) => Some(feature),
        (None, Some(_)) => None,
        (None, None) => Some(part).filter(|part| !part.starts_with('-')),
    }
}

/// The value of an option: `tap,id=n0,vhost=on`. A comma in a part is written twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    parts: Vec<String>,
    is_json: bool,
}

impl Value {
    /// What is written there.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut parts = vec![String::new()];
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let part = parts.len() - 1;
            match letter {
                ',' if letters.next_if_eq(&',').is_some() => parts[part].push(','),
                ',' => parts.push(String::new()),
                letter => parts[part].push(letter),
            }
        }
        let is_json = text.trim_start().starts_with('{');
        Self { parts, is_json }
    }

    /// It is written as JSON, which is not read here.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.is_json
    }

    /// The first part, which names a kind; empty where it names none.
    #[must_use]
    pub fn kind(&self) -> &str {
        let first = self.parts.first().map_or("", String::as_str);
        if first.contains('=') { "" } else { first }
    }

    /// What a key is given; of several the last one counts.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.parts.iter().rev();
        pairs
            .find_map(|part| part.split_once('=').filter(|(name, _)| *name == key))
            .map(|(_, value)| value)
    }

    /// A switch; none where it is not given.
    #[must_use]
    pub fn is_on(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(word) => Some(matches!(word, "on" | "yes" | "true" | "y")),
            None => {
                let after = self.parts.get(1..)?;
                after.iter().any(|part| part == key).then_some(true)
            }
        }
    }

    /// A number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u32> {
        self.get(key)?.parse().ok()
    }

    /// The parts after the kind.
    pub fn rest(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().skip(1).map(String::as_str)
    }

    /// The same with that key given that.
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        let mut new = self.without(key);
        new.parts.push(format!("{key}={value}"));
        new
    }

    /// The same with nothing given to that key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let mut new = self.clone();
        let is_other =
            |part: &String| part != key && part.split_once('=').is_none_or(|(name, _)| name != key);
        let mut first = true;
        new.parts
            .retain(|part| std::mem::take(&mut first) || is_other(part));
        new
    }

    /// The same of another kind.
    #[must_use]
    pub fn as_kind(&self, kind: &str) -> Self {
        let mut new = self.clone();
        if let Some(first) = new.parts.first_mut() {
            kind.clone_into(first);
        }
        new
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| part.replace(',', ",,"))
            .collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str]) -> Vec<Argument> {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        arguments(&args)
    }

    #[test]
    fn what_rules_do_not_ask_about_is_left_out_with_its_secrets() {
        let found = of(&[
            "-nodefaults",
            "--cpu",
            "host",
            "-object",
            "secret,id=s,data=hunter2",
            "-device",
            "virtio-net-pci,netdev=n",
            "-vnc",
            ":0,password=on",
            "-object",
            "memory-backend-memfd,id=m,size=1G",
            "-drive",
            "file=https://u:p@x/y",
            "-enable-kvm",
            "-chardev",
            "file,id=c,path=/secret",
            "-object",
            r#"{"qom-type":"secret","id":"s","data":"hunter2"}"#,
            "-object",
            r#"{"qom-type":"memory-backend-file","id":"m","mem-path":"/hunter2"}"#,
            "-global",
            "virtio-net-pci.mq=on",
            "-global",
            "ICH9-LPC.disable_s3=1",
            "-netdev",
        ]);
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.option.as_str(), one.value.as_deref()))
            .collect();
        let expected = [
            ("-cpu", Some("host")),
            ("-device", Some("virtio-net-pci,netdev=n")),
            ("-object", Some("memory-backend-memfd,id=m,size=1G")),
            ("-enable-kvm", None),
            ("-object", Some(JSON_MEMORY)),
            ("-global", Some("virtio-net-pci.mq=on")),
            ("-netdev", None),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn of_a_network_card_that_no_rule_is_about_no_more_is_told_than_what_it_is() {
        let found = of(&[
            "-netdev",
            "user,id=n0,guestfwd=tcp:10.0.2.100:80-cmd:serve --token hunter2",
            "-netdev",
            "tap,id=n1,ifname=tap0,vhost=on",
            "-nic",
            "l2tpv3,src=10.0.0.1,txcookie=0x1234,id=n2",
            "-netdev",
            "{\"type\": \"l2tpv3\", \"txcookie\": 4660}",
        ]);
        let values: Vec<_> = found
            .iter()
            .filter_map(|one| one.value.as_deref())
            .collect();
        assert_eq!(
            values,
            [
                "user,id=n0",
                "tap,id=n1,ifname=tap0,vhost=on",
                "l2tpv3,id=n2",
                "{}"
            ]
        );
    }

    #[test]
    fn a_value_is_read_changed_and_written_with_its_commas() {
        let value = Value::of("socket,path=/run/a,,b,id=c0,server=on,wait=off,nodelay");
        assert_eq!(
            (value.kind(), value.get("path")),
            ("socket", Some("/run/a,b"))
        );
        assert_eq!(
            [
                value.is_on("server"),
                value.is_on("wait"),
                value.is_on("nodelay"),
                value.is_on("x")
            ],
            [Some(true), Some(false), Some(true), None]
        );
        let changed = value
            .with("wait", "on")
            .without("nodelay")
            .without("server");
        assert_eq!(changed.to_string(), "socket,path=/run/a,,b,id=c0,wait=on");
        assert_eq!(Value::of("tap,queues=2,queues=4").number("queues"), Some(4));
        assert_eq!(
            Value::of("tap,queues=2").with("queues", "4").to_string(),
            "tap,queues=4"
        );
        assert!(Value::of(" {\"type\":\"tap\"}").is_json());
        assert_eq!(Value::of("").kind(), "");
    }

    #[test]
    fn the_accelerator_that_is_asked_for_first_and_is_there_counts() {
        let emulated =
            |machine, args: &[&str], hardware| is_emulated(Some(machine), &of(args), hardware);
        assert!(emulated("q35", &[], true));
        assert!(!emulated("q35", &["-enable-kvm"], true));
        assert!(
            !emulated("q35,accel=kvm:tcg", &[], true) && emulated("q35,accel=kvm:tcg", &[], false)
        );
        assert!(emulated(
            "q35,accel=kvm",
            &["-accel", "tcg,thread=multi"],
            true
        ));
    }
}
