//! Times and ranges in words.

use crate::precopy::Range;
use crate::text::bytes;

/// `300 ms`, `4.2 s`, `2 min 5 s`, `3 h 10 min`.
pub(super) fn time(ms: u64) -> String {
    let seconds = ms.saturating_add(500) / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        // To a tenth below ten seconds, and no "10.0".
        1_000..9_950 => format!("{}.{} s", (ms + 50) / 1000, (ms + 50) / 100 % 10),
        _ if seconds < 60 => format!("{seconds} s"),
        _ if seconds < 3600 => with_rest(seconds / 60, "min", seconds % 60, "s"),
        _ => with_rest(seconds / 3600, "h", seconds % 3600 / 60, "min"),
    }
}

fn with_rest(whole: u64, unit: &str, rest: u64, rest_unit: &str) -> String {
    match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {rest_unit}"),
    }
}

/// What is expected, and from where to where where that differs as shown.
pub(super) fn shown(range: Range, show: fn(u64) -> String) -> [String; 3] {
    [range.least, range.expected, range.most].map(show)
}

pub(super) fn time_range(range: Range) -> String {
    between(&shown(range, time))
}

pub(super) fn size_range(range: Range) -> [String; 3] {
    shown(range, bytes)
}

/// `about 3 min (2 min to 5 min)`, or what all three are.
pub(super) fn about([least, expected, most]: [String; 3]) -> String {
    if least == most {
        return expected;
    }
    format!("about {expected} ({least} to {most})")
}

pub(super) fn about_time(range: Range) -> String {
    about(shown(range, time))
}

fn between([least, _, most]: &[String; 3]) -> String {
    if least == most {
        return least.clone();
    }
    format!("{least} to {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_people_say_them() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (9_949, "9.9 s"),
            (9_950, "10 s"),
            (59_499, "59 s"),
            (59_500, "1 min"),
            (125_000, "2 min 5 s"),
            (3_599_600, "1 h"),
            (11_400_000, "3 h 10 min"),
        ];
        for (ms, text) in cases {
            assert_eq!(time(ms), text, "{ms}");
        }
    }
}
