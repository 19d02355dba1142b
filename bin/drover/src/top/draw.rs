//! Puts the content on a screen of any size. Draws, and decides nothing.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

use super::listing::{Listing, detail};
use super::state::{Mode, Top, View, under_way};
use crate::show::age;

const KEYS: &str = "\
1 to 5, Tab   hosts, guests, NICs, migrations, the run
:             the same by name, such as :nics; :help, :quit
j k, arrows   down and up; g and G to the first and last
Enter         all that is known of a row
/             only rows with these words; Esc takes that back
? Esc         this help, and back
q, Ctrl-C     leave

This screen only looks: nothing that can be pressed or typed here changes
anything on any host.";

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, top: &Top, now: Timestamp, colours: bool) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, tabs, body, foot] = Layout::vertical(rows).areas(frame.area());
    let style = Styles { colours };
    frame.render_widget(title(top, now, &style), head);
    frame.render_widget(views(top), tabs);
    match &top.mode {
        Mode::Help => frame.render_widget(Paragraph::new(KEYS), body),
        Mode::Detail(key) => {
            let text = detail(top, key).unwrap_or_else(|| "It is gone.".to_owned());
            frame.render_widget(Paragraph::new(text), body);
        }
        Mode::Listing | Mode::Filter | Mode::Command(_) => list(frame, top, body, &style),
    }
    frame.render_widget(Paragraph::new(bottom(top)), foot);
}

/// With colours, or only with what every terminal can do.
struct Styles {
    colours: bool,
}

impl Styles {
    fn alarm(&self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colours {
            style.fg(Color::Red)
        } else {
            style
        }
    }
}

fn title(top: &Top, now: Timestamp, style: &Styles) -> Line<'static> {
    let host = top.seen.as_ref().map(|(seen, at)| {
        let status = &seen.status;
        let moving = under_way(status).count();
        let text = format!(
            "{}  droverd {}  {} guests, {moving} moving",
            status.host.host,
            status.host.version,
            status.vms.len()
        );
        (text, *at)
    });
    match (&top.away, host) {
        (None, None) => Line::from("asking the agent"),
        (None, Some((text, _))) => {
            Line::from(text).style(Style::new().add_modifier(Modifier::BOLD))
        }
        (Some((since, problem)), host) => {
            let seen = host.map_or_else(String::new, |(text, at)| {
                format!("; seen {} ago: {text}", age(at, now))
            });
            let text = format!("NO ANSWER for {}{seen}; {problem}", age(*since, now));
            Line::from(Span::styled(text, style.alarm()))
        }
    }
}

fn views(top: &Top) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, view) in (1..).zip(View::ALL) {
        let word = format!("{number} {}", view.word());
        spans.push(if view == top.view {
            let chosen = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            Span::styled(format!("[{word}]"), chosen)
        } else {
            Span::raw(format!(" {word} "))
        });
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

fn list(frame: &mut Frame<'_>, top: &Top, area: Rect, style: &Styles) {
    let listing = top.listing();
    // Two lines hold every remark on 80 columns.
    let below = if listing.remark.is_empty() { 0 } else { 2 };
    let parts = [Constraint::Min(0), Constraint::Length(below)];
    let [rows, remark] = Layout::vertical(parts).areas(area);
    let widths = widths(&listing);
    let line = |line: &super::listing::Line| {
        let row = Row::new(line.cells.clone());
        if line.is_alarming {
            row.style(style.alarm())
        } else {
            row
        }
    };
    let head = Row::new(listing.heads.to_vec());
    let table = Table::new(listing.rows.iter().map(line), widths)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let chosen = (!listing.rows.is_empty()).then_some(top.selected);
    let mut state = TableState::default().with_selected(chosen);
    frame.render_stateful_widget(table, rows, &mut state);
    let remark_text = Paragraph::new(listing.remark).wrap(Wrap { trim: true });
    frame.render_widget(remark_text, remark);
}

/// As wide as the widest cell.
fn widths(listing: &Listing) -> Vec<Constraint> {
    let width = |(column, head): (usize, &&str)| {
        let cells = listing.rows.iter().filter_map(|row| row.cells.get(column));
        let cells = cells.map(|cell| cell.chars().count());
        let most = cells.max().unwrap_or(0).max(head.len());
        Constraint::Length(u16::try_from(most).unwrap_or(u16::MAX))
    };
    listing.heads.iter().enumerate().map(width).collect()
}

fn bottom(top: &Top) -> String {
    match (&top.mode, &top.message) {
        (Mode::Filter, _) => format!("/{}", top.filter),
        (Mode::Command(words), _) => format!(":{words}"),
        (_, Some(message)) => message.clone(),
        (Mode::Help | Mode::Detail(_), None) => "Esc back".to_owned(),
        (Mode::Listing, None) if !top.filter.is_empty() => {
            format!("only rows with {:?}; Esc shows all", top.filter)
        }
        (Mode::Listing, None) => {
            ": view  / filter  Enter details  ? help  q quit   read-only".to_owned()
        }
    }
}
