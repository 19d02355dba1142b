use std::fmt;

use serde_json::Value;

use crate::limits;
use crate::machine::UnixMicros;

/// QEMU's version, from its greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 10 in 10.0.2.
    pub major: u32,
    /// 0 in 10.0.2.
    pub minor: u32,
    /// 2 in 10.0.2.
    pub micro: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

impl Version {
    /// Reads what it is shown as.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        let version = Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            micro: numbers.next()??,
        };
        numbers.next().is_none().then_some(version)
    }

    /// Whether a migration may have multifd channels and go on by postcopy. QEMU 10.0 refuses to be told both; 7.2
    /// does not, and is not made for it either.
    #[must_use]
    pub fn takes_postcopy_with_multifd(self) -> bool {
        (self.major, self.minor) >= (10, 1)
    }
}

/// Something that QEMU tells without being asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// QEMU's name for it, such as `STOP`.
    pub name: String,
    /// QEMU's own time of it; zero where it gave none.
    pub at: UnixMicros,
    /// Its members, `Null` where it has none.
    pub data: Value,
}

/// One line of a monitor, understood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Greeting {
        version: Version,
        oob: bool,
    },
    Answer {
        id: Option<u64>,
        result: Result<Value, Refusal>,
    },
    Event(Event),
    /// An object of none of these shapes: a newer protocol may have more of them.
    Unknown,
}

/// The `error` of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) class: String,
    pub(crate) description: String,
}

/// Understands one line; `None` when it is no JSON object.
pub(crate) fn decode(line: &[u8]) -> Option<Message> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(line) else {
        return None;
    };
    let id = object.get("id").and_then(Value::as_u64);
    Some(if let Some(greeting) = object.get("QMP") {
        Message::Greeting {
            version: version(greeting),
            oob: offers_oob(greeting),
        }
    } else if let Some(value) = object.remove("return") {
        Message::Answer {
            id,
            result: Ok(value),
        }
    } else if let Some(error) = object.get("error") {
        Message::Answer {
            id,
            result: Err(refusal(error)),
        }
    } else if let Some(name) = object.get("event").and_then(Value::as_str) {
        let name = excerpt(name);
        let at = object.get("timestamp").map_or(UnixMicros(0), timestamp);
        let kept = line.len() <= limits::EVENT_BYTES;
        let data = object
            .remove("data")
            .filter(|_| kept)
            .unwrap_or(Value::Null);
        Message::Event(Event { name, at, data })
    } else {
        Message::Unknown
    })
}

/// The beginning of somebody else's text, short enough for a message.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(limits::EXCERPT_CHARS).collect()
}

fn version(greeting: &Value) -> Version {
    let part = |name: &str| {
        let number = greeting["version"]["qemu"][name].as_u64();
        number
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(0)
    };
    Version {
        major: part("major"),
        minor: part("minor"),
        micro: part("micro"),
    }
}

fn offers_oob(greeting: &Value) -> bool {
    let offered = greeting["capabilities"].as_array();
    offered.is_some_and(|offered| offered.iter().any(|name| name == "oob"))
}

fn refusal(error: &Value) -> Refusal {
    let text = |name: &str| excerpt(error[name].as_str().unwrap_or("(nothing said)"));
    Refusal {
        class: text("class"),
        description: text("desc"),
    }
}

fn timestamp(value: &Value) -> UnixMicros {
    // QEMU sends -1 for both when it cannot tell the time.
    let part = |name: &str| value[name].as_u64().unwrap_or(0);
    UnixMicros(
        part("seconds")
            .saturating_mul(1_000_000)
            .saturating_add(part("microseconds")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_version_is_read_as_it_is_shown_and_nothing_else_is() {
        let version = Version {
            major: 10,
            minor: 0,
            micro: 2,
        };
        assert_eq!(Version::read(&version.to_string()), Some(version));
        for other in ["", "10.0", "10.0.2.1", "10.0.x", "-1.0.0"] {
            assert_eq!(Version::read(other), None, "{other}");
        }
    }

    #[test]
    fn multifd_and_postcopy_go_together_from_qemu_10_1_on() {
        let takes = |major, minor, micro| {
            let version = Version {
                major,
                minor,
                micro,
            };
            version.takes_postcopy_with_multifd()
        };
        assert!(!takes(7, 2, 99) && !takes(10, 0, 2) && !takes(9, 9, 0));
        assert!(takes(10, 1, 0) && takes(10, 2, 0) && takes(11, 0, 0));
    }

    fn read(text: &str) -> Option<Message> {
        decode(text.as_bytes())
    }

    #[test]
    fn the_greetings_of_old_and_new_qemu_are_read() {
        let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10},
            "package": "Debian 1:10.0.2+ds-2"}, "capabilities": ["oob"]}}"#;
        let version = Version {
            major: 10,
            minor: 0,
            micro: 2,
        };
        assert_eq!(
            read(greeting),
            Some(Message::Greeting { version, oob: true })
        );
        assert_eq!(version.to_string(), "10.0.2");
        let bare = Some(Message::Greeting {
            version: Version {
                major: 0,
                minor: 0,
                micro: 0,
            },
            oob: false,
        });
        assert_eq!(read(r#"{"QMP": null}"#), bare);
    }

    #[test]
    fn answers_keep_their_id_and_errors_their_words() {
        let answer = Message::Answer {
            id: Some(7),
            result: Ok(json!({})),
        };
        assert_eq!(read(r#"{"return": {}, "id": 7}"#), Some(answer));
        let refused = r#"{"id": 8, "error": {"class": "GenericError", "desc": "no such thing"}}"#;
        let refusal = Refusal {
            class: "GenericError".into(),
            description: "no such thing".into(),
        };
        assert_eq!(
            read(refused),
            Some(Message::Answer {
                id: Some(8),
                result: Err(refusal)
            })
        );
    }

    #[test]
    fn events_of_unknown_names_and_without_a_time_are_events() {
        let known = r#"{"event": "STOP", "timestamp": {"seconds": 3, "microseconds": 5}}"#;
        let event = Event {
            name: "STOP".into(),
            at: UnixMicros(3_000_005),
            data: Value::Null,
        };
        assert_eq!(read(known), Some(Message::Event(event)));
        let strange = r#"{"event": "FROM_2031", "data": [1], "timestamp": {"seconds": -1}}"#;
        let event = Event {
            name: "FROM_2031".into(),
            at: UnixMicros(0),
            data: json!([1]),
        };
        assert_eq!(read(strange), Some(Message::Event(event)));
    }

    #[test]
    fn what_is_no_object_is_no_message_and_an_unknown_object_is_tolerated() {
        for bad in ["", "{", "[]", "null", "\"QMP\"", "\u{0}\u{1}", "{}{}"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(decode(&[0xff, 0xfe]), None);
        assert_eq!(decode("[".repeat(100_000).as_bytes()), None);
        assert_eq!(read(r#"{"news": 1}"#), Some(Message::Unknown));
        assert_eq!(read(r#"{"event": 1}"#), Some(Message::Unknown));
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused_without_panic(line: Vec<u8>) {
            let _ = decode(&line);
        }

        #[test]
        fn members_of_any_kind_do_no_harm(
            key in "QMP|event|return|error|id|data|timestamp",
            other in "QMP|event|error|timestamp",
            value in "null|-1|1e99|\\[\\]|\"x\"|\\{\"version\":[0-9]\\}|\\{\"seconds\":9e18\\}",
        ) {
            let line = format!("{{\"{key}\": {value}, \"{other}\": {value}}}");
            prop_assert!(decode(line.as_bytes()).is_some(), "{}", line);
        }
    }

    #[test]
    fn an_event_too_long_to_keep_loses_its_data_and_nothing_else() {
        let long = "x".repeat(limits::EVENT_BYTES);
        let Some(Message::Event(event)) = read(&json!({"event": "E", "data": long}).to_string())
        else {
            panic!("no event");
        };
        assert_eq!((event.name.as_str(), event.data), ("E", Value::Null));
    }
}
