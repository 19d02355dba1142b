//! Reports that are handed to others.

use drover_tune::facts::{
    Answers, Counted, Crossing, Fact, Fact::Known, Host, Path, PathEnd, Traffic,
};
use drover_tune::{Document, Report, examine};

use crate::guests::{guest, guest_on, own};
use crate::hosts::{by_hand, gbit, healthy, link, value};

const HOSTILE: &str = "<script>alert(1)</script> | `x` [l](javascript:alert(1)) \"'&\n# h\u{202e}";

/// A path with nothing wrong, between hosts and their numbers.
pub fn path(near: (&str, u8), far: (&str, u8)) -> Path {
    let end = |(host, number): (&str, u8)| PathEnd {
        host: host.into(),
        nic: "ens1f0".into(),
        address: format!("10.0.1.{number}").parse().unwrap(),
        mtu: 9000,
    };
    let crossing = Crossing {
        size: 9000,
        vanish: false,
    };
    let crossed = Traffic {
        received: 2000,
        sent: 2000,
    };
    Path {
        near: end(near),
        far: end(far),
        route: Known("ens1f0".into()),
        refused: None,
        answers: Known(Answers {
            asked: 100,
            answered: 100,
        }),
        arrivals: Known(["ens1f0".to_owned()].into()),
        there: Known(crossing),
        back: Known(crossing),
        round_trip: Known(45),
        counted: Known(Counted {
            asked: 1000,
            answered: 1000,
            near: crossed,
            far: crossed,
        }),
        carried: None,
        together: None,
    }
}

/// A link that was set by hand, a guest whose definition is to be changed, a driver that does not tell, and a path on which large packets vanish.
fn spoiled() -> (Vec<Host>, Vec<Path>) {
    let (mut a, mut b) = (healthy("a", 1), healthy("b", 2));
    by_hand(&mut a);
    link(&mut a).speed = Some(gbit(10));
    a.nics[1].rings = Fact::unknown("its driver does not tell");
    guest_on(&mut a, |guest| {
        for argument in &mut own(guest).arguments {
            argument.value = argument
                .value
                .take()
                .map(|value| value.replace(",vhost=on", ""));
        }
    });
    b.guests = Fact::unknown("no agent was asked");
    let mut back = path(("b", 2), ("a", 1));
    back.there = Known(Crossing {
        size: 1500,
        vanish: true,
    });
    (vec![a, b], vec![path(("a", 1), ("b", 2)), back])
}

fn document<'d>(
    hosts: &'d [Host],
    report: &'d Report,
    paths: Option<&'d [Path]>,
    missing: &'d [(String, String)],
) -> Document<'d> {
    Document {
        hosts,
        report,
        paths,
        missing,
        at: "2026-01-02T03:04:05Z",
        version: "1.2.3",
    }
}

#[test]
fn a_report_is_written_as_markdown_and_as_html() {
    let (hosts, paths) = spoiled();
    let report = examine(&hosts, &paths);
    let missing = [("c".to_owned(), "it does not answer".to_owned())];
    let document = document(&hosts, &report, Some(&paths), &missing);
    insta::assert_snapshot!("markdown", document.markdown());
    insta::assert_snapshot!("html", document.html());
}

#[test]
fn nothing_that_was_found_is_left_out_and_the_worst_comes_first() {
    let (hosts, paths) = spoiled();
    let report = examine(&hosts, &paths);
    let document = document(&hosts, &report, Some(&paths), &[]);
    for text in [document.markdown(), document.html()] {
        let mut at = 0;
        for finding in &report.findings {
            let title = format!("{}: {}", finding.subject, finding.rule);
            let found = text[at..].find(&title);
            at += found.unwrap_or_else(|| panic!("{title} comes in its turn: {text}"));
        }
        assert!(!report.skipped.is_empty());
        assert!(
            report
                .skipped
                .iter()
                .all(|skipped| text.contains(&skipped.rule))
        );
    }
}

#[test]
fn whatever_hosts_interfaces_switches_and_guests_are_called_is_text() {
    let (mut hosts, mut paths) = spoiled();
    for host in &mut hosts {
        host.name = HOSTILE.into();
        host.nics[0].name = HOSTILE.into();
        host.nics[0].firmware = Known(HOSTILE.into());
        value(&mut host.nics[0].neighbours)[0].name = Some(HOSTILE.into());
        value(&mut host.nics[0].neighbours)[0].port = HOSTILE.into();
    }
    hosts[0].nics[1].rings = Fact::unknown(HOSTILE);
    guest_on(&mut hosts[0], |guest| {
        guest.name = HOSTILE.into();
        own(guest).file = HOSTILE.into();
        for argument in &mut own(guest).arguments {
            let value = argument.value.take();
            argument.value =
                value.map(|value| value.replace("net0", HOSTILE).replace(",vhost=on", ""));
        }
    });
    paths[0].near.host = HOSTILE.into();
    paths[0].answers = Fact::unknown(HOSTILE);
    let report = examine(&hosts, &paths);
    let missing = [(HOSTILE.to_owned(), HOSTILE.to_owned())];
    let document = document(&hosts, &report, Some(&paths), &missing);
    let html = document.html();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for bad in ["<script", "javascript:alert(1)\"", "\u{202e}", "\n# h"] {
        assert!(!html.contains(bad), "{bad}");
    }
    // What is between angle brackets is the document's own.
    let tags = html
        .split('<')
        .skip(1)
        .map(|tag| tag.split([' ', '>']).next().unwrap());
    let own = [
        "!DOCTYPE", "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3",
        "span", "p", "dl", "dt", "dd", "a", "pre", "code", "ul", "li", "div", "table", "thead",
        "tbody", "tr", "th", "td",
    ];
    assert_eq!(
        tags.filter(|tag| !own.contains(&tag.trim_start_matches('/')))
            .collect::<Vec<_>>(),
        <[&str; 0]>::default()
    );

    let markdown = document.markdown();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // What is left without escaped letters is the document's own.
            let own = line
                .replace("\\<", "")
                .replace("\\]", "")
                .replace("\\`", "");
            assert!(
                !own.contains('<') && !own.contains("](javascript"),
                "{line}"
            );
            assert!(
                !line.starts_with("# h") && !line.contains('\u{202e}'),
                "{line}"
            );
        }
    }
    assert!(!fenced, "every fence is closed");
    assert!(markdown.contains("\\<script\\>"));
}

#[test]
fn a_report_of_hosts_with_nothing_wrong_says_so() {
    let hosts = [healthy("a", 1)];
    let report = examine(&hosts, &[]);
    let text = document(&hosts, &report, None, &[]).markdown();
    assert!(
        text.contains("Nothing was found.") && text.contains("It has no guests."),
        "{text}"
    );
    assert!(!text.contains("## Paths") && !text.contains("Not looked at"));
    let mut hosts = hosts;
    hosts[0].guests = Known(vec![guest("a")]);
    let text = document(&hosts, &report, None, &[]).markdown();
    assert!(text.contains("Its guest: web-a."), "{text}");
}
