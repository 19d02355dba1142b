//! Limits on what migrations may carry.

use drover_api::{LimitScope, LimitView};

use super::{or_dash, row, table};

/// `drover limit`
pub fn limits(limits: &[LimitView]) -> String {
    if limits.is_empty() {
        return "no limits: migrations carry as much as goes\n".to_owned();
    }
    let mut rows = vec![row(&["OF", "LIMIT", "RATE", "OUT", "IN", "CONFIGURED"])];
    for view in limits {
        let limit = view.limit.map(|limit| limit.to_string());
        let rate = match (view.limit, view.bits_per_second) {
            (Some(_), None) => "not known: not held".to_owned(),
            (_, rate) => or_dash(rate),
        };
        rows.push(vec![
            of(view),
            limit.unwrap_or_else(|| "lifted".to_owned()),
            rate,
            view.out.to_bits().to_string(),
            view.inward.to_bits().to_string(),
            view.configured
                .map_or_else(String::new, |limit| limit.to_string()),
        ]);
    }
    table(&rows)
}

fn of(view: &LimitView) -> String {
    match (&view.scope, &view.vm) {
        (LimitScope::Migration { .. }, Some(vm)) => format!("migration of {vm}"),
        (scope, _) => scope.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_are_shown_with_what_is_carried_under_them() {
        let list: Vec<LimitView> = serde_json::from_value(json!([
            {"scope": {"of": "host"}, "configured": "5gbit", "out": 0, "in": 0},
            {"scope": {"of": "nic", "nic": "eth1"}, "limit": "50%", "bits_per_second": 500_000_000,
             "out": 61_000_000, "in": 0},
            {"scope": {"of": "nic", "nic": "br0"}, "limit": "50%", "out": 0, "in": 0},
            {"scope": {"of": "migration", "migration": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a"},
             "vm": "web", "limit": "200mbit", "bits_per_second": 200_000_000, "out": 25_000_000, "in": 0},
        ]))
        .unwrap();
        insta::assert_snapshot!(limits(&list), @r"
        OF                LIMIT    RATE                 OUT         IN       CONFIGURED
        this host         lifted   -                    0 bit/s     0 bit/s  5gbit
        nic eth1          50%      500 Mbit/s           488 Mbit/s  0 bit/s
        nic br0           50%      not known: not held  0 bit/s     0 bit/s
        migration of web  200mbit  200 Mbit/s           200 Mbit/s  0 bit/s
        ");
        assert!(limits(&[]).contains("no limits"));
    }
}
