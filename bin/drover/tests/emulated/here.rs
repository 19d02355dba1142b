//! On the emulated host: its adapters, what the kernel tells of it, and what the doctor says.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_host::{Told, Tree, facts};
use drover_tune::facts::{Fact, Host, Nic};
use drover_tune::{Report, examine};

/// For anything to happen on a processor that is emulated by a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const POLL: Duration = Duration::from_millis(50);

/// Two adapters of this host, and those at the other ends of their wires.
pub const NEAR: [&str; 2] = ["near0", "near1"];
pub const FAR: [&str; 2] = ["far0", "far1"];

/// All that this host has.
pub const ALL: [&str; 4] = ["near0", "near1", "intel0", "vmx0"];

/// There on an emulated host, and nowhere else.
pub const EMULATED: &str = "DROVER_EMULATED_HOST";

/// Where the other ends are.
const FAR_NAMESPACE: &str = "far";

/// Runs a shell's line; what it says.
pub fn sh(line: &str) -> String {
    let mut command = Command::new("sh");
    let done = command.args(["-c", line]).stdin(Stdio::null()).output();
    let done = done.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{line}: {out}{err}");
    out
}

/// Has `ip` do these lines, to the first that it cannot.
pub fn ip(lines: &[&str]) {
    sh(&format!("ip -batch - <<'END'\n{}\nEND", lines.join("\n")));
}

/// The same where another host would be.
pub fn far(lines: &[&str]) {
    let lines = lines.join("\n");
    sh(&format!(
        "ip -n {FAR_NAMESPACE} -batch - <<'END'\n{lines}\nEND"
    ));
}

/// All adapters as a host has them that has just come up, the far ends where another host would be.
pub fn afresh() {
    let is_emulated = std::env::var_os(EMULATED).is_some();
    assert!(is_emulated, "this would change adapters of this machine");
    if !sh("ip netns list").contains(FAR_NAMESPACE) {
        // The module of bonds has made one of its own.
        sh(&format!(
            "ip link del bond0 2>/dev/null; ip netns add {FAR_NAMESPACE}"
        ));
        let there = FAR.map(|nic| format!("link set dev {nic} netns {FAR_NAMESPACE}"));
        ip(&there.each_ref().map(String::as_str));
    }
    let clean = |nic: &&str| {
        [
            format!("link set dev {nic} nomaster"),
            format!("link set dev {nic} down"),
            format!("addr flush dev {nic}"),
            format!("link set dev {nic} mtu 1500"),
        ]
    };
    let near: Vec<String> = ALL.iter().flat_map(clean).collect();
    ip(&near.iter().map(String::as_str).collect::<Vec<_>>());
    let mut there: Vec<String> = FAR.iter().flat_map(clean).collect();
    there.extend(FAR.map(|nic| format!("link set dev {nic} up")));
    far(&there.iter().map(String::as_str).collect::<Vec<_>>());
}

/// What a line took away again is gone with this.
pub struct Until(pub &'static str);

impl Drop for Until {
    fn drop(&mut self) {
        // What failed has said so already.
        let _ = Command::new("sh").args(["-c", self.0]).status();
    }
}

/// Has the wire of an adapter be cut, or whole again, by whoever emulates it, and waits until the kernel has noticed.
pub async fn link(nic: &str, on: bool) {
    // A line of its own.
    println!("\nemulated: link {nic} {}", if on { "on" } else { "off" });
    let carrier = if on { "1" } else { "0" };
    let file = format!("/sys/class/net/{nic}/carrier");
    until(
        async || fs::read_to_string(&file).map_err(|error| error.to_string()),
        |told| told.as_ref().is_ok_and(|told| told.trim() == carrier),
    )
    .await
    .unwrap();
}

/// What `look` gives once it is as `accept` wants it.
pub async fn until<T: std::fmt::Debug>(
    look: impl AsyncFn() -> T,
    accept: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look().await;
        if accept(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        tokio::time::sleep(POLL).await;
    }
}

/// All that is known of this host.
pub async fn host() -> Host {
    let root = Path::new("/");
    let told = Told::ask(root, "emulated").await.unwrap();
    facts(&Tree::at(root), &told)
}

/// All that is known of where the other ends are, as of another host: by what is captured there.
pub fn far_host() -> Host {
    let folder = tempfile::tempdir().unwrap();
    let captured = folder.path().join("far");
    let drover = env!("CARGO_BIN_EXE_drover");
    sh(&format!(
        "ip netns exec {FAR_NAMESPACE} {drover} doctor capture {}",
        captured.display()
    ));
    let told = fs::read(captured.join("told.json")).unwrap();
    let told = Told {
        host: FAR_NAMESPACE.to_owned(),
        ..serde_json::from_slice(&told).unwrap()
    };
    facts(&Tree::captured(&captured), &told)
}

/// An interface of this host.
pub async fn nic(name: &str) -> Nic {
    let host = host().await;
    let found = host.nic(name).cloned();
    found.unwrap_or_else(|| panic!("no {name}: {host:#?}"))
}

/// The reason why a fact is not known.
pub fn unknown<T: std::fmt::Debug>(fact: &Fact<T>) -> &str {
    match fact {
        Fact::Unknown(why) => why,
        Fact::Known(known) => panic!("it is known: {known:?}"),
    }
}

/// What a rule says of an interface.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// That is wrong: what was read.
    Found(String),
    /// It is as it should be.
    Right,
    /// It could not look, because.
    Skipped(String),
    /// It has nothing to say of it.
    Nothing,
}

/// What all rules say of this host.
pub async fn report() -> Report {
    examine(&[host().await], &[])
}

pub fn said(report: &Report, rule: &str, nic: &str) -> Said {
    let is =
        |of: &str, about: &drover_tune::Subject| of == rule && about.nic.as_deref() == Some(nic);
    if let Some(one) = report
        .findings
        .iter()
        .find(|one| is(&one.rule, &one.subject))
    {
        return Said::Found(one.found.read.clone());
    }
    if let Some(one) = report
        .skipped
        .iter()
        .find(|one| is(&one.rule, &one.subject))
    {
        return Said::Skipped(one.because.clone());
    }
    let right = report.right.iter().any(|one| is(&one.rule, &one.subject));
    if right { Said::Right } else { Said::Nothing }
}
