//! What a guest's own agent (`qemu-ga`) tells of its interfaces. It is asked to read, and nothing else.
//!
//! # Invariant
//! Nothing is said to a socket at which another process than the guest's QEMU listens, and whatever comes back is bounded.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::BASE64;
use drover_tune::facts::Fact;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::limits;

/// The name of the port by which an agent is talked to.
pub const PORT: &str = "org.qemu.guest_agent.0";

/// In front of what an agent is to begin anew with, and of its answer to that (`guest-sync-delimited`).
const ANEW: u8 = 0xff;

/// Longest name of an interface (`IFNAMSIZ`), without its zero.
const NAME: usize = 15;

/// The largest packets of interfaces by their addresses, as far as the agent inside tells.
///
/// # Errors
/// Why it does not tell at all, to be read after "because".
pub async fn mtus(
    socket: &Path,
    pid: u32,
    macs: &[String],
) -> Result<BTreeMap<String, Fact<u32>>, String> {
    let asked = async {
        let mut agent = Agent::connect(socket, pid).await?;
        let interfaces = agent
            .ask("guest-network-get-interfaces", Value::Null)
            .await?;
        let mut mtus = BTreeMap::new();
        for mac in macs {
            let mtu = match name(&interfaces, mac) {
                None => Err(format!(
                    "its guest agent knows no interface with the address {mac}"
                )),
                Some(name) => agent.mtu(name).await,
            };
            mtus.insert(mac.clone(), mtu.map_or_else(Fact::Unknown, Fact::Known));
        }
        Ok(mtus)
    };
    let late = |_| Err("its guest agent does not answer".to_owned());
    timeout(limits::SHOW, asked).await.unwrap_or_else(late)
}

/// The interface's name inside; none that could lead anywhere but to its own folder.
fn name<'a>(interfaces: &'a Value, mac: &str) -> Option<&'a str> {
    let mut all = interfaces.as_array()?.iter();
    let has = |one: &&Value| {
        let own = one["hardware-address"].as_str();
        own.is_some_and(|own| own.eq_ignore_ascii_case(mac))
    };
    let name = all.find(has)?["name"].as_str()?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let usable = !name.starts_with('.') && name.len() <= NAME && name.chars().all(plain);
    usable.then_some(name)
}

struct Agent {
    stream: BufReader<UnixStream>,
}

impl Agent {
    async fn connect(socket: &Path, pid: u32) -> Result<Self, String> {
        let unreachable = |error| {
            format!(
                "its guest agent cannot be reached at {}: {error}",
                socket.display()
            )
        };
        let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
        let listener = stream.peer_cred().map_err(unreachable)?.pid();
        if listener.and_then(|pid| u32::try_from(pid).ok()) != Some(pid) {
            return Err(format!(
                "another process than its QEMU listens at {}",
                socket.display()
            ));
        }
        let mut agent = Self {
            stream: BufReader::new(stream),
        };
        let id = uuid::Uuid::now_v7().as_u128() as u32;
        let begin = json!({"execute": "guest-sync-delimited", "arguments": {"id": id}});
        agent
            .send(&[&[ANEW], line(&begin).as_slice()].concat())
            .await?;
        // What an earlier question was answered comes first.
        for _ in 0..limits::GUEST_AGENT_STALE {
            if agent.receive().await?["return"].as_u64() == Some(id.into()) {
                return Ok(agent);
            }
        }
        Err("its guest agent answers what it was not asked".to_owned())
    }

    async fn mtu(&mut self, name: &str) -> Result<u32, String> {
        let file = json!({"path": format!("/sys/class/net/{name}/mtu"), "mode": "r"});
        let handle = self.ask("guest-file-open", file).await?;
        let read = self
            .ask("guest-file-read", json!({"handle": handle, "count": 16}))
            .await;
        // It is closed whatever came of that: the agent would keep it.
        self.ask("guest-file-close", json!({"handle": handle}))
            .await?;
        let text = BASE64.decode(read?["buf-b64"].as_str().unwrap_or_default().as_bytes());
        let text = text.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let mtu = text.and_then(|text| text.trim().parse().ok());
        mtu.ok_or_else(|| "its guest agent reads no number there".to_owned())
    }

    async fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let mut question = json!({"execute": command});
        if !arguments.is_null() {
            question["arguments"] = arguments;
        }
        self.send(&line(&question)).await?;
        let mut answer = self.receive().await?;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => {
                let said = answer["error"]["desc"].as_str().unwrap_or("nothing");
                let said: String = said.chars().take(limits::GUEST_AGENT_SAID).collect();
                Err(format!("its guest agent refuses {command}: {said}"))
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes).await;
        sent.map_err(|error| format!("its guest agent cannot be asked: {error}"))
    }

    async fn receive(&mut self) -> Result<Value, String> {
        let mut bytes = Vec::new();
        let mut bounded = (&mut self.stream).take(limits::GUEST_AGENT_BYTES);
        let read = bounded.read_until(b'\n', &mut bytes).await;
        read.map_err(|error| format!("its guest agent cannot be heard: {error}"))?;
        if !bytes.ends_with(b"\n") {
            return Err(
                "its guest agent ends in the middle of an answer, or says too much".to_owned(),
            );
        }
        bytes.retain(|byte| *byte != ANEW);
        serde_json::from_slice(&bytes).map_err(|_| "its guest agent answers no JSON".to_owned())
    }
}

fn line(question: &Value) -> Vec<u8> {
    format!("{question}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    /// Answers each line by the first of these words that is in it.
    async fn answering(
        answers: &'static [(&'static str, &'static str)],
    ) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qga");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            loop {
                let mut line = Vec::new();
                if stream.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
                    return;
                }
                line.retain(|byte| *byte != ANEW);
                let asked: Value = serde_json::from_slice(&line).unwrap();
                let command = asked["execute"].as_str().unwrap();
                let said = if command == "guest-sync-delimited" {
                    // Something is left of an earlier question, and to a byte that begins anew a real one says that it is no JSON.
                    format!(
                        "{{\"return\": 7}}\n{{\"error\": {{\"class\": \"GenericError\", \"desc\": \"JSON parse error\"}}}}\n{{\"return\": {}}}\n",
                        asked["arguments"]["id"]
                    )
                } else {
                    let found = answers.iter().find(|(word, _)| *word == command);
                    let answer = found.map_or(
                        r#"{"error": {"class": "CommandNotFound", "desc": "disabled"}}"#,
                        |(_, said)| said,
                    );
                    format!("{answer}\n")
                };
                stream.write_all(said.as_bytes()).await.unwrap();
            }
        });
        (folder, path)
    }

    async fn told(path: &Path) -> Result<BTreeMap<String, Fact<u32>>, String> {
        let macs = ["52:54:00:12:34:56", "52:54:00:12:34:57"].map(str::to_owned);
        mtus(path, std::process::id(), &macs).await
    }

    #[tokio::test]
    async fn the_packets_that_a_guest_has_set_are_read_inside_it_by_the_address_of_its_card() {
        const ANSWERS: &[(&str, &str)] = &[
            (
                "guest-network-get-interfaces",
                "{\"return\": [{\"name\": \"lo\"}, {\"name\": \"eth0\", \"hardware-address\": \"52:54:00:12:34:56\"}, {\"name\": \"../../x\", \"hardware-address\": \"52:54:00:12:34:57\"}]}",
            ),
            ("guest-file-open", "{\"return\": 1000}"),
            (
                "guest-file-read",
                "{\"return\": {\"count\": 5, \"buf-b64\": \"OTAwMAo=\", \"eof\": true}}",
            ),
            ("guest-file-close", "{\"return\": {}}"),
        ];
        let (_folder, path) = answering(ANSWERS).await;
        let told = told(&path).await.unwrap();
        assert_eq!(told["52:54:00:12:34:56"], Fact::Known(9000));
        assert!(
            told["52:54:00:12:34:57"].get().is_err(),
            "a name that leads elsewhere is none"
        );
    }

    #[tokio::test]
    async fn an_agent_that_refuses_is_no_error_of_its_card_and_another_process_is_told_nothing() {
        const ANSWERS: &[(&str, &str)] = &[(
            "guest-network-get-interfaces",
            "{\"return\": [{\"name\": \"eth0\", \"hardware-address\": \"52:54:00:12:34:56\"}]}",
        )];
        let (_folder, path) = answering(ANSWERS).await;
        let told = told(&path).await.unwrap();
        let why = told["52:54:00:12:34:56"].get().unwrap_err();
        assert_eq!(why, "its guest agent refuses guest-file-open: disabled");
        let (_folder, path) = answering(&[]).await;
        let why = mtus(&path, 1, &[]).await.unwrap_err();
        assert!(
            why.starts_with("another process than its QEMU listens"),
            "{why}"
        );
        let why = mtus(Path::new("/no/such"), 1, &[]).await.unwrap_err();
        assert!(why.contains("cannot be reached at /no/such"), "{why}");
    }

    /// Debian's, as `scripts/setup --for-tests` unpacks it.
    const REAL: &str = "/var/cache/drover-lab/guest-agent/usr/sbin/qemu-ga";

    #[tokio::test]
    async fn a_real_agent_is_asked_and_answered_as_the_ones_of_these_tests() {
        if !Path::new(REAL).is_file() || !rustix::process::geteuid().is_root() {
            println!(
                "skipped, because there is no {REAL} (scripts/setup --for-tests), or this is not root"
            );
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let socket = folder.path().join("qga");
        // It listens itself, in place of a QEMU, and has one card.
        let line = format!(
            "mount -t sysfs sysfs /sys && \
             ip link add eth0 mtu 1400 address 52:54:00:12:34:56 type veth peer name eth1 && \
             exec {REAL} --method=unix-listen --path={at}/qga --statedir={at} --pidfile={at}/pid"
        );
        let mut agent = tokio::process::Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", &line])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let patience = std::time::Duration::from_secs(60);
        let listens = async {
            while UnixStream::connect(&socket).await.is_err() {
                assert!(agent.try_wait().unwrap().is_none(), "it ended");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        timeout(patience, listens).await.unwrap();
        let pid = agent.id().unwrap();
        let macs = ["52:54:00:12:34:56", "52:54:00:12:34:57"].map(str::to_owned);
        // It takes one after the other, and the one above may not be gone yet.
        let told = loop {
            match mtus(&socket, pid, &macs).await {
                Err(why) if why.ends_with("does not answer") => {}
                told => break told.unwrap(),
            }
        };
        assert_eq!(told["52:54:00:12:34:56"], Fact::Known(1400));
        let why = told["52:54:00:12:34:57"].get().unwrap_err();
        assert!(why.contains("knows no interface with the address"), "{why}");
    }

    #[test]
    fn what_no_interface_is_called_is_no_name() {
        for bad in ["", "..", "a/b", "a b", "averyveryverylongname"] {
            let interfaces = json!([{"name": bad, "hardware-address": "a"}]);
            assert_eq!(name(&interfaces, "a").unwrap_or_default(), "", "{bad}");
        }
        assert_eq!(name(&json!({"name": "eth0"}), "a"), None);
    }
}
