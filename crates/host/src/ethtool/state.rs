//! Facts of a port, and of why a link is down. Numbers are those of `include/uapi/linux/ethtool.h`.

use drover_tune::facts::{Down, Port};

use super::attributes::u8_of;

/// Of `LINKINFO`.
pub(crate) fn port(answer: &[u8]) -> Result<Port, &'static str> {
    Ok(match u8_of(answer, 2).ok_or("its driver does not tell")? {
        0x00 => Port::TwistedPair,
        0x03 => Port::Fibre,
        0x05 => Port::DirectAttach,
        0xef => Port::Nothing,
        _ => Port::Other,
    })
}

/// `ETHTOOL_LINK_EXT_STATE_*`, by their numbers.
const STATES: [&str; 11] = [
    "autoneg",
    "link-training-failure",
    "link-logical-mismatch",
    "bad-signal-integrity",
    "no-cable",
    "cable-issue",
    "eeprom-issue",
    "calibration-failure",
    "power-budget-exceeded",
    "overheat",
    "module",
];

/// `ETHTOOL_LINK_EXT_SUBSTATE_*` of some of them, by their numbers, which begin at 1.
const DETAILS: [(&str, &[&str]); 6] = [
    (
        "autoneg",
        &[
            "an-no-partner-detected",
            "an-ack-not-received",
            "an-next-page-exchange-failed",
            "an-no-partner-detected-force-mode",
            "an-fec-mismatch-during-override",
            "an-no-hcd",
        ],
    ),
    (
        "link-training-failure",
        &[
            "lt-kr-frame-lock-not-acquired",
            "lt-kr-link-inhibit-timeout",
            "lt-kr-link-partner-did-not-set-receiver-ready",
            "lt-remote-fault",
        ],
    ),
    (
        "link-logical-mismatch",
        &[
            "llm-pcs-did-not-acquire-block-lock",
            "llm-pcs-did-not-acquire-am-lock",
            "llm-pcs-did-not-get-align-status",
            "llm-fc-fec-is-not-locked",
            "llm-rs-fec-is-not-locked",
        ],
    ),
    (
        "bad-signal-integrity",
        &[
            "bsi-large-number-of-physical-errors",
            "bsi-unsupported-rate",
            "bsi-serdes-reference-clock-lost",
            "bsi-serdes-alos",
        ],
    ),
    (
        "cable-issue",
        &["ci-unsupported-cable", "ci-cable-test-failure"],
    ),
    ("module", &["module-cmis-not-ready"]),
];

/// Of `LINKSTATE`.
pub(crate) fn down(answer: &[u8]) -> Option<Down> {
    let number = u8_of(answer, 5)?;
    let state = STATES.get(usize::from(number));
    let state = state.map_or_else(|| format!("state-{number}"), |name| (*name).to_owned());
    let detail = u8_of(answer, 6).filter(|number| *number > 0).map(|number| {
        let of = DETAILS.iter().find(|(of, _)| *of == state);
        let name = of.and_then(|(_, names)| names.get(usize::from(number) - 1));
        name.map_or_else(|| format!("substate-{number}"), |name| (*name).to_owned())
    });
    Some(Down { state, detail })
}

#[cfg(test)]
mod tests {
    use super::super::attributes::attribute;
    use super::*;

    #[test]
    fn why_a_link_is_down_is_told_by_the_kernels_names() {
        let answer = |state: u8, detail: Option<u8>| {
            let mut answer = attribute(2, &[0]);
            answer.extend(attribute(5, &[state]));
            answer.extend(detail.map_or_else(Vec::new, |detail| attribute(6, &[detail])));
            let down = down(&answer).unwrap();
            (down.state, down.detail)
        };
        let told = |state: &str, detail: &str| (state.to_owned(), Some(detail.to_owned()));
        assert_eq!(
            answer(0, Some(1)),
            told("autoneg", "an-no-partner-detected")
        );
        assert_eq!(answer(0, Some(6)), told("autoneg", "an-no-hcd"));
        assert_eq!(
            answer(2, Some(5)),
            told("link-logical-mismatch", "llm-rs-fec-is-not-locked")
        );
        assert_eq!(answer(4, None), ("no-cable".to_owned(), None));
        // A newer kernel's.
        assert_eq!(answer(77, Some(9)), told("state-77", "substate-9"));
        assert_eq!(answer(0, Some(200)), told("autoneg", "substate-200"));
        assert_eq!(down(&attribute(2, &[1])), None);
    }

    #[test]
    fn a_port_is_told_by_its_connector() {
        let port = |number: u8| port(&attribute(2, &[number])).unwrap();
        assert_eq!(port(0), Port::TwistedPair);
        assert_eq!(port(5), Port::DirectAttach);
        assert_eq!(port(0xef), Port::Nothing);
        assert_eq!(port(0xff), Port::Other);
        assert!(super::port(&[]).is_err());
    }
}
