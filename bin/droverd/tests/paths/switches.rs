//! What switches say by LLDP, heard by real agents: they are lldpd's, at ports of the switch's namespace.
//!
//! Virtual links have no device in `/sys`, so that agents take them for none of a host's adapters: here they are shown one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use drover_tune::facts::{Fact, HeardBy, Host, Nic};
use drover_tune::{Report, examine};
use tempfile::TempDir;

use super::cluster::{Cluster, SWITCH};
use super::{PATIENCE, SOON};

/// Where `scripts/setup --for-tests` puts it.
const UNPACKED: &str = "/var/cache/drover-lab/lldpd";

/// A folder for each interface, as `/sys` has it of hardware, over the one that is there.
const AS_ADAPTERS: &str = r#"for nic in /sys/class/net/n*; do
    here="$0/${nic##*/}" && mkdir -p "$here/device" && cp "$nic/ifindex" "$nic/address" "$here" || exit
done
mount --bind "$0" /sys/class/net && exec "$@""#;

/// Files and sockets of its own: lldpd gives its rights up for a user that only its package makes.
const LLDPD: &str = r#"cp /etc/passwd /etc/group "$0" &&
echo '_lldpd:x:9911:9911::/nonexistent:/usr/sbin/nologin' >>"$0/passwd" && echo '_lldpd:x:9911:' >>"$0/group" &&
mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && mount -t tmpfs none /run && exec "$@""#;

/// Rules that ask what switches say.
const RULES: [&str; 3] = ["pair-switch", "switch-frames", "switch-one"];

/// A switch with some of the ports.
struct Switch {
    lldpd: Child,
    folder: TempDir,
}

impl Switch {
    /// It speaks each second, and is to be remembered for so many more.
    fn new(cluster: &Cluster, name: &str, ports: &str, remembered: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |file: &str| folder.path().join(file);
        let settings = format!(
            "configure system hostname {name}\nconfigure lldp portidsubtype ifname\nconfigure lldp tx-interval 1\n\
             configure lldp tx-hold {remembered}\nresume\n"
        );
        fs::write(at("settings"), settings).unwrap();
        let (first, _) = ports.split_once(',').unwrap_or((ports, ""));
        let mut command = cluster.program(SWITCH, "sh");
        command.args(["-c", LLDPD]).arg(folder.path());
        command.arg(unpacked("lldpd")).arg("-d");
        command
            .args(["-I", ports, "-C", first, "-L"])
            .arg(unpacked("lldpcli"));
        command
            .arg("-u")
            .arg(at("socket"))
            .arg("-O")
            .arg(at("settings"));
        let log = fs::File::create(at("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let lldpd = with_libraries(command).spawn().unwrap();
        Self { lldpd, folder }
    }

    /// Has it tell that its ports take so large frames, once it has ports.
    fn takes(&self, bytes: u16) {
        let [high, low] = bytes.to_be_bytes();
        let words = format!(
            "configure lldp custom-tlv oui 00,12,0f subtype 4 oui-info {high:02x},{low:02x}"
        );
        let mut command = with_libraries(Command::new(unpacked("lldpcli")));
        command
            .arg("-u")
            .arg(self.folder.path().join("socket"))
            .args(words.split(' '));
        let deadline = Instant::now() + PATIENCE;
        while !command.output().unwrap().status.success() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            assert!(Instant::now() < deadline, "{log:?}");
            std::thread::sleep(SOON);
        }
    }

    /// Ends it without a word to those who hear it.
    fn kill(&mut self) {
        let _ = self.lldpd.kill();
        let _ = self.lldpd.wait();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.kill();
    }
}

fn unpacked(program: &str) -> PathBuf {
    Path::new(UNPACKED).join("usr/sbin").join(program)
}

fn with_libraries(mut command: Command) -> Command {
    let folders = ["usr/lib", "lib"].map(|folder| format!("{UNPACKED}/{folder}/x86_64-linux-gnu"));
    command.env("LD_LIBRARY_PATH", folders.join(":"));
    command
}

/// Starts a host's agent anew, to which its interfaces are adapters.
async fn with_adapters(cluster: &mut Cluster, name: &str) {
    cluster.kill(name);
    let folder = cluster.path(name, "net");
    fs::create_dir(&folder).unwrap();
    let droverd = cluster.droverd(name);
    // Behind `ip netns exec` and the namespace.
    let own = droverd.get_args().skip(3);
    let mut command = cluster.program(name, "sh");
    command.args(["-c", AS_ADAPTERS]).arg(folder).args(own);
    command
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET");
    cluster.start_by(name, command).await;
}

/// What all hosts are, once it is so.
async fn when(cluster: &Cluster, is_so: impl Fn(&[Host]) -> bool) -> Vec<Host> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = cluster.client("a").cluster_facts().await.unwrap();
        assert!(view.left_out.is_empty(), "{view:#?}");
        if is_so(&view.facts) {
            return view.facts;
        }
        assert!(Instant::now() < deadline, "{:#?}", view.facts);
        tokio::time::sleep(SOON).await;
    }
}

fn nic<'h>(hosts: &'h [Host], host: &str, nic: &str) -> &'h Nic {
    let host = hosts.iter().find(|one| one.name == host).unwrap();
    host.nic(nic).unwrap()
}

/// What is said of these rules.
fn told(report: &Report) -> [Vec<String>; 3] {
    let about = |rule: &String| RULES.contains(&rule.as_str());
    let of = |(rule, subject): (&String, String)| about(rule).then(|| format!("{rule} {subject}"));
    let found = report
        .findings
        .iter()
        .map(|one| (&one.rule, one.subject.to_string()));
    let right = report
        .right
        .iter()
        .map(|one| (&one.rule, one.subject.to_string()));
    let skipped = report
        .skipped
        .iter()
        .map(|one| (&one.rule, format!("{}: {}", one.subject, one.because)));
    let mut all = [
        found.filter_map(of).collect::<Vec<_>>(),
        right.filter_map(of).collect(),
        skipped.filter_map(of).collect(),
    ];
    all.iter_mut().for_each(|some| some.sort());
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_switches_say_is_heard_by_agents_and_judged() {
    if !unpacked("lldpd").is_file() {
        println!("skipped, because there is no lldpd in {UNPACKED}: run scripts/setup --for-tests");
        return;
    }
    let Some(mut cluster) = Cluster::new("lldp", &["a", "b"], 2).await else {
        return;
    };
    for name in ["a", "b"] {
        with_adapters(&mut cluster, name).await;
    }
    let _leaf1 = Switch::new(&cluster, "leaf1", "a0,a1,b1", 100);
    let mut leaf2 = Switch::new(&cluster, "leaf2", "b0", 4);
    leaf2.takes(1518);
    let hears = |nic: &Nic| nic.neighbours.known().is_some_and(|all| !all.is_empty());
    let tells_frames = |nic: &Nic| {
        let all = nic.neighbours.known();
        all.is_some_and(|all| all.iter().any(|one| one.frame.is_some()))
    };
    let hosts = when(&cluster, |hosts| {
        hosts.iter().flat_map(|host| &host.nics).all(hears) && tells_frames(nic(hosts, "b", "n0"))
    })
    .await;

    for nic in hosts.iter().flat_map(|host| &host.nics) {
        let [only] = &nic.neighbours.known().unwrap()[..] else {
            panic!("{nic:#?}");
        };
        assert_eq!(only.heard_by, Some(HeardBy::Agent));
        assert!(nic.listening.is_some(), "{nic:#?}");
    }
    let port = |host, name| {
        nic(&hosts, host, name).neighbours.known().unwrap()[0]
            .port
            .clone()
    };
    assert_eq!([port("a", "n0"), port("b", "n1")], ["a0", "b1"]);
    let [found, right, skipped] = told(&examine(&hosts, &[]));
    assert_eq!(
        found,
        [
            "pair-switch a and b n0",
            "switch-frames b n0",
            "switch-one a"
        ]
    );
    assert_eq!(right, ["pair-switch a and b n1", "switch-one b"]);
    let untold = ["a n0", "a n1", "b n1"]
        .map(|nic| format!("switch-frames {nic}: the switch does not tell its largest frame"));
    assert_eq!(skipped, untold);

    // One that is gone counts for as long as it said, unless it says that it goes.
    leaf2.kill();
    let silent = |hosts: &[Host], host, name| {
        let neighbours = &nic(hosts, host, name).neighbours;
        matches!(neighbours, Fact::Unknown(why) if why.starts_with("nobody was heard by LLDP since"))
    };
    let hosts = when(&cluster, |hosts| silent(hosts, "b", "n0")).await;
    let [found, _, skipped] = told(&examine(&hosts, &[]));
    assert_eq!(found, ["switch-one a"]);
    let why = skipped
        .iter()
        .find(|one| one.starts_with("switch-frames b n0"));
    assert!(why.is_some_and(|why| why.contains("LLDP")), "{skipped:#?}");

    // What was heard by a cable that was out is nobody's word, however long it was to count.
    cluster.run(SWITCH, "ip link set a1 down");
    let hosts = when(&cluster, |hosts| silent(hosts, "a", "n1")).await;
    assert!(hears(nic(&hosts, "a", "n0")));
}
