//! What NetworkManager reads of the lines that a profile gets.

use drover_tune::lasting::keyfile::Keyfile;
use drover_tune::lasting::{NicOwner, Owners, Place, SetUp, lasting, rewrites};

use super::*;

/// What is to last: of what, what is there, and what is to be.
type Setting = (NicSetting, &'static str, &'static str);

impl Managed {
    /// Has these last by the profile, and NetworkManager read it. Nothing is set.
    fn write(&self, settings: Vec<Setting>) {
        let keyfile = Keyfile {
            path: PROFILE.into(),
            ethernet: "[ethernet]".into(),
        };
        let by = SetUp::NetworkManager {
            profile: "0f2c1d5e-55aa-4a0e-9d5b-1f2e3d4c5b6a".into(),
            keyfile: Ok(keyfile),
        };
        let owners = Owners {
            nics: [("nm0".to_owned(), NicOwner { by, link: None })].into(),
            network_manager: Ok((1, 42)),
            ..Owners::default()
        };
        let step = |(what, from, to): Setting| Step::Nic {
            nic: "nm0".into(),
            what,
            from: from.into(),
            to: to.into(),
        };
        let steps: Vec<Step> = settings.into_iter().map(step).collect();
        let (told, not_kept) = lasting(steps.iter(), &owners);
        assert_eq!(not_kept, []);
        let look = |_: &str| {
            Ok(Place {
                text: Some(self.text()),
                mode: 0o600,
                uid: 0,
                gid: 0,
                folders: Vec::new(),
            })
        };
        let (files, by_hand) = rewrites(told, look);
        assert_eq!(by_hand, []);
        fs::write(self.file(), &files[0].after).unwrap();
        self.nmcli(&format!("connection load {PROFILE}")).unwrap();
    }

    fn has(&self, properties: &[(&str, &str)]) {
        for (property, value) in properties {
            assert_eq!(self.knows(property), *value, "{property}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_that_a_profile_gets_is_read_as_it_is_meant() {
    let Some(managed) = Managed::new("nmkeys").await else {
        return;
    };
    let feature = |name: &str| NicSetting::Feature(name.into());
    let modes = "on advertise 100baseT/Full on 1000baseT/Full on";
    managed.write(vec![
        (NicSetting::Mtu, "1500", "1400"),
        (NicSetting::ReceiveRing, "256", "512"),
        (NicSetting::AdaptiveReceive, "off", "on"),
        (feature("rx-checksum"), "on", "off"),
        (feature("rx-gro"), "off", "on"),
        (feature("rx-lro"), "off", "on"),
        (NicSetting::Negotiation, modes, "on speed 1000 duplex full"),
        (NicSetting::Pause, "rx on tx on", "rx off tx on"),
    ]);
    managed.has(&[
        ("802-3-ethernet.mtu", "1400"),
        ("802-3-ethernet.auto-negotiate", "yes"),
        ("802-3-ethernet.speed", "1000"),
        ("802-3-ethernet.duplex", "full"),
        ("ethtool.ring-rx", "512"),
        ("ethtool.coalesce-adaptive-rx", "1"),
        ("ethtool.feature-rx", "off"),
        ("ethtool.feature-gro", "on"),
        ("ethtool.feature-lro", "on"),
        ("ethtool.pause-autoneg", "off"),
        ("ethtool.pause-rx", "off"),
        ("ethtool.pause-tx", "on"),
    ]);
    // The duplex stays in the file, and is none beside a rate of 0.
    managed.write(vec![(NicSetting::Negotiation, modes, "on")]);
    let text = managed.text();
    assert!(
        text.contains("speed=0\n") && text.contains("duplex=full\n"),
        "{text}"
    );
    managed.has(&[
        ("802-3-ethernet.auto-negotiate", "yes"),
        ("802-3-ethernet.speed", "0"),
        ("802-3-ethernet.duplex", ""),
    ]);
    let by_hand = "off speed 100 duplex half";
    managed.write(vec![(NicSetting::Negotiation, modes, by_hand)]);
    managed.has(&[
        ("802-3-ethernet.auto-negotiate", "no"),
        ("802-3-ethernet.speed", "100"),
        ("802-3-ethernet.duplex", "half"),
    ]);
}
