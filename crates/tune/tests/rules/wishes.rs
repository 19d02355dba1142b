//! What somebody wants of a link, and of which nothing becomes.

use drover_tune::facts::{Bond, Fact, Host, Kind, Nic, Port};
use drover_tune::{LinkError, LinkWish};

use crate::hosts::{adapter, gbit, healthy, value, words};

/// As mlx5 tells of an adapter with a cable, and of what it corrects.
fn told() -> Nic {
    let mut nic = adapter("ens1f0", "10.0.0.1/24");
    let modes = ["1000baseKX/Full", "10000baseCR/Full", "25000baseCR/Full"];
    let link = value(&mut nic.link);
    link.modes.supported = words(&["Autoneg", "RS", "BASER", "None"]);
    link.modes.supported.extend(words(&modes));
    link.modes.advertised = link.modes.supported.clone();
    nic
}

fn by_hand(nic: &mut Nic) {
    let link = value(&mut nic.link);
    (link.negotiates, link.by_hand) = (Some(false), true);
    link.modes.advertised.remove("Autoneg");
}

/// A host with nothing else.
fn of(nic: &Nic) -> Host {
    Host {
        nics: vec![nic.clone()],
        ..healthy("a", 1)
    }
}

/// The command, and what is warned of.
fn step(nic: &Nic, wish: &LinkWish) -> (String, Vec<String>) {
    let step = wish.step(&of(nic), nic).unwrap();
    (step.step.to_string(), step.warnings)
}

fn refused(nic: &Nic, wish: &LinkWish) -> String {
    wish.step(&of(nic), nic).unwrap_err().to_string()
}

#[test]
fn a_rate_is_offered_alone_where_ends_negotiate_and_taken_back_to_the_letter() {
    let nic = told();
    let wish = LinkWish::speed("10G").unwrap();
    assert_eq!(wish, LinkWish::Rate(gbit(10)));
    let (command, warnings) = step(&nic, &wish);
    assert_eq!(
        command,
        "ethtool -s ens1f0 autoneg on speed 10000 duplex full"
    );
    assert_eq!(warnings, <[&str; 0]>::default());
    let undo = wish.step(&of(&nic), &nic).unwrap().step.undo();
    assert_eq!(
        undo.to_string(),
        "ethtool -s ens1f0 autoneg on advertise 10000baseCR/Full on 1000baseKX/Full on 25000baseCR/Full on"
    );
}

#[test]
fn a_rate_is_set_by_hand_where_nothing_is_negotiated_but_on_twisted_pairs() {
    let mut nic = told();
    by_hand(&mut nic);
    let slow = LinkWish::speed("10G").unwrap();
    let (command, warnings) = step(&nic, &slow);
    assert_eq!(
        command,
        "ethtool -s ens1f0 autoneg off speed 10000 duplex full"
    );
    assert!(
        warnings[0].contains("the other end has to be set to 10 Gbit/s"),
        "{warnings:?}"
    );
    let undo = slow.step(&of(&nic), &nic).unwrap().step.undo();
    assert_eq!(
        undo.to_string(),
        "ethtool -s ens1f0 autoneg off speed 25000 duplex full"
    );
    nic.port = Fact::Known(Port::TwistedPair);
    let (command, _) = step(&nic, &slow);
    assert_eq!(
        command,
        "ethtool -s ens1f0 autoneg on speed 10000 duplex full"
    );
}

/// As a port that was set to 10 Gbit/s looks to an end that negotiates.
fn hears_nobody() -> Nic {
    let mut nic = told();
    nic.carrier = false;
    let link = value(&mut nic.link);
    (link.speed, link.negotiates) = (None, Some(true));
    link.peer.clear();
    nic
}

#[test]
fn on_a_port_that_was_forced_a_rate_is_set_by_hand_and_taken_back_to_the_letter() {
    let nic = hears_nobody();
    let wish = LinkWish::speed("10G").unwrap();
    let (command, warnings) = step(&nic, &wish);
    assert_eq!(
        command,
        "ethtool -s ens1f0 autoneg off speed 10000 duplex full"
    );
    assert!(
        warnings.iter().any(|why| why.contains("nothing is heard")),
        "{warnings:?}"
    );
    let undo = wish.step(&of(&nic), &nic).unwrap().step.undo().to_string();
    assert!(
        undo.contains("autoneg on advertise 10000baseCR/Full on"),
        "{undo}"
    );
    // One that says what it offers can be agreed with.
    let mut heard = hears_nobody();
    value(&mut heard.link).peer = [gbit(10)].into();
    let agreed = "ethtool -s ens1f0 autoneg on speed 10000 duplex full";
    assert_eq!(step(&heard, &wish).0, agreed);
    // Twisted pairs agree on every rate from 1 Gbit/s on.
    let mut pairs = hears_nobody();
    pairs.port = Fact::Known(Port::TwistedPair);
    assert_eq!(step(&pairs, &wish).0, agreed);
}

#[test]
fn a_rate_is_forced_by_word_whatever_the_other_end_does_but_on_twisted_pairs() {
    let mut nic = told();
    let wish = LinkWish::speed("10G-forced").unwrap();
    assert_eq!(wish, LinkWish::ByHand(gbit(10)));
    let (command, warnings) = step(&nic, &wish);
    assert_eq!(
        command,
        "ethtool -s ens1f0 autoneg off speed 10000 duplex full"
    );
    assert_eq!(
        warnings,
        ["nothing is negotiated: the other end has to be set to 10 Gbit/s as well"]
    );
    nic.port = Fact::Known(Port::TwistedPair);
    assert!(refused(&nic, &wish).contains("whose ends have to agree"));
    // One that cannot negotiate at all has no other way.
    value(&mut nic.link).modes.supported.remove("Autoneg");
    assert_eq!(step(&nic, &wish).0, command);
    for text in ["-forced", "auto-forced", "10G-Forced"] {
        assert!(LinkWish::speed(text).is_err(), "{text}");
    }
}

#[test]
fn what_the_other_end_or_the_module_has_not_is_warned_of() {
    let mut nic = told();
    value(&mut nic.link).peer = [gbit(25)].into();
    let module = value(&mut nic.module);
    module.carries = [gbit(10), gbit(25)].into();
    let (_, warnings) = step(&nic, &LinkWish::speed("1gbit").unwrap());
    assert_eq!(
        warnings,
        [
            "the other end does not offer 1 Gbit/s, but 25 Gbit/s",
            "its SFP28 does not carry 1 Gbit/s, but 10 and 25 Gbit/s"
        ]
    );
}

#[test]
fn auto_has_all_offered_again_and_what_is_so_is_refused() {
    let mut nic = told();
    let auto = LinkWish::speed("auto").unwrap();
    assert!(matches!(
        auto.step(&of(&nic), &nic),
        Err(LinkError::Already { .. })
    ));
    value(&mut nic.link)
        .modes
        .advertised
        .remove("25000baseCR/Full");
    let (command, warnings) = step(&nic, &auto);
    assert_eq!(
        (command.as_str(), warnings.len()),
        ("ethtool -s ens1f0 autoneg on", 0)
    );
    by_hand(&mut nic);
    assert_eq!(
        step(&nic, &auto).1,
        ["the other end has to negotiate as well"]
    );
    let again = LinkWish::speed("25G").unwrap();
    assert_eq!(
        refused(&nic, &again),
        "ens1f0 is set to that already: autoneg off speed 25000 duplex full"
    );
    value(&mut nic.link).modes.supported.remove("Autoneg");
    assert!(refused(&nic, &auto).contains("cannot have a rate that is agreed on"));
}

#[test]
fn a_rate_that_the_adapter_has_not_is_refused_with_those_that_it_has() {
    let mut nic = told();
    let wish = LinkWish::speed("40G").unwrap();
    assert_eq!(
        refused(&nic, &wish),
        "ens1f0 cannot have 40 Gbit/s; it supports 1, 10 and 25 Gbit/s"
    );
    value(&mut nic.link).modes.supported.clear();
    assert!(refused(&nic, &wish).contains("its driver tells no rates"));
    for text in ["", "fast", "-1G", "10 G/s", "0x1G"] {
        assert!(LinkWish::speed(text).is_err(), "{text:?}");
    }
}

#[test]
fn what_could_not_be_taken_back_or_be_seen_to_come_up_is_not_begun() {
    let wish = LinkWish::speed("10G").unwrap();
    let mut silent = told();
    by_hand(&mut silent);
    value(&mut silent.link).speed = None;
    assert!(refused(&silent, &wish).contains("is not told without a carrier"));
    let mut off = told();
    off.up = false;
    assert!(matches!(
        wish.step(&of(&off), &off),
        Err(LinkError::Off { .. })
    ));
    let mut bond = told();
    (bond.kind, bond.lower) = (Kind::Bond, vec!["ens1f0".into(), "ens1f1".into()]);
    assert!(refused(&bond, &wish).ends_with("set those below it, ens1f0, ens1f1"));
    let mut mute = told();
    mute.link = Fact::Unknown("its driver does not tell".into());
    assert!(refused(&mute, &wish).contains("its driver does not tell"));
}

#[test]
fn a_correction_is_one_that_the_adapter_has() {
    let mut nic = told();
    let wish = |word: &str| LinkWish::correction(word).unwrap();
    let (command, warnings) = step(&nic, &wish("rs"));
    assert_eq!(command, "ethtool --set-fec ens1f0 encoding rs");
    assert_eq!(
        warnings,
        ["the other end has to correct errors the same way"]
    );
    assert_eq!(
        refused(&nic, &wish("llrs")),
        "ens1f0 cannot have the correction llrs; it supports off, rs, baser"
    );
    assert!(matches!(
        wish("auto").step(&of(&nic), &nic),
        Err(LinkError::Already { .. })
    ));
    value(&mut nic.fec).automatic = false;
    let (command, warnings) = step(&nic, &wish("auto"));
    assert_eq!(command, "ethtool --set-fec ens1f0 encoding auto");
    assert!(warnings.is_empty());
    assert!(LinkWish::correction("none").is_err());
}

#[test]
fn a_member_of_a_bond_is_set_with_a_warning_of_what_becomes_of_the_bond() {
    let nic = told();
    let bond = |mode: &str, carrying: Option<&str>, members: &[&str]| {
        let mut bond = adapter("bond0", "10.0.0.1/24");
        bond.kind = Kind::Bond;
        bond.lower = members.iter().map(|name| (*name).to_owned()).collect();
        bond.bond = Some(Fact::Known(Bond {
            mode: mode.into(),
            hash: None,
            active: bond.lower.clone(),
            carrying: carrying.map(str::to_owned),
            aggregator: None,
            aggregators: [].into(),
        }));
        bond
    };
    let warned = |wish: &LinkWish, bond: Nic| {
        let mut host = of(&nic);
        host.nics.push(bond);
        wish.step(&host, &nic).unwrap().warnings
    };
    let (slow, rs) = (
        LinkWish::speed("10G").unwrap(),
        LinkWish::correction("off").unwrap(),
    );
    let both = ["ens1f0", "ens1f1"];
    for (wish, mode, carrying, said) in [
        (
            &slow,
            "802.3ad",
            None,
            "with another rate it carries nothing",
        ),
        (&slow, "balance-xor", None, "a slow one holds up its share"),
        (&slow, "active-backup", Some("ens1f1"), "it may take over"),
        (
            &slow,
            "active-backup",
            Some("ens1f0"),
            "another one takes over",
        ),
        (&rs, "802.3ad", None, "the others carry its part meanwhile"),
    ] {
        let warnings = warned(wish, bond(mode, carrying, &both));
        let last = warnings.last().unwrap();
        assert!(
            last.starts_with(&format!("it is a member of bond0 ({mode})")),
            "{last}"
        );
        assert!(last.contains(said), "{last}");
    }
    let alone = warned(&slow, bond("802.3ad", None, &both[..1]));
    assert!(alone[0].contains("the only member of bond0"), "{alone:?}");
    let others = warned(&slow, bond("802.3ad", None, &both[1..]));
    assert!(others.is_empty(), "{others:?}");
}
