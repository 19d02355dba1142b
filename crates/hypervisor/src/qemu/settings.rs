use std::collections::BTreeSet;

use drover_types::{Throttle, ThrottleMost};
use serde_json::{Map, Value, json};

use crate::settings::{AppliedSettings, Compression, MigrationSettings, ZeroPages};

/// The rate that lifts QEMU's limit, in bytes per second. QEMU's 0 would as well, but not in
/// every version; this is near what libvirt sends for years (the most that an i64 holds).
const UNLIMITED: u64 = 1 << 62;

const DIRTY_LIMIT: &str = "dirty-limit";

/// The capability of going on by postcopy.
pub(super) const POSTCOPY: &str = "postcopy-ram";

const POSTCOPY_BANDWIDTH: &str = "max-postcopy-bandwidth";

/// The first step of QEMU's throttle (`cpu-throttle-initial`), in percent.
const THROTTLE_FIRST: u8 = 20;

/// What one QEMU offers.
#[derive(Debug, Default)]
pub(super) struct Offered {
    capabilities: BTreeSet<String>,
    parameters: BTreeSet<String>,
}

impl Offered {
    /// From the answers to `query-migrate-capabilities` and `query-migrate-parameters`.
    pub(super) fn read(capabilities: &Value, parameters: &Value) -> Self {
        let names = capabilities.as_array().into_iter().flatten();
        let names = names.filter_map(|entry| entry["capability"].as_str());
        let parameters = parameters.as_object().into_iter().flatten();
        Self {
            capabilities: names.map(str::to_owned).collect(),
            parameters: parameters.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// It was refused for this guest; whether it was offered.
    pub(super) fn withdraw_dirty_limit(&mut self) -> bool {
        self.capabilities.remove(DIRTY_LIMIT)
    }
}

/// What is sent to one QEMU for some settings.
#[derive(Debug, PartialEq)]
pub(super) struct Orders {
    /// Arguments of `migrate-set-capabilities`.
    pub(super) capabilities: Value,
    /// Arguments of `migrate-set-parameters`.
    pub(super) parameters: Value,
    pub(super) applied: AppliedSettings,
}

/// Arguments of `migrate-set-capabilities` that allow postcopy beside what was sent before; none where it is not offered.
pub(super) fn postcopy(offered: &Offered) -> Option<Value> {
    let offered = offered.capabilities.contains(POSTCOPY);
    offered.then(|| json!({"capabilities": [{"capability": POSTCOPY, "state": true}]}))
}

/// Chooses what to send, or names what is missing and cannot be done without. What an earlier
/// migration may have set is set again, so that nothing of it stays; [`postcopy`] is allowed after that.
pub(super) fn orders(settings: &MigrationSettings, offered: &Offered) -> Result<Orders, String> {
    let mut orders = Choice {
        offered,
        capabilities: Vec::new(),
        parameters: Map::new(),
        left_out: Vec::new(),
    };
    let multifd = settings.channels > 0;
    orders.capability("events", true, Need::Wanted)?;
    // Without it a source completes when all was sent, whether or not it arrived.
    orders.capability("return-path", settings.return_path, Need::Required)?;
    orders.capability("multifd", multifd, Need::Required)?;
    orders.capability(POSTCOPY, false, Need::Wanted)?;
    orders.capability("pause-before-switchover", settings.pauses, Need::Required)?;

    let downtime = u64::try_from(settings.downtime_limit.as_millis()).unwrap_or(u64::MAX);
    let bandwidth = settings.max_bandwidth.map_or(UNLIMITED, |rate| rate.0);
    orders.parameter("downtime-limit", downtime.into(), Need::Required)?;
    orders.parameter("max-bandwidth", bandwidth.into(), Need::Required)?;
    if multifd {
        orders.parameter("multifd-channels", settings.channels.into(), Need::Required)?;
    }
    orders.compression(settings.compression)?;
    orders.throttle(settings.throttle)?;
    if settings.postcopy && offered.parameters.contains(POSTCOPY_BANDWIDTH) {
        // Its guest waits for pages: nothing limits them.
        orders.parameter(POSTCOPY_BANDWIDTH, 0.into(), Need::Wanted)?;
    }
    if let Some(rate) = settings.switchover_bandwidth {
        orders.parameter("avail-switchover-bandwidth", rate.0.into(), Need::Wanted)?;
    }
    if settings.zero_pages == ZeroPages::Multifd {
        orders.parameter("zero-page-detection", "multifd".into(), Need::Wanted)?;
    }
    Ok(orders.done())
}

/// What becomes of a setting that this QEMU does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Wanted,
}

struct Choice<'a> {
    offered: &'a Offered,
    capabilities: Vec<Value>,
    parameters: Map<String, Value>,
    left_out: Vec<String>,
}

impl Choice<'_> {
    fn capability(&mut self, name: &str, state: bool, need: Need) -> Result<(), String> {
        if self.offered.capabilities.contains(name) {
            self.capabilities
                .push(json!({"capability": name, "state": state}));
        } else if state {
            self.missing(name, need)?;
        }
        Ok(())
    }

    fn parameter(&mut self, name: &str, value: Value, need: Need) -> Result<(), String> {
        if self.offered.parameters.contains(name) {
            self.parameters.insert(name.to_owned(), value);
            return Ok(());
        }
        self.missing(name, need)
    }

    /// The method and its level.
    fn compression(&mut self, compression: Option<Compression>) -> Result<(), String> {
        const METHOD: &str = "multifd-compression";
        match compression {
            // Without the parameter there is nothing to switch off.
            None if self.offered.parameters.contains(METHOD) => {
                self.parameter(METHOD, "none".into(), Need::Required)
            }
            None => Ok(()),
            Some(Compression::Zlib { level }) => {
                self.parameter(METHOD, "zlib".into(), Need::Required)?;
                self.parameter("multifd-zlib-level", level.into(), Need::Required)
            }
            Some(Compression::Zstd { level }) => {
                self.parameter(METHOD, "zstd".into(), Need::Required)?;
                self.parameter("multifd-zstd-level", level.into(), Need::Required)
            }
        }
    }

    /// Both ways of slowing a guest down exclude each other.
    fn throttle(&mut self, throttle: Option<(Throttle, ThrottleMost)>) -> Result<(), String> {
        let (how, most) = throttle.unwrap_or((Throttle::Off, ThrottleMost::default()));
        let by_writes =
            how == Throttle::DirtyLimit && self.offered.capabilities.contains(DIRTY_LIMIT);
        if how == Throttle::DirtyLimit && !by_writes {
            self.left_out.push(DIRTY_LIMIT.to_owned());
        }
        self.capability(DIRTY_LIMIT, by_writes, Need::Wanted)?;
        let by_time = how != Throttle::Off && !by_writes;
        self.capability("auto-converge", by_time, Need::Wanted)?;
        if by_time {
            // QEMU begins with 20 % by itself, and refuses a maximum below that.
            let first = most.get().min(THROTTLE_FIRST);
            self.parameter("cpu-throttle-initial", first.into(), Need::Wanted)?;
            self.parameter("max-cpu-throttle", most.get().into(), Need::Wanted)?;
        }
        Ok(())
    }

    fn missing(&mut self, name: &str, need: Need) -> Result<(), String> {
        if need == Need::Required {
            return Err(name.to_owned());
        }
        self.left_out.push(name.to_owned());
        Ok(())
    }

    fn done(self) -> Orders {
        Orders {
            capabilities: json!({"capabilities": self.capabilities}),
            parameters: Value::Object(self.parameters),
            applied: AppliedSettings {
                left_out: self.left_out,
                postcopy: false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use drover_types::ByteRate;

    fn offered(capabilities: &[&str], parameters: &[&str]) -> Offered {
        let capabilities: Vec<Value> = capabilities
            .iter()
            .map(|name| json!({"capability": name, "state": true}))
            .collect();
        let parameters: Map<String, Value> = parameters
            .iter()
            .map(|&name| (name.to_owned(), json!(0)))
            .collect();
        Offered::read(&capabilities.into(), &parameters.into())
    }

    fn old() -> Offered {
        offered(
            &["events", "return-path", "multifd"],
            &[
                "downtime-limit",
                "max-bandwidth",
                "multifd-channels",
                "multifd-compression",
            ],
        )
    }

    #[test]
    fn everything_that_an_earlier_migration_may_have_set_is_set_again() {
        let sent = orders(&MigrationSettings::default(), &old()).unwrap();
        let capabilities = json!({"capabilities": [
            {"capability": "events", "state": true},
            {"capability": "return-path", "state": true},
            {"capability": "multifd", "state": false},
        ]});
        let parameters = json!({"downtime-limit": 300, "max-bandwidth": UNLIMITED,
            "multifd-compression": "none"});
        let applied = AppliedSettings::default();
        assert_eq!(
            sent,
            Orders {
                capabilities,
                parameters,
                applied
            }
        );
    }

    #[test]
    fn what_is_asked_for_is_sent() {
        let settings = MigrationSettings {
            channels: 4,
            compression: Some(Compression::Zstd { level: 2 }),
            downtime_limit: Duration::from_millis(50),
            max_bandwidth: Some(ByteRate(1000)),
            switchover_bandwidth: Some(ByteRate(2000)),
            return_path: false,
            zero_pages: ZeroPages::Multifd,
            throttle: None,
            postcopy: false,
            pauses: false,
        };
        let parameters = [
            ("avail-switchover-bandwidth", json!(2000)),
            ("downtime-limit", json!(50)),
            ("max-bandwidth", json!(1000)),
            ("multifd-channels", json!(4)),
            ("multifd-compression", json!("zstd")),
            ("multifd-zstd-level", json!(2)),
            ("zero-page-detection", json!("multifd")),
        ];
        let names = parameters.clone().map(|(name, _)| name);
        let sent = orders(&settings, &offered(&["multifd", "return-path"], &names)).unwrap();
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(
            sent.parameters,
            Value::Object(parameters.into_iter().collect())
        );
        assert_eq!(
            sent.capabilities["capabilities"][0]["state"], false,
            "no return path"
        );
        assert_eq!(sent.applied.left_out, ["events"]);
    }

    #[test]
    fn postcopy_is_taken_back_with_everything_else_and_allowed_by_an_order_of_its_own() {
        let parameters = ["downtime-limit", "max-bandwidth", POSTCOPY_BANDWIDTH];
        let new = offered(&["events", "return-path", POSTCOPY], &parameters);
        let settings = MigrationSettings {
            postcopy: true,
            ..MigrationSettings::default()
        };
        let off = json!({"capability": POSTCOPY, "state": false});
        for (settings, unlimited) in [
            (MigrationSettings::default(), None),
            (settings.clone(), Some(&json!(0))),
        ] {
            let sent = orders(&settings, &new).unwrap();
            assert_eq!(sent.capabilities["capabilities"][2], off);
            assert_eq!(sent.parameters.get(POSTCOPY_BANDWIDTH), unlimited);
            assert_eq!(sent.applied, AppliedSettings::default());
        }
        let on = json!({"capabilities": [{"capability": POSTCOPY, "state": true}]});
        assert_eq!(postcopy(&new), Some(on));
        assert_eq!(postcopy(&old()), None);
        let sent = orders(&settings, &old()).unwrap();
        assert_eq!(sent.applied, AppliedSettings::default());
    }

    fn throttled(how: Throttle, most: i64, offers: &[&str]) -> (Value, Value, Vec<String>) {
        let parameters = [
            "cpu-throttle-initial",
            "downtime-limit",
            "max-bandwidth",
            "max-cpu-throttle",
        ];
        let settings = MigrationSettings {
            throttle: Some((how, most.try_into().unwrap())),
            return_path: false,
            ..MigrationSettings::default()
        };
        let sent = orders(&settings, &offered(offers, &parameters)).unwrap();
        let named = |name: &str| {
            let mut all = sent.capabilities["capabilities"].as_array().unwrap().iter();
            let found = all.find(|entry| entry["capability"] == name);
            found.map_or(Value::Null, |entry| entry["state"].clone())
        };
        let on = json!([named("auto-converge"), named("dirty-limit")]);
        let numbers = ["cpu-throttle-initial", "max-cpu-throttle"];
        let numbers = json!(numbers.map(|name| sent.parameters.get(name)));
        (on, numbers, sent.applied.left_out)
    }

    #[test]
    fn a_guest_is_slowed_down_as_asked_and_never_in_both_ways() {
        let offers = ["events", "auto-converge", "dirty-limit"];
        let (on, numbers, left_out) = throttled(Throttle::AutoConverge, 99, &offers);
        assert_eq!((on, numbers), (json!([true, false]), json!([20, 99])));
        assert!(left_out.is_empty());
        let (on, numbers, _) = throttled(Throttle::AutoConverge, 10, &offers);
        assert_eq!((on, numbers), (json!([true, false]), json!([10, 10])));
        let (on, numbers, left_out) = throttled(Throttle::DirtyLimit, 99, &offers);
        assert_eq!((on, numbers), (json!([false, true]), json!([null, null])));
        assert!(left_out.is_empty());
        let (on, ..) = throttled(Throttle::Off, 99, &offers);
        assert_eq!(
            on,
            json!([false, false]),
            "what an earlier one may have set"
        );
    }

    #[test]
    fn where_dirty_limit_is_not_to_be_had_the_guest_is_slowed_down_by_its_time() {
        let (on, numbers, left_out) =
            throttled(Throttle::DirtyLimit, 50, &["events", "auto-converge"]);
        assert_eq!((on, numbers), (json!([true, null]), json!([20, 50])));
        assert_eq!(left_out, ["dirty-limit"]);
        let (.., left_out) = throttled(Throttle::DirtyLimit, 50, &["events"]);
        assert_eq!(left_out, ["dirty-limit", "auto-converge"]);
    }

    #[test]
    fn what_cannot_be_done_without_is_named_and_the_rest_left_out() {
        let settings = MigrationSettings {
            channels: 2,
            ..MigrationSettings::default()
        };
        let without = offered(
            &["events", "return-path"],
            &["downtime-limit", "max-bandwidth"],
        );
        assert_eq!(orders(&settings, &without), Err("multifd".into()));
        let compression = Some(Compression::Zlib { level: 1 });
        let settings = MigrationSettings {
            compression,
            ..settings
        };
        assert_eq!(orders(&settings, &old()), Err("multifd-zlib-level".into()));
        let settings = MigrationSettings {
            switchover_bandwidth: Some(ByteRate(1)),
            ..MigrationSettings::default()
        };
        let sent = orders(&settings, &old()).unwrap();
        assert_eq!(sent.applied.left_out, ["avail-switchover-bandwidth"]);
        let nothing = Offered::read(&json!({"a": 1}), &json!([7]));
        assert_eq!(orders(&settings, &nothing), Err("return-path".into()));
    }
}
