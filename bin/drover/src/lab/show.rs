//! What the commands of `drover lab` show to a person.

use drover_lab::operate::{Moved, Status};
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
    if let (Some(verified), Some(bad)) = (status.verified_pages, status.bad_pages) {
        lines.push(format!(
            "  the guest verified {verified} pages so far, {bad} of them bad"
        ));
    }
    lines.join("\n") + "\n"
}

/// What can be done with it.
pub(super) fn next_steps(status: &Status) -> String {
    let option = status.lab.option();
    let mut steps = Vec::new();
    let mut step = |command: String, what: &str| steps.push((command, what.to_owned()));
    if status.guest_on.is_some() {
        step(
            format!("drover lab migrate{option}"),
            "move the guest to the other host",
        );
        step(
            format!("drover lab harm{option} 'cut nic=1'"),
            "lose a NIC, before or meanwhile",
        );
        step(format!("drover lab heal{option}"), "have it back");
    }
    for host in &status.hosts {
        let socket = host.socket.display();
        step(
            format!("drover --socket {socket} status"),
            &format!("ask the agent of {}", host.host),
        );
        step(format!("tail -f {}", host.log.display()), "what it writes");
        step(
            format!("ip netns exec {} bash", host.namespace),
            "a shell on that host",
        );
    }
    step(format!("drover lab down{option}"), "remove everything");
    let widths = steps.iter().map(|(command, _)| command.chars().count());
    let width = widths.max().unwrap_or_default();
    let step = |(command, what)| format!("  {command:<width$}  # {what}");
    let mut lines = vec![String::new(), "Next:".to_owned()];
    lines.extend(steps.into_iter().map(step));
    lines.join("\n") + "\n"
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
