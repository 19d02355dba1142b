//! The agent's beginning, end, sockets and bounds; no guest is started.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "trust/provision.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod provision;
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Output;

use drover_api::{
    ErrorCode, ParkPhase, Resolution, ResolvedRequest, ResolvedState, UnparkRequest, VmState,
};
use drover_types::{ParkId, VmName};
use provision::Office;
use support::{Place, free_address};

/// Runs an agent that is expected to end by itself; its exit code and stderr.
fn refused(place: &Place) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = place.droverd().output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn assert_refused(place: &Place, expected: &[&str]) {
    let (code, message) = refused(place);
    assert_eq!(code, Some(1), "{message}");
    for part in expected {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
    assert_eq!(message.trim().lines().count(), 1, "{message}");
}

#[test]
fn a_configuration_that_cannot_be_used_ends_the_agent_with_file_line_and_key() {
    let place = Place::new();
    place.configure("hots = 1");
    let file = place.path("droverd.toml").display().to_string();
    assert_refused(&place, &[&file, "line 8, key `hots`", "unknown field"]);
    place.configure("[migration]\nchannels = 99");
    assert_refused(
        &place,
        &[&file, "line 8, key `migration.channels`", "1 to 16"],
    );
    std::fs::remove_file(place.path("droverd.toml")).unwrap();
    assert_refused(&place, &[&file, "copy the commented example"]);
}

#[test]
fn a_port_in_use_is_named_with_its_key() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    place.configure(&format!("[api]\nlisten = [\"{address}\"]"));
    let mut office = Office::new();
    office.admit("a", vec![address]);
    office.settle(&place.path("state"), "a");
    assert_refused(
        &place,
        &[
            "key `api.listen`",
            &address.to_string(),
            "the port is in use",
        ],
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_named_with_its_key() {
    let place = Place::new();
    let text = std::fs::read_to_string(place.path("droverd.toml")).unwrap();
    // Below a file nobody can make a directory, not even root.
    let text = text.replace("/state\"", "/droverd.toml/state\"");
    std::fs::write(place.path("droverd.toml"), text).unwrap();
    assert_refused(&place, &["key `state`", "droverd.toml/state"]);
    let checked = place.droverd().arg("--check-config").output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
}

#[test]
fn a_file_in_the_sockets_place_is_not_removed() {
    let place = Place::new();
    std::fs::create_dir(place.path("run")).unwrap();
    std::fs::write(place.socket(), "precious").unwrap();
    assert_refused(&place, &["key `api.socket`", "no socket"]);
    assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
}

#[tokio::test]
async fn a_second_agent_is_refused_and_harms_nothing() {
    let place = Place::new();
    let agent = place.start().await;
    let pid = agent.pid().to_string();
    assert_refused(&place, &["another droverd", &pid]);
    agent.client.host().await.unwrap();
    // Other directories, but the same socket.
    let socket = place.socket().display().to_string();
    let text = std::fs::read_to_string(place.path("droverd.toml")).unwrap();
    let text = text
        .replace("/run\"", "/run2\"")
        .replace("/state\"", "/state2\"");
    std::fs::write(
        place.path("droverd.toml"),
        format!("{text}[api]\nsocket = \"{socket}\""),
    )
    .unwrap();
    assert_refused(&place, &["key `api.socket`", "listens on", &socket]);
    agent.client.host().await.unwrap();
}

/// A configuration by which 64 MiB are kept there.
fn keeping_in(directory: &Path) -> String {
    let directory = directory.display();
    let size = 64 << 20;
    format!("[checkpoints]\ndirectory = \"{directory}\"\nsize = {size}\n")
}

#[tokio::test]
async fn a_second_agent_with_the_same_directory_of_checkpoints_is_refused_and_harms_nothing() {
    let (first, second) = (Place::new(), Place::named("b"));
    let pages = first.path("pages");
    first.configure(&keeping_in(&pages));
    second.configure(&keeping_in(&pages));
    let agent = first.start().await;
    std::fs::write(pages.join("web.pages"), "its own").unwrap();
    assert_refused(
        &second,
        &["key `checkpoints.directory`", "another agent (a "],
    );
    let kept = std::fs::read_to_string(pages.join("web.pages")).unwrap();
    assert_eq!(kept, "its own");
    agent.client.host().await.unwrap();
}

#[tokio::test]
async fn the_socket_is_for_root_only_and_a_stale_one_is_replaced() {
    let place = Place::new();
    let agent = place.start().await;
    let mode = std::fs::metadata(place.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    agent.kill();
    assert!(place.socket().exists(), "stale");
    let agent = place.start().await;
    assert_eq!(agent.terminate(), Some(0));
    assert!(!place.socket().exists());
}

#[tokio::test]
async fn a_host_that_is_in_no_cluster_starts_no_guest_for_a_run() {
    let place = Place::new();
    place.define("web");
    let id = ParkId(uuid::Uuid::from_u128(1));
    let parked = serde_json::json!({ "all": [{
        "id": id, "how": "stop", "state": "parked", "cause": null, "since": "2026-01-01T00:00:00Z",
    }] });
    std::fs::create_dir_all(place.path("state/parked")).unwrap();
    std::fs::write(place.path("state/parked/web.json"), parked.to_string()).unwrap();
    let agent = place.start().await;
    let vm: VmName = "web".parse().unwrap();
    let start = ParkId(uuid::Uuid::from_u128(2));
    let begin = true;
    let request = UnparkRequest { id, start, begin };
    let told = loop {
        let view = agent.client.unpark(&vm, &request).await.unwrap();
        if view.phase != ParkPhase::Unparking {
            break view;
        }
    };
    assert_eq!(told.phase, ParkPhase::NotStarted, "{told:#?}");
    assert!(told.cause.unwrap().contains("belongs to no cluster"));
    let view = agent.client.vm(&vm).await.unwrap();
    assert_eq!(view.state, VmState::Stopped, "{view:#?}");
}

#[test]
fn check_config_says_whether_it_can_be_used() {
    let place = Place::new();
    let output = place.droverd().arg("--check-config").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("droverd.toml: usable\n"));
    assert!(!place.path("run").exists(), "checking changes nothing");
}

#[test]
fn check_config_looks_at_the_directory_of_checkpoints_and_writes_nothing_there() {
    let place = Place::new();
    let checked = |expected: Option<&str>| {
        let Output { status, stderr, .. } = place.droverd().arg("--check-config").output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.success(), expected.is_none(), "{said}");
        let key = "key `checkpoints.directory`";
        let names = expected.is_none_or(|why| said.contains(key) && said.contains(why));
        assert!(names, "{said}");
    };
    // Below a file nobody can make a directory, not even root.
    let below = place.path("droverd.toml/pages");
    place.configure(&keeping_in(&below));
    checked(Some("droverd.toml/pages"));
    place.configure(&keeping_in(&below).replace("size", "#size"));
    checked(None);

    let pages = place.path("pages");
    place.configure(&keeping_in(&pages));
    checked(None);
    assert!(!pages.exists());
    std::fs::create_dir(&pages).unwrap();
    checked(None);
    std::fs::write(pages.join(".drover-checkpoints"), "b 1234\n").unwrap();
    checked(Some("another agent (b 1234)"));
    std::fs::remove_file(pages.join(".drover-checkpoints")).unwrap();
    let own = place.path("state/checkpoints");
    std::fs::create_dir_all(&own).unwrap();
    let marked = serde_json::to_string(&[&pages]).unwrap();
    std::fs::write(own.join("marked"), marked).unwrap();
    let Output { status, stderr, .. } = place.droverd().arg("--check-config").output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "an agent starts without it: {said}");
    assert!(
        said.contains("warning: key `checkpoints.directory`"),
        "{said}"
    );
    assert!(said.contains("is its file system mounted?"), "{said}");
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), 0);
}

#[tokio::test]
async fn systemd_is_told_when_the_agent_is_ready_and_when_it_ends() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut command = place.droverd();
    command
        .env("NOTIFY_SOCKET", &path)
        .env("JOURNAL_STREAM", "8:1");
    let agent = place.start_by(command).await;
    let mut buffer = [0; 256];
    let mut told = || {
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    let log = agent.log();
    assert!(
        log.trim_start().starts_with("INFO ready"),
        "no time, no colour: {log:?}"
    );
    assert_eq!(agent.terminate(), Some(0));
    assert_eq!(told(), "STOPPING=1");
}

#[tokio::test]
async fn a_bad_definition_is_shown_and_the_others_work() {
    let place = Place::new();
    place.define("good");
    place.define_with("bad", "cpus = 2");
    let agent = place.start().await;
    let vms = agent.client.vms().await.unwrap();
    let states: Vec<_> = vms.iter().map(|vm| (vm.name.as_str(), vm.state)).collect();
    assert_eq!(
        states,
        [("bad", VmState::Invalid), ("good", VmState::Stopped)]
    );
    let problem = vms[0].problem.as_ref().unwrap();
    assert!(
        problem.contains("bad.toml: line 5, key `cpus`"),
        "{problem}"
    );
    let refused = agent
        .client
        .start_vm(&"bad".parse().unwrap())
        .await
        .unwrap_err();
    assert!(
        refused.is_refused_with(ErrorCode::DefinitionInvalid),
        "{refused}"
    );
}

/// Sends these bytes to the local socket; the status line and the body of the answer.
fn raw(place: &Place, request: &[u8]) -> (String, serde_json::Value) {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    // The agent may answer and close before it has read all.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.lines().next().unwrap_or_default().to_owned();
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body)
        .unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn request(call: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{call} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_with_a_code() {
    let place = Place::new();
    let agent = place.start().await;
    let id = "018f0000-0000-7000-8000-000000000000";
    let cases = [
        ("GET /v1/nothing", "", "404", "no-such-route"),
        ("DELETE /v1/vms", "", "405", "method-not-allowed"),
        ("GET /v1/vms/..%2f..%2fetc", "", "400", "bad-request"),
        ("GET /v1/vms/web1", "", "404", "no-such-vm"),
        (
            "POST /v1/vms/web1/stop",
            "{\"force\": 1}",
            "400",
            "bad-request",
        ),
        (
            "POST /v1/vms/web1/stop",
            "{\"fast\": true}",
            "400",
            "bad-request",
        ),
        ("POST /v1/vms/web1/migrate", "", "400", "bad-request"),
        (
            "POST /v1/vms/web1/migrate",
            "{\"to\": \"../b\"}",
            "400",
            "bad-request",
        ),
        ("GET /v1/migrations/7", "", "400", "bad-request"),
        (
            &format!("GET /v1/migrations/{id}"),
            "",
            "404",
            "no-such-migration",
        ),
        ("POST /v1/incoming", "[[[[", "400", "bad-request"),
    ];
    for (call, body, status, code) in cases {
        let (line, answer) = raw(&place, &request(call, body));
        assert!(line.contains(status), "{call}: {line} {answer}");
        assert_eq!(answer["error"]["code"], code, "{call}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{call}: {answer}");
    }
    agent.client.host().await.unwrap();
}

#[tokio::test]
async fn a_resolution_of_a_migration_that_is_not_known_is_judged_by_what_there_is_of_the_guest() {
    let place = Place::new();
    let agent = place.start().await;
    let id = "018f0000-0000-7000-8000-000000000000".parse().unwrap();
    let request = ResolvedRequest {
        resolution: Resolution::RunHere,
        vm: "web1".parse().unwrap(),
    };
    let nothing = agent.client.resolved(id, &request).await.unwrap();
    assert_eq!(nothing.state, ResolvedState::LetGo, "{nothing:?}");
    assert!(nothing.message.contains("does not know"), "{nothing:?}");
    place.define("web1");
    let defined = agent.client.resolved(id, &request).await.unwrap();
    assert_eq!(defined.state, ResolvedState::Deciding, "{defined:?}");
    assert!(defined.message.contains("remove that"), "{defined:?}");
    let held = agent.client.held(&request.vm).await.unwrap();
    assert!(held.definition && !held.process, "{held:?}");
    if !support::has_qemu() {
        return;
    }
    agent.client.start_vm(&request.vm).await.unwrap();
    let runs = agent.client.resolved(id, &request).await.unwrap();
    assert_eq!(runs.state, ResolvedState::BothHave, "{runs:?}");
    assert!(agent.client.held(&request.vm).await.unwrap().process);
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused_and_the_agent_lives_on() {
    let place = Place::new();
    let agent = place.start().await;
    let huge = "x".repeat(drover_api::limits::REQUEST_BYTES + 1);
    let (line, answer) = raw(&place, &request("POST /v1/incoming", &huge));
    // The connection may be cut while we still send: then there is no answer at all.
    assert!(line.contains("413") || line.is_empty(), "{line} {answer}");
    let head = format!(
        "GET /v1/host HTTP/1.1\r\nx: {}\r\n\r\n",
        "y".repeat(64 << 10)
    );
    let (line, _) = raw(&place, head.as_bytes());
    assert!(line.contains("431") || line.is_empty(), "{line}");
    let deep = "[".repeat(1 << 20);
    let (line, _) = raw(&place, &request("POST /v1/incoming", &deep));
    assert!(line.contains("400"), "{line}");
    let path = r#"{"id": 0, "source": {"interface": "nic0", "address": "10.77.0.1"},
        "destination": {"interface": "nic0", "address": "10.77.0.2"}, "rate": null, "mtu": 1500}"#;
    let paths = vec![path; 65].join(",");
    for route in ["start", "paths"] {
        let call = format!("POST /v1/incoming/018f0000-0000-7000-8000-000000000000/{route}");
        let body = format!(r#"{{"channels": 2, "paths": [{paths}]}}"#);
        let (line, answer) = raw(&place, &request(&call, &body));
        assert!(line.contains("400"), "{call}: {line} {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(message, "65 paths, 64 are possible", "{call}");
    }
    let (line, _) = raw(&place, b"\x16\x03\x01 this is TLS or worse\r\n\r\n");
    assert!(line.contains("400") || line.is_empty(), "{line}");
    agent.client.host().await.unwrap();
}

#[tokio::test]
async fn the_agent_serves_the_document_that_is_committed() {
    let place = Place::new();
    let _agent = place.start().await;
    let (line, document) = raw(&place, &request("GET /v1/openapi.json", ""));
    assert!(line.contains("200"), "{line}");
    assert_eq!(
        document,
        serde_json::from_str::<serde_json::Value>(drover_api::OPENAPI).unwrap()
    );
}

/// What this request is answered with.
fn ask(stream: &mut (impl Read + Write), path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn metrics_are_served_on_the_socket_and_nothing_else_on_their_own_address() {
    let place = Place::new();
    let address = free_address();
    place.configure(&format!("[metrics]\nlisten = \"{address}\""));
    let _agent = place.start().await;
    let mut socket = UnixStream::connect(place.socket()).unwrap();
    let local = ask(&mut socket, "/metrics");
    let remote = ask(&mut TcpStream::connect(address).unwrap(), "/metrics");
    for answer in [local, remote] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("openmetrics-text"), "{answer}");
        assert!(answer.contains("drover_agent_info{host=\"a\""), "{answer}");
    }
    let other = ask(&mut TcpStream::connect(address).unwrap(), "/v1/status");
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    assert!(other.contains("no-such-route"), "{other}");
}

#[test]
fn the_help_is_as_committed() {
    let output = Place::new()
        .droverd()
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    insta::assert_snapshot!("droverd", String::from_utf8(output.stdout).unwrap());
}
