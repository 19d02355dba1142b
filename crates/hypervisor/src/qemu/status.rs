use std::time::Duration;

use drover_types::{BitRate, Bytes};
use serde_json::Value;

use crate::limits::BLOCKERS;
use crate::progress::{MigrationProgress, MigrationStatus};
use crate::qmp::excerpt;

/// Reads the answer to `query-migrate`. Source: `MigrationInfo` in QEMU's `qapi/migration.json`.
pub(crate) fn progress(info: &Value) -> MigrationProgress {
    let ram = &info["ram"];
    let number = |name: &str| ram[name].as_u64().unwrap_or(0);
    let time = |name: &str| info[name].as_u64().map(Duration::from_millis);
    let error = info["error-desc"].as_str().map(excerpt);
    // Of one that listens 7.2 tells no status, and newer ones this.
    let untold = match info["socket-address"].is_array() {
        true => "setup",
        false => "none",
    };
    MigrationProgress {
        status: MigrationStatus::from_word(info["status"].as_str().unwrap_or(untold)),
        total_time: time("total-time").unwrap_or_default(),
        setup_time: time("setup-time"),
        downtime: time("downtime"),
        expected_downtime: time("expected-downtime"),
        transferred: Bytes(number("transferred")),
        multifd: Bytes(number("multifd-bytes")),
        remaining: Bytes(number("remaining")),
        total: Bytes(number("total")),
        zero_pages: number("duplicate"),
        normal_pages: number("normal"),
        page_size: Bytes(number("page-size")),
        dirty_pages_per_second: number("dirty-pages-rate"),
        rounds: number("dirty-sync-count"),
        rate: rate(ram["mbps"].as_f64().unwrap_or(0.0)),
        throttle: throttle(info),
        postcopy_bytes: Bytes(number("postcopy-bytes")),
        postcopy_requests: number("postcopy-requests"),
        error,
        disks: None,
    }
}

/// QEMU tells it only of `auto-converge`, and only while that is at work.
fn throttle(info: &Value) -> u8 {
    let percent = info["cpu-throttle-percentage"].as_u64();
    percent.map_or(0, |percent| u8::try_from(percent.min(99)).unwrap_or(99))
}

/// Why a guest cannot be migrated, from the answer to `query-migrate`. QEMU has the member since 6.0,
/// and only while there is a reason.
pub(crate) fn blockers(info: &Value) -> Vec<String> {
    let reasons = info["blocked-reasons"].as_array().into_iter().flatten();
    let reasons = reasons.filter_map(Value::as_str).map(excerpt);
    reasons.take(BLOCKERS).collect()
}

/// Reads the answer to `query-dirty-rate` as what is dirtied in a time: whole MiB per second, so that it is half of one
/// more on average. Source: `DirtyRateInfo` in QEMU's `qapi/migration.json`.
pub(crate) fn dirtied(info: &Value, time: Duration) -> Option<Bytes> {
    let measured = info["status"].as_str() == Some("measured");
    let mebibytes = info["dirty-rate"].as_u64().filter(|_| measured)?;
    let rate = match mebibytes {
        0 => 0,
        some => some.checked_mul(1 << 20)?.checked_add(1 << 19)?,
    };
    rate.checked_mul(time.as_secs()).map(Bytes)
}

/// From 10^6 bits per second; a number that is none is no rate.
fn rate(megabits: f64) -> BitRate {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // A cast of a float saturates, and takes NaN for zero.
    BitRate((megabits * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_that_never_migrated_has_no_progress() {
        let none = progress(&json!({}));
        assert_eq!(none.status, MigrationStatus::None);
        assert_eq!(
            (none.total, none.downtime, none.error),
            (Bytes(0), None, None)
        );
    }

    #[test]
    fn one_that_listens_waits_for_connections_whether_it_says_so_or_not() {
        let at = json!([{"type": "unix", "path": "/migration.sock"}]);
        let of_7_2 = progress(&json!({"socket-address": at}));
        let of_10_0 = progress(&json!({"status": "setup", "socket-address": at}));
        for listens in [of_7_2, of_10_0] {
            assert_eq!(listens.status, MigrationStatus::Setup);
        }
    }

    #[test]
    fn an_answer_of_qemu_10_is_read() {
        let read = progress(&json!({
            "status": "active", "setup-time": 3, "total-time": 512, "expected-downtime": 300,
            "ram": {"total": 1_091_379_200, "postcopy-requests": 0, "dirty-sync-count": 2,
                "multifd-bytes": 64_225_280, "pages-per-second": 30310, "downtime-bytes": 0,
                "page-size": 4096, "remaining": 1_001_730_048, "postcopy-bytes": 0,
                "mbps": 994.5, "transferred": 64_268_893, "dirty-sync-missed-zero-copy": 0,
                "precopy-bytes": 43613, "duplicate": 6152, "dirty-pages-rate": 17, "normal": 15612}
        }));
        assert_eq!(read.status, MigrationStatus::Active);
        assert_eq!(read.total_time, Duration::from_millis(512));
        assert_eq!(read.expected_downtime, Some(Duration::from_millis(300)));
        assert_eq!(read.downtime, None);
        assert_eq!(read.transferred, Bytes(64_268_893));
        assert_eq!(
            (read.zero_pages, read.normal_pages, read.rounds),
            (6152, 15612, 2)
        );
        assert_eq!(
            (read.dirty_pages_per_second, read.page_size),
            (17, Bytes(4096))
        );
        assert_eq!(read.rate, BitRate(994_500_000));
        assert_eq!((read.postcopy_bytes, read.postcopy_requests), (Bytes(0), 0));
    }

    #[test]
    fn what_followed_the_guest_by_postcopy_is_read() {
        let read = progress(&json!({
            "status": "postcopy-active",
            "ram": {"postcopy-requests": 12, "postcopy-bytes": 64_225_280, "precopy-bytes": 43613}
        }));
        assert_eq!(read.status, MigrationStatus::PostcopyActive);
        let followed = (read.postcopy_bytes, read.postcopy_requests);
        assert_eq!(followed, (Bytes(64_225_280), 12));
        let old = progress(&json!({"status": "postcopy-paused", "ram": {"total": 1}}));
        assert_eq!((old.postcopy_bytes, old.postcopy_requests), (Bytes(0), 0));
    }

    #[test]
    fn what_speaks_against_a_migration_is_told_in_qemus_words() {
        assert_eq!(blockers(&json!({"status": "none"})), Vec::<String>::new());
        let words = "VFIO migration is not supported in kernel";
        let info = json!({"blocked-reasons": [words, 7]});
        assert_eq!(blockers(&info), [words]);
        let many = json!({"blocked-reasons": vec!["no"; BLOCKERS + 1]});
        assert_eq!(blockers(&many).len(), BLOCKERS);
    }

    #[test]
    fn a_dirty_rate_is_there_only_once_it_was_measured() {
        let measured = json!({"status": "measured", "dirty-rate": 13, "calc-time": 1});
        let four_seconds = Duration::from_secs(4);
        assert_eq!(dirtied(&measured, four_seconds), Some(Bytes(54 << 20)));
        for none in [
            json!({"status": "unstarted"}),
            json!({"status": "measuring", "dirty-rate": 13}),
            json!({"status": "measured", "dirty-rate": -1}),
            json!({"status": "measured", "dirty-rate": u64::MAX}),
        ] {
            assert_eq!(dirtied(&none, Duration::from_secs(1)), None, "{none}");
        }
    }

    #[test]
    fn members_of_the_wrong_kind_are_as_good_as_none() {
        for strange in [
            json!(null),
            json!([1]),
            json!({"ram": 7, "status": {}, "downtime": -1}),
            json!({"ram": {"mbps": -1.0, "total": "x"}}),
        ] {
            let read = progress(&strange);
            assert_eq!(
                (read.total, read.rate, read.downtime),
                (Bytes(0), BitRate(0), None)
            );
        }
        assert_eq!(rate(f64::NAN), BitRate(0));
        assert_eq!(rate(f64::INFINITY), BitRate(u64::MAX));
    }
}
