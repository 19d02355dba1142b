//! Facts of a port, and of why a link is down. Numbers are those of `include/uapi/linux/ethtool.h`.

use drover_tune::facts::{Down, Pause, Port};

use crate::netlink::attributes::{find, u8_of, u64_of};

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

/// Of `PAUSE`.
pub(crate) fn pause(answer: &[u8]) -> Result<Pause, &'static str> {
    let (agreed, receive, send, counted) = (2, 3, 4, 5);
    let is_on = |kind| u8_of(answer, kind).map(|on| on == 1);
    let not_told = "its driver does not tell";
    let counted = find(answer, counted).unwrap_or_default();
    let (sent, received) = (2, 3);
    Ok(Pause {
        receive: is_on(receive).ok_or(not_told)?,
        send: is_on(send).ok_or(not_told)?,
        agreed: is_on(agreed),
        sent: u64_of(counted, sent),
        received: u64_of(counted, received),
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
    use super::*;
    use crate::netlink::attributes::attribute;

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
    fn pause_frames_are_told_with_how_many_there_were_where_that_is_counted() {
        let mut answer = [attribute(2, &[1]), attribute(3, &[1]), attribute(4, &[0])].concat();
        let told = pause(&answer).unwrap();
        assert!(told.receive && !told.send);
        assert_eq!(told.agreed, Some(true));
        assert_eq!((told.sent, told.received), (None, None));
        let counted = [
            attribute(2, &7_u64.to_ne_bytes()),
            attribute(3, &9_u64.to_ne_bytes()),
        ];
        answer.extend(attribute(5, &counted.concat()));
        let told = pause(&answer).unwrap();
        assert_eq!((told.sent, told.received), (Some(7), Some(9)));
        assert!(pause(&[]).is_err());
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
