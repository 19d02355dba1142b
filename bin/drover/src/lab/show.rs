//! What the commands of `drover lab` show to a person.

use drover_lab::operate::{GuestStatus, Moved, Status, Whole};
use drover_types::Bytes;

/// A lab that is up.
pub(super) fn status(status: &Status) -> String {
    let mut lines = vec![format!("lab {}", status.lab)];
    for host in &status.hosts {
        let addresses: Vec<_> = host.addresses.iter().map(ToString::to_string).collect();
        let agent = if host.agent {
            "agent answers"
        } else {
            "agent does NOT answer"
        };
        lines.push(format!(
            "  host {}  {}  {agent}",
            host.host,
            addresses.join(" ")
        ));
        for vm in &host.vms {
            let state = serde_json::to_value(vm.state).ok();
            let state = state
                .as_ref()
                .and_then(|state| state.as_str())
                .unwrap_or("?")
                .to_owned();
            lines.push(format!("    vm {}  {state}", vm.name));
        }
    }
    lines.extend(status.guests.iter().map(guest));
    lines.join("\n") + "\n"
}

fn guest(guest: &GuestStatus) -> String {
    let name = &guest.name;
    match (&guest.on, guest.verified_pages, guest.bad_pages) {
        (None, ..) => format!("  {name} does NOT run on any host"),
        (Some(on), Some(verified), Some(bad)) => {
            format!("  {name} runs on {on}, verified {verified} pages so far, {bad} of them bad")
        }
        (Some(on), ..) => format!("  {name} runs on {on}, and is SILENT"),
    }
}

/// A guest that verified its memory.
pub(super) fn whole(whole: &Whole) -> String {
    let Whole { guest, on, pages } = whole;
    format!("{guest} on {on}: {pages} pages verified, none bad")
}

/// A command, and what it does.
type Step = (String, String);

/// What can be done with it.
pub(super) fn next_steps(status: &Status) -> String {
    let option = status.lab.option();
    let mut steps = guest_steps(status);
    steps.extend(cluster_steps(status));
    for host in &status.hosts {
        let socket = host.socket.display();
        steps.extend([
            (
                format!("drover --socket {socket} status"),
                format!("ask the agent of {}", host.host),
            ),
            (
                format!("tail -f {}", host.log.display()),
                "what it writes".to_owned(),
            ),
            (host.shell.clone(), "a shell on that host".to_owned()),
        ]);
    }
    steps.push((
        format!("drover lab down{option}"),
        "remove everything".to_owned(),
    ));
    let widths = steps.iter().map(|(command, _)| command.chars().count());
    let width = widths.max().unwrap_or_default();
    let step = |(command, what)| format!("  {command:<width$}  # {what}");
    let mut lines = vec![String::new(), "Next:".to_owned()];
    lines.extend(steps.into_iter().map(step));
    lines.join("\n") + "\n"
}

fn guest_steps(status: &Status) -> Vec<Step> {
    let Some(example) = example(status) else {
        return Vec::new();
    };
    let option = status.lab.option();
    let step = |command: &str, what: &str| (format!("drover lab {command}"), what.to_owned());
    let mut steps = Vec::new();
    if is_pair_with_one(status) {
        steps.push(step(
            &format!("migrate{option}"),
            "move the guest to the other host",
        ));
    }
    let whose = match status.guests.len() {
        1 => String::new(),
        _ => format!(" --host {example}"),
    };
    let nic = status.nics.len().saturating_sub(1);
    steps.extend([
        step(
            &format!("harm{option}{whose} 'cut nic={nic}'"),
            "lose a NIC, before or meanwhile",
        ),
        step(&format!("heal{option}"), "have it back"),
        step(
            &format!("verify{option}"),
            "have every guest verify its memory",
        ),
    ]);
    steps
}

fn is_pair_with_one(status: &Status) -> bool {
    status.hosts.len() == 2 && status.guests.len() == 1
}

/// The last host on which a guest runs: rather not the coordinator's.
fn example(status: &Status) -> Option<&str> {
    let on = status.guests.iter().filter_map(|guest| guest.on.as_deref());
    on.max()
}

/// What the coordinator's agent, the first host's, can be asked for.
fn cluster_steps(status: &Status) -> Vec<Step> {
    let (Some(host), Some(first)) = (example(status), status.hosts.first()) else {
        return Vec::new();
    };
    let socket = first.socket.display();
    let steps = [
        (
            "top".to_owned(),
            "watch the cluster, in a terminal of its own".to_owned(),
        ),
        (
            format!("drain {host}"),
            format!("empty host {host}: its guests move to others"),
        ),
        ("run".to_owned(), "what became of that".to_owned()),
        (
            format!("resume {host} --fail-back"),
            "take guests again, its own come home".to_owned(),
        ),
        (
            format!("maintenance on {host}"),
            "the same as drain; `maintenance off` as resume".to_owned(),
        ),
    ];
    let asked = |(command, what)| (format!("drover --socket {socket} {command}"), what);
    steps.into_iter().map(asked).collect()
}

/// One move of the guest.
pub(super) fn moved(moved: &Moved) -> String {
    let m = &moved.measured;
    let mut lines = vec![
        format!("{} moved from {} to {}", moved.guest, moved.from, moved.to),
        format!(
            "  total       {:>8.0} ms   from the first byte until it ran there",
            m.total_ms
        ),
        format!(
            "  downtime    {:>8.0} ms   between its stop here and its run there",
            m.downtime_ms
        ),
        format!(
            "  guest gap   {:>8.0} ms   longest silence of its heartbeat (one each 10 ms)",
            m.guest_gap_ms
        ),
        format!(
            "  payload     {:>8}      in {} rounds",
            Bytes(m.payload_bytes).to_string(),
            m.rounds
        ),
    ];
    if let Some(reduction) = &moved.drover.reduction {
        lines.push(format!(
            "  crossed     {:>8}      for {}: {}",
            reduction.wire_bytes.to_string(),
            reduction.raw_bytes,
            reduction.how()
        ));
    }
    for (nic, bytes) in &m.wire_bytes {
        lines.push(format!(
            "  {nic:<11} {:>8}      sent",
            Bytes(*bytes).to_string()
        ));
    }
    if let Some(share) = m.line_share {
        lines.push(format!(
            "  lines used  {:>8.1} %    of all NICs together, in the bulk",
            share * 100.0
        ));
    }
    let cpu = &m.cpu_seconds;
    lines.push(format!(
        "  CPU         {:>8.2} s    QEMU, {:.2} s the agents, both hosts",
        cpu.qemu_source + cpu.qemu_destination,
        cpu.agent_source + cpu.agent_destination
    ));
    lines.push(format!(
        "  verified    {:>8} pages by the guest itself, none bad",
        moved.verified_pages
    ));
    for note in &moved.drover.notes {
        lines.push(format!("  note: {note}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use drover_lab::operate::HostStatus;

    use super::*;

    fn up(hosts: &[&str], guests: &[(&str, &str)]) -> Status {
        let host = |name: &&str| HostStatus {
            host: (*name).to_owned(),
            namespace: format!("drover-x-{name}"),
            shell: String::new(),
            addresses: Vec::new(),
            socket: format!("/lab/{name}.sock").into(),
            log: format!("/lab/{name}.log").into(),
            agent: true,
            vms: Vec::new(),
        };
        let guest = |(name, on): &(&str, &str)| GuestStatus {
            name: name.parse().unwrap(),
            on: (!on.is_empty()).then(|| (*on).to_owned()),
            verified_pages: Some(7),
            bad_pages: Some(0),
        };
        Status {
            lab: "x".parse().unwrap(),
            nics: vec![None, None],
            mtu: 9000,
            hosts: hosts.iter().map(host).collect(),
            guests: guests.iter().map(guest).collect(),
            guest_on: None,
            verified_pages: None,
            bad_pages: None,
        }
    }

    #[test]
    fn a_guest_of_two_hosts_is_moved_by_the_lab_and_several_by_the_cluster() {
        let pair = next_steps(&up(&["a", "b"], &[("guest", "a")]));
        assert!(pair.contains("drover lab migrate --name x "), "{pair}");
        assert!(
            pair.contains("drover lab harm --name x 'cut nic=1'"),
            "{pair}"
        );
        let several = up(&["a", "b", "c"], &[("guest1", "a"), ("guest2", "b")]);
        let several = next_steps(&several);
        assert!(!several.contains("lab migrate"), "{several}");
        for command in [
            "drover lab harm --name x --host b 'cut nic=1'",
            "drover --socket /lab/a.sock drain b ",
            "drover --socket /lab/a.sock resume b --fail-back ",
            "drover --socket /lab/c.sock status",
            "drover lab verify --name x ",
            "drover lab down --name x ",
        ] {
            assert!(several.contains(command), "{command}: {several}");
        }
    }

    #[test]
    fn a_lab_without_a_guest_has_nothing_to_drain() {
        let steps = next_steps(&up(&["a", "b"], &[]));
        assert!(
            !steps.contains("drain") && !steps.contains("migrate"),
            "{steps}"
        );
        assert!(steps.contains("drover lab down --name x "), "{steps}");
    }

    #[test]
    fn a_guest_that_runs_nowhere_or_is_silent_stands_out() {
        let mut lab = up(&["a"], &[("guest1", "a"), ("guest2", ""), ("guest3", "a")]);
        lab.guests[2].verified_pages = None;
        let text = status(&lab);
        for words in [
            "guest1 runs on a, verified 7 pages so far, 0 of them bad",
            "guest2 does NOT run on any host",
            "guest3 runs on a, and is SILENT",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }
}
