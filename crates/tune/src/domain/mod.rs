//! libvirt's XML of a domain, as far as rules ask about it. Pure: the text in, parts of it out.
//!
//! Source: libvirt's `docs/formatdomain.rst`, and what QEMU is given for it `src/qemu/qemu_command.c`.

mod element;

use roxmltree::{Document, Node, ParsingOptions};

use crate::arguments::arguments;
use crate::change::quoted;
use crate::facts::{Card, Element, Fact};

pub(crate) use element::{changed, size};

/// Most nodes of a domain's XML: one with 1000 devices has some 10,000.
const NODES: u32 = 100_000;

/// Parts within parts that are read: those that rules ask about have four.
const DEPTH: usize = 8;

/// Which parts of which part are told. What is not here is told to nobody: it may hold a secret. All of what stands in `WHOLE` is.
const ASKED: [(&str, &[&str]); 4] = [
    (
        "domain",
        &[
            "cpu",
            "memoryBacking",
            "memtune",
            "devices",
            "commandline",
            "override",
        ],
    ),
    ("devices", &["interface", "channel"]),
    (
        "interface",
        &["mac", "source", "target", "model", "driver", "mtu"],
    ),
    ("channel", &["target"]),
];

/// Parts that are told with all that is in them.
const WHOLE: [&str; 4] = ["cpu", "memoryBacking", "memtune", "driver"];

/// Within them, what no rule asks about: of each NUMA node its distance to each other.
const LEFT_OUT: &str = "distances";

/// Most that is told of one, in bytes of JSON: those of all hosts are in one answer of 32 MiB. One with 200 cards has some 100,000.
const BYTES: usize = 128 << 10;

/// What libvirt calls QEMU's arguments that it knows nothing of.
const ARGUMENTS: &str = "commandline";

/// The port by which an agent inside is talked to.
const AGENT: &str = "org.qemu.guest_agent.0";

/// Why nobody but libvirt asks a domain's own agent.
const AGENT_OF_LIBVIRT: &str =
    "libvirt has its guest agent, and marks a domain as tainted when others ask by it";

/// A domain, as far as rules ask about it.
///
/// # Errors
/// It is no XML, has more than 100,000 nodes, is no domain, or has more than 128 KiB that rules ask about; to be read after "because".
pub fn read(xml: &str) -> Result<Element, String> {
    let options = ParsingOptions {
        nodes_limit: NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(xml, options)
        .map_err(|error| format!("libvirt's XML of it cannot be read: {error}"))?;
    let root = document.root_element();
    if root.tag_name().name() != "domain" {
        return Err("libvirt's XML of it is no domain".to_owned());
    }
    let told = part(root, false, DEPTH);
    match bytes(&told) {
        many if many > BYTES => Err(format!(
            "rules ask about {many} bytes of libvirt's XML of it, and are told {BYTES} at most"
        )),
        _ => Ok(told),
    }
}

/// As JSON, about.
fn bytes(element: &Element) -> usize {
    /// `{"name":"","attributes":[],"parts":[]},`
    const AROUND: usize = 39;
    /// `["",""],`
    const AROUND_ATTRIBUTE: usize = 8;
    let attributes = element.attributes.iter();
    let attributes = attributes.map(|(name, said)| AROUND_ATTRIBUTE + name.len() + said.len());
    let text = element.text.as_ref().map_or(0, String::len);
    let parts = element.parts.iter().map(bytes);
    AROUND + element.name.len() + text + attributes.sum::<usize>() + parts.sum::<usize>()
}

/// The same of one that runs, in short: features of its processor with one policy are one, with all of their names. libvirt names some
/// 130 of them, and lines are told of what is next alone.
#[must_use]
pub fn brief(now: &Element) -> Element {
    let Some(cpu) = now.part("cpu") else {
        return now.clone();
    };
    let mut parts: Vec<Element> = Vec::new();
    for part in &cpu.parts {
        let is_same = |one: &&mut Element| {
            let both = part.name == "feature" && one.name == "feature";
            both && one.get("policy") == part.get("policy")
        };
        match parts.iter_mut().find(is_same) {
            None => parts.push(part.clone()),
            Some(one) => {
                let names = [one, part].map(|one| one.get("name").unwrap_or_default());
                *one = one.with("name", &names.join(" "));
            }
        }
    }
    let cpu = Element {
        parts,
        ..cpu.clone()
    };
    now.with_part(cpu)
}

/// Its network cards, as it was started with them.
#[must_use]
pub fn cards(now: &Element) -> Vec<Card> {
    let devices = now.part("devices");
    let has_agent = devices.is_some_and(|devices| {
        let mut channels = devices.all("channel");
        channels.any(|channel| channel.at("target", "name") == Some(AGENT))
    });
    let why = match has_agent {
        true => AGENT_OF_LIBVIRT,
        false => "no guest agent is in its definition",
    };
    let interfaces = devices.into_iter().flat_map(|all| all.all("interface"));
    let cards = interfaces.filter_map(|interface| {
        let mac = interface.at("mac", "address")?.to_owned();
        let queues = interface.number_at("driver", "queues");
        Some(Card {
            netdev: mac.clone(),
            mac,
            // libvirt turns it on by itself.
            multiqueue: queues.is_some_and(|queues| queues > 1),
            offered_mtu: interface.number_at("mtu", "size"),
            guest_mtu: Fact::unknown(why),
        })
    });
    cards.collect()
}

/// A command of libvirt's own as it is typed, with the domain's name, or whatever it is about, where `{}` stands; `uri` where it does not
/// reach the domain by itself.
#[must_use]
pub fn virsh(uri: Option<&str>, command: &str, about: &str) -> String {
    let uri = uri.map_or_else(String::new, |uri| format!("-c {} ", quoted(uri)));
    format!("virsh {uri}{}", command.replace("{}", &quoted(about)))
}

/// Whether a domain runs on the hardware's processors.
///
/// # Errors
/// It is of another kind, to be read after "because".
pub fn is_accelerated(domain: &Element) -> Result<bool, String> {
    match domain.get("type") {
        Some("kvm") => Ok(true),
        Some("qemu") => Ok(false),
        kind => Err(format!(
            "it is a domain of another kind, {:?}",
            kind.unwrap_or_default()
        )),
    }
}

/// `whole` where all that is in it is told.
fn part(node: Node<'_, '_>, whole: bool, depth: usize) -> Element {
    let name = node.tag_name().name();
    let whole = whole || WHOLE.contains(&name);
    let asked = ASKED.iter().find(|(of, _)| *of == name);
    let is_told = |child: &Node<'_, '_>| {
        let name = child.tag_name().name();
        let is_asked = asked.is_some_and(|(_, parts)| parts.contains(&name));
        (whole && name != LEFT_OUT) || (is_asked && (name != "channel" || leads_to_agent(child)))
    };
    let attributes = node.attributes();
    let children = node.children().filter(Node::is_element);
    let parts: Vec<Element> = match depth {
        0 => Vec::new(),
        _ if name == ARGUMENTS => given(node),
        _ => children
            .filter(is_told)
            .map(|child| part(child, whole, depth - 1))
            .collect(),
    };
    let is_empty = parts.is_empty();
    let text = node.text().map(str::trim).filter(|text| !text.is_empty());
    Element {
        name: name.to_owned(),
        attributes: attributes
            .map(|one| (one.name().to_owned(), one.value().to_owned()))
            .collect(),
        text: text
            .filter(|_| is_empty && name != ARGUMENTS)
            .map(str::to_owned),
        parts,
    }
}

/// What other channels are called is nobody's.
fn leads_to_agent(channel: &Node<'_, '_>) -> bool {
    let mut parts = channel.children();
    parts.any(|part| part.has_tag_name("target") && part.attribute("name") == Some(AGENT))
}

/// Arguments that libvirt knows nothing of, as far as rules ask about them.
fn given(node: Node<'_, '_>) -> Vec<Element> {
    let args = node.children().filter_map(|arg| arg.attribute("value"));
    let args: Vec<String> = args.map(str::to_owned).collect();
    let told = arguments(&args).into_iter();
    let words = told.flat_map(|argument| [Some(argument.option), argument.value]);
    let words = words.flatten();
    words
        .map(|word| Element::named("arg").with("value", &word))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\
         <name>web</name><vcpu>4</vcpu>\
         <memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>\
         <cpu mode='custom' match='exact'><model fallback='forbid'>EPYC</model></cpu>\
         <devices><emulator>/usr/bin/qemu</emulator>\
         <disk><source file='/secret'/></disk>\
         <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'><address secret='x'/></source>\
         <model type='virtio'/><driver name='vhost' queues='4'><host gso='off'/></driver><mtu size='9000'/></interface>\
         <interface type='user'><mac address='52:54:00:00:00:02'/></interface>\
         <channel type='unix'><target type='virtio' name='hunter2'/></channel>\
         <graphics type='vnc' passwd='hunter2'/></devices>\
         <qemu:commandline><qemu:arg value='-object'/><qemu:arg value='secret,id=s,data=hunter2'/>\
         <qemu:arg value='-cpu'/><qemu:arg value='host'/><qemu:env name='A' value='hunter2'/></qemu:commandline></domain>";

    #[test]
    fn what_rules_do_not_ask_about_is_left_out_with_its_secrets() {
        let domain = read(XML).unwrap();
        let text = format!("{domain:?}");
        for secret in ["hunter2", "secret", "/usr/bin/qemu"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(is_accelerated(&domain), Ok(true));
        let interface = domain.part("devices").unwrap().all("interface").next();
        let driver = interface.unwrap().part("driver").unwrap();
        let lines = [
            "<driver name='vhost' queues='4'>",
            "  <host gso='off'/>",
            "</driver>",
        ];
        assert_eq!(driver.lines(), lines);
        let given = domain.part(ARGUMENTS).unwrap().lines();
        let lines = [
            "<commandline>",
            "  <arg value='-cpu'/>",
            "  <arg value='host'/>",
            "</commandline>",
        ];
        assert_eq!(given, lines);
    }

    #[test]
    fn cards_of_a_domain_are_told_by_their_addresses() {
        let cards = cards(&read(XML).unwrap());
        let told: Vec<_> = cards
            .iter()
            .map(|card| (card.netdev.as_str(), card.multiqueue, card.offered_mtu))
            .collect();
        let expected = [
            ("52:54:00:00:00:01", true, Some(9000)),
            ("52:54:00:00:00:02", false, None),
        ];
        assert_eq!(told, expected);
        let why = cards[0].guest_mtu.get().unwrap_err();
        assert_eq!(why, "no guest agent is in its definition");
        let channel = format!(
            "<channel type='unix'><target type='virtio' name='{AGENT}'/></channel></devices>"
        );
        let with_agent = XML.replace("</devices>", &channel);
        let cards = super::cards(&read(&with_agent).unwrap());
        assert_eq!(cards[0].guest_mtu.get(), Err(AGENT_OF_LIBVIRT));
    }

    #[test]
    fn features_of_a_policy_are_one_in_short_and_nothing_else_is() {
        let feature =
            |policy: &str, name: &str| format!("<feature policy='{policy}' name='{name}'/>");
        let features = [
            feature("require", "avx"),
            feature("disable", "pku"),
            feature("require", "avx2"),
        ];
        let xml = format!(
            "<domain><cpu mode='custom'><numa><cell id='0'><distances/></cell></numa>{}</cpu></domain>",
            features.concat()
        );
        let now = read(&xml).unwrap();
        let lines = [
            "<domain>",
            "  <cpu mode='custom'>",
            "    <numa>",
            "      <cell id='0'/>",
            "    </numa>",
            "    <feature policy='require' name='avx avx2'/>",
            "    <feature policy='disable' name='pku'/>",
            "  </cpu>",
            "</domain>",
        ];
        assert_eq!(brief(&now).lines(), lines);
        let without = read("<domain/>").unwrap();
        assert_eq!(brief(&without), without);
    }

    #[test]
    fn what_is_told_of_a_domain_has_an_end() {
        let with = |letters: usize| {
            let mac = "x".repeat(letters);
            format!(
                "<domain><devices><interface><mac address='{mac}'/></interface></devices></domain>"
            )
        };
        assert!(read(&with(BYTES - 1000)).is_ok());
        let why = read(&with(BYTES)).unwrap_err();
        assert!(why.contains("131072 at most"), "{why}");
        // It is reckoned as it is told.
        let told = read(&with(1000)).unwrap();
        let json = serde_json::to_string(&told).unwrap().len();
        assert!(bytes(&told).abs_diff(json) < 200, "{json}");
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        let refused = |xml: &str| read(xml).unwrap_err();
        assert!(refused("<domain>").contains("cannot be read"));
        assert!(refused("<network/>").contains("no domain"));
        let many = "<a/>".repeat(NODES as usize + 1);
        assert!(refused(&format!("<domain>{many}</domain>")).contains("cannot be read"));
        // Parts of parts have an end.
        let deep = format!(
            "<domain><cpu>{}{}</cpu></domain>",
            "<a>".repeat(40),
            "</a>".repeat(40)
        );
        let lines = read(&deep).unwrap().lines();
        assert!(lines.len() < 2 * DEPTH + 2, "{lines:?}");
        let other = read("<domain type='xen'/>").unwrap();
        assert!(is_accelerated(&other).unwrap_err().contains("xen"));
    }
}
