//! Two hosts as network namespaces, joined by two cables.

use std::path::Path;
use std::process::Command;

/// `a` is changed, `b` answers.
pub struct Network {
    names: [String; 2],
}

/// What makes a doctor speak: settings that cost migrations, and that can be set here.
const SETUP: [&str; 7] = [
    "sysctl -qw net.ipv6.conf.all.disable_ipv6=1",
    "sysctl -qw net.ipv4.tcp_timestamps=0",
    "sysctl -qw net.ipv4.tcp_window_scaling=0",
    "sysctl -qw net.ipv4.tcp_rmem='4096 65536 131072'",
    "sysctl -qw net.ipv4.tcp_wmem='4096 65536 131072'",
    "echo 1 > /sys/class/net/nic0/queues/rx-0/rps_cpus",
    "echo 1 > /sys/class/net/nic1/queues/rx-0/rps_cpus",
];

impl Network {
    /// `None`, with a line that says why, where none can be made.
    pub fn new(test: &str) -> Option<Self> {
        let names = ["a", "b"].map(|host| format!("dr-{test}-{}-{host}", std::process::id()));
        for name in &names {
            let made = Command::new("ip").args(["netns", "add", name]).output();
            let why = match made {
                Ok(made) if made.status.success() => continue,
                Ok(made) => String::from_utf8_lossy(&made.stderr).trim().to_owned(),
                Err(error) => format!("ip does not run: {error}"),
            };
            println!("skipped, because no network namespace can be made: {why}");
            return None;
        }
        let network = Self { names };
        network.set_up();
        Some(network)
    }

    /// Lays the cables, and sets what costs migrations, as it is whenever the host comes up.
    pub fn set_up(&self) {
        let [a, b] = &self.names;
        for nic in ["nic0", "nic1"] {
            let _ = Command::new("ip")
                .args(["-n", a, "link", "del", nic])
                .output();
            self.ip(&format!(
                "link add {nic} netns {a} mtu 9000 type veth peer name {nic} netns {b} mtu 9000"
            ));
        }
        for (host, name) in (1..).zip(&self.names) {
            self.ip(&format!("-n {name} link set lo up"));
            for nic in 0..2 {
                self.ip(&format!(
                    "-n {name} addr add 10.77.{nic}.{host}/24 dev nic{nic}"
                ));
                self.ip(&format!("-n {name} link set nic{nic} up"));
            }
        }
        self.on_a(&SETUP.join(" && "));
    }

    /// Runs `ip` with these words.
    pub fn ip(&self, words: &str) {
        let done = Command::new("ip").args(words.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "ip {words}: {said}");
    }

    /// A program within the network of `a`.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0]]);
        command.arg(program.as_ref());
        command
    }

    /// Runs a shell's line there; what it says.
    pub fn on_a(&self, line: &str) -> String {
        let done = self.command("sh").args(["-c", line]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "{line}: {out}{err}");
        out
    }

    /// Takes an interface of `b` down, or brings it up.
    pub fn set_far(&self, nic: &str, to: &str) {
        self.ip(&format!("-n {} link set {nic} {to}", self.names[1]));
    }

    /// Runs an ignored test of this file there; what it says.
    pub fn test(&self, name: &str, word: &str) {
        let own = std::env::current_exe().unwrap();
        let mut command = self.command(own);
        command.env("DROVER_TEST_WORD", word);
        let arguments = ["--exact", "--ignored", "--nocapture", name];
        let done = command.args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert!(
            done.status.success() && out.contains("1 passed"),
            "{out}{err}"
        );
        println!("{out}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
