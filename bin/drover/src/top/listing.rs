//! The rows of each view, and what is known of one of them, as words.

use drover_api::{
    HostView, MigrationRole, MigrationView, MoveState, PeerView, RunView, StatusView, VmState,
    VmView,
};
use drover_types::{ByteRate, Interface};

use super::state::{Seen, Top, View, carried, under_way};
use crate::runs::live;
use crate::show::{self, milliseconds, or_dash, row, word};

/// Characters of a small graph.
const GRAPH: usize = 16;
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A row.
#[derive(Debug)]
pub struct Line {
    /// What it is about, while it is listed.
    pub key: String,
    pub cells: Vec<String>,
    /// Somebody should look at it.
    pub is_alarming: bool,
}

/// The rows of a view.
#[derive(Debug)]
pub struct Listing {
    pub heads: &'static [&'static str],
    pub rows: Vec<Line>,
    /// What stands in the place of rows, or beside them.
    pub remark: String,
}

impl Listing {
    fn of(heads: &'static [&'static str]) -> Self {
        Self {
            heads,
            rows: Vec::new(),
            remark: String::new(),
        }
    }

    fn add(&mut self, key: impl Into<String>, cells: Vec<String>, is_alarming: bool) {
        self.rows.push(Line {
            key: key.into(),
            cells,
            is_alarming,
        });
    }
}

/// The rows of the view that is shown.
pub fn listing(top: &Top) -> Listing {
    let Some((seen, _)) = &top.seen else {
        return Listing::of(&[]);
    };
    match top.view {
        View::Hosts => hosts(top, &seen.status),
        View::Guests => guests(&seen.status),
        View::Nics => nics(top, &seen.status),
        View::Migrations => migrations(top, &seen.status),
        View::Run => run(seen),
    }
}

fn hosts(top: &Top, status: &StatusView) -> Listing {
    let mut listing = Listing::of(&["HOST", "STATE", "FREE", "GUESTS", "OUT", "IN", "LATELY"]);
    let host = &status.host;
    let key = format!("host {}", host.host);
    let running = status.vms.iter().filter(|vm| vm.state == VmState::Running);
    let rate = |role| rate(carried(status, role, None));
    let state = host.cordon.as_ref().map_or("ready", |_| "CORDONED");
    let cells = [
        host.host.as_str(),
        state,
        &host.memory.available.to_string(),
        &format!("{} of {}", running.count(), status.vms.len()),
        &rate(MigrationRole::Source),
        &rate(MigrationRole::Destination),
        &graph(top, &key),
    ];
    listing.add(&key, row(&cells), false);
    for peer in &status.peers {
        let state = if peer.reachable {
            "reachable"
        } else {
            "UNREACHABLE"
        };
        let key = format!("host {}", peer.host);
        let cells = row(&[peer.host.as_str(), state, "-", "-", "-", "-", ""]);
        listing.add(key, cells, !peer.reachable);
    }
    listing.remark = format!(
        "As the agent of {} sees it: of other hosts it knows no more than whether they answer. \
         --agent asks another one.",
        host.host
    );
    listing
}

fn guests(status: &StatusView) -> Listing {
    let mut listing = Listing::of(&["GUEST", "STATE", "MEMORY", "VCPUS", "MOVES"]);
    for vm in &status.vms {
        let moves = under_way(status).find(|view| view.vm.as_str() == vm.name);
        let is_alarming = matches!(
            vm.state,
            VmState::Failed | VmState::Unreachable | VmState::Invalid
        );
        let cells = vec![
            vm.name.clone(),
            word(&vm.state),
            or_dash(vm.memory),
            or_dash(vm.vcpus),
            or_dash(moves.map(way)),
        ];
        listing.add(&vm.name, cells, is_alarming);
    }
    listing
}

fn nics(top: &Top, status: &StatusView) -> Listing {
    let heads = &[
        "NIC", "STATE", "SPEED", "MTU", "OUT", "IN", "LINE", "LATELY",
    ];
    let mut listing = Listing::of(heads);
    for nic in status.host.interfaces.iter().filter(|nic| !nic.loopback) {
        let carried = |role| carried(status, role, Some(&nic.name));
        let (out, into) = (
            carried(MigrationRole::Source),
            carried(MigrationRole::Destination),
        );
        // Each direction has the whole line.
        let used = nic.speed.filter(|speed| speed.0 > 0);
        let used = used.map(|speed| u128::from(out.max(into)) * 800 / u128::from(speed.0));
        let key = format!("nic {}", nic.name);
        let cells = vec![
            nic.name.clone(),
            if nic.up { "up" } else { "DOWN" }.to_owned(),
            or_dash(nic.speed),
            nic.mtu.to_string(),
            rate(out),
            rate(into),
            or_dash(used.map(|percent| format!("{percent} %"))),
            graph(top, &key),
        ];
        listing.add(key, cells, !nic.up);
    }
    listing.remark = "What migrations carry; what else goes over a NIC is not counted.".to_owned();
    listing
}

fn migrations(top: &Top, status: &StatusView) -> Listing {
    let heads = &["GUEST", "WAY", "PHASE", "DONE", "RATE", "LEFT", "LATELY"];
    let mut listing = Listing::of(heads);
    let mut all: Vec<&MigrationView> = status.migrations.iter().collect();
    all.sort_by_key(|view| view.phase.has_ended());
    for view in all {
        let key = format!("migration {}", view.id);
        let has_ended = view.phase.has_ended();
        let part = match view.bytes.total.0 {
            0 => None,
            total => {
                let left = view.bytes.remaining.0.min(total);
                Some(u128::from(total - left) * 100 / u128::from(total))
            }
        };
        let has_begun = view.bytes.transferred.0 > 0 && !has_ended;
        let part = part.filter(|_| has_begun);
        let cells = vec![
            view.vm.to_string(),
            way(view),
            word(&view.phase),
            or_dash(part.map(|percent| format!("{percent} %"))),
            if has_ended {
                String::new()
            } else {
                rate(view.rate.0)
            },
            or_dash(view.time_left_ms.filter(|_| !has_ended).map(milliseconds)),
            graph(top, &key),
        ];
        listing.add(key, cells, view.ambiguity.is_some());
    }
    if listing.rows.is_empty() {
        listing.remark = "No guest moves to or from this host.".to_owned();
    }
    listing
}

fn run(seen: &Seen) -> Listing {
    let mut listing = Listing::of(&["NO", "GUEST", "WAY", "STATE", "DONE", "RATE", "WHY"]);
    let view = match &seen.run {
        Ok(Some(view)) => view,
        Ok(None) => {
            listing.remark = "Nothing was drained, resumed or rebalanced yet.".to_owned();
            return listing;
        }
        Err(problem) => {
            listing.remark.clone_from(problem);
            return listing;
        }
    };
    for one in &view.moves {
        let live = one.live.as_ref();
        let cells = vec![
            one.number.to_string(),
            one.vm.to_string(),
            format!("{} -> {}", one.from, one.to),
            word(&one.state),
            live.map_or_else(String::new, |live| format!("{} %", live::percent(live))),
            live.map_or_else(String::new, |live| rate(live.rate.0)),
            one.cause.clone().unwrap_or_default(),
        ];
        let is_alarming = one.state == MoveState::Failed;
        listing.add(format!("move {}", one.number), cells, is_alarming);
    }
    listing.remark = run_summary(view);
    listing
}

fn run_summary(view: &RunView) -> String {
    let guests = show::runs::last_moves(view);
    let state = view
        .result
        .map_or_else(|| word(&view.phase), |result| word(&result));
    format!(
        "{}: {state}, {} of {} moved; by {}, carried out by {}",
        drover_plan::text::request(&view.request),
        show::runs::moved(&guests),
        guests.len(),
        view.by,
        view.coordinator
    )
}

/// All that is known of a row, line by line; nothing when it is gone.
pub fn detail(top: &Top, key: &str) -> Option<String> {
    let (seen, _) = top.seen.as_ref()?;
    let status = &seen.status;
    let is_it = |kind: &str, name: &str| key.strip_prefix(kind) == Some(name);
    match top.view {
        View::Hosts if is_it("host ", status.host.host.as_str()) => Some(show::host(&status.host)),
        View::Hosts => {
            let mut peers = status.peers.iter();
            peers
                .find(|peer| is_it("host ", peer.host.as_str()))
                .map(peer)
        }
        View::Guests => status.vms.iter().find(|vm| vm.name == key).map(guest),
        View::Nics => {
            let mut nics = status.host.interfaces.iter();
            let nic = nics.find(|nic| is_it("nic ", &nic.name))?;
            Some(interface(nic, &status.host))
        }
        View::Migrations => {
            let mut all = status.migrations.iter();
            let view = all.find(|view| is_it("migration ", &view.id.to_string()))?;
            let cause = view.cause.as_ref().map(|cause| format!("cause: {cause}\n"));
            Some(show::migrations::detail(view) + &cause.unwrap_or_default())
        }
        View::Run => {
            let view = seen.run.as_ref().ok()?.as_ref()?;
            let mut moves = view.moves.iter();
            let one = moves.find(|one| is_it("move ", &one.number.to_string()))?;
            Some(show::runs::moves(&[one]))
        }
    }
}

fn peer(peer: &PeerView) -> String {
    let addresses: Vec<_> = peer.api.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        row(&["host", peer.host.as_str()]),
        row(&["version", &or_dash(peer.version.as_ref())]),
        row(&["addresses", &addresses.join(" ")]),
    ];
    if let Some(problem) = &peer.problem {
        rows.push(row(&["problem", &problem.to_string()]));
    }
    show::table(&rows)
}

fn guest(vm: &VmView) -> String {
    let mut rows = vec![
        row(&["guest", &vm.name]),
        row(&["state", &word(&vm.state)]),
        row(&["machine", &or_dash(vm.machine.as_ref())]),
        row(&["qemu", &or_dash(vm.qemu_version.as_ref())]),
        row(&["process", &or_dash(vm.pid)]),
    ];
    if let Some(problem) = &vm.problem {
        rows.push(row(&["problem", problem]));
    }
    show::table(&rows)
}

fn interface(nic: &Interface, host: &HostView) -> String {
    let addresses: Vec<_> = nic.addresses.iter().map(ToString::to_string).collect();
    let rows = [
        row(&["nic", &nic.name]),
        row(&["host", host.host.as_str()]),
        row(&["addresses", &addresses.join(" ")]),
        row(&[
            "queues",
            &format!("{} out, {} in", nic.tx_queues, nic.rx_queues),
        ]),
        row(&["rdma", &or_dash(nic.rdma.as_ref())]),
    ];
    show::table(&rows)
}

fn way(view: &MigrationView) -> String {
    format!("{} -> {}", view.source, view.destination)
}

fn rate(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        bytes => ByteRate(bytes).to_string(),
    }
}

/// The last rates, the highest of them as high as can be.
fn graph(top: &Top, key: &str) -> String {
    let past: Vec<u64> = top.past(key).rev().take(GRAPH).collect();
    let most = past.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let step = |rate: u64| u128::from(rate) * (STEPS.len() as u128 - 1) / u128::from(most);
    let steps = past.iter().rev().map(|rate| usize::try_from(step(*rate)));
    let known = steps.map(|step| step.ok().and_then(|step| STEPS.get(step)));
    known.map(|step| step.copied().unwrap_or(' ')).collect()
}
