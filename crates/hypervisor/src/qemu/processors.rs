use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::machine_types::start_of;
use crate::hypervisor::{InspectError, ProcessorOffer, Processors};
use crate::limits;
use crate::qmp::{Message, Version, decode, excerpt};

/// Numbers of the questions, by which their answers are told apart.
const DEFINITIONS: u64 = 1;
const EXPANSION: u64 = 2;

/// What one run of a binary told.
struct Told {
    version: Option<Version>,
    offer: ProcessorOffer,
    status: ExitStatus,
    complained: String,
}

/// Asks a binary twice, without a guest: with the processor's own virtualisation, and emulating. A QEMU
/// that cannot do one of them ends before it answers.
pub(super) async fn ask(
    command: impl Fn() -> Command,
    binary: &Path,
) -> Result<Processors, InspectError> {
    let hardware = run(command(), binary, "kvm", "host").await?;
    let emulated = run(command(), binary, "tcg", "max").await?;
    let Some(version) = hardware.version.or(emulated.version) else {
        return Err(InspectError::NotQemu {
            binary: binary.to_owned(),
            status: emulated.status.to_string(),
            printed: excerpt(emulated.complained.trim()),
        });
    };
    let offer = |told: Told| told.version.map(|_| told.offer);
    Ok(Processors {
        version,
        hardware: offer(hardware),
        emulated: offer(emulated),
    })
}

async fn run(
    command: Command,
    binary: &Path,
    accelerator: &str,
    all: &str,
) -> Result<Told, InspectError> {
    let unusable = |source| InspectError::Binary {
        binary: binary.to_owned(),
        source,
    };
    let mut command = tokio::process::Command::from(command);
    let mut child = command
        .args(["-machine", &format!("none,accel={accelerator}")])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-qmp", "stdio"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(unusable)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let asking = async {
        tokio::join!(
            answers(stdin, stdout, all),
            start_of(stderr, limits::MACHINE_HELP_BYTES),
            child.wait()
        )
    };
    let (answered, complained, status) =
        timeout(limits::PROCESSORS, asking)
            .await
            .map_err(|_| InspectError::NoAnswer {
                binary: binary.to_owned(),
                within: limits::PROCESSORS,
            })?;
    let (version, offer) = read(&answered);
    Ok(Told {
        version,
        offer,
        status: status.map_err(unusable)?,
        complained,
    })
}

/// Asks, and tells it to end when all is answered: what has not left QEMU by then is lost, and it says more than a pipe holds. It also drops
/// what it has not begun with when it is closed.
async fn answers(stdin: Option<ChildStdin>, stdout: Option<ChildStdout>, all: &str) -> String {
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
        return String::new();
    };
    // One that has ended already says why on stderr.
    let _ = stdin.write_all(questions(all).as_bytes()).await;
    let mut lines = BufReader::new(stdout.take(limits::PROCESSORS_BYTES)).lines();
    let mut answered = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        answered.push_str(&line);
        answered.push('\n');
        if let Some(Message::Answer {
            id: Some(EXPANSION),
            ..
        }) = decode(line.as_bytes())
        {
            let _ = stdin.write_all(b"{\"execute\": \"quit\"}\n").await;
        }
    }
    answered
}

/// What is asked. Source: `query-cpu-definitions` and `query-cpu-model-expansion` in QEMU's
/// `qapi/machine-target.json`.
fn questions(all: &str) -> String {
    let expansion = json!({"type": "full", "model": {"name": all}});
    let lines = [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": "query-cpu-definitions", "id": DEFINITIONS}),
        json!({"execute": "query-cpu-model-expansion", "arguments": expansion, "id": EXPANSION}),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

fn read(answered: &str) -> (Option<Version>, ProcessorOffer) {
    let (mut told, mut offer) = (None, ProcessorOffer::default());
    for line in answered.lines() {
        match decode(line.as_bytes()) {
            Some(Message::Greeting { version, .. }) => told = Some(version),
            Some(Message::Answer {
                id: Some(DEFINITIONS),
                result: Ok(value),
            }) => {
                for model in value.as_array().into_iter().flatten() {
                    take_model(&mut offer, model);
                }
            }
            Some(Message::Answer {
                id: Some(EXPANSION),
                result: Ok(value),
            }) => {
                let properties = value["model"]["props"].as_object().into_iter().flatten();
                offer.features = properties.filter_map(feature_that_is_on).collect();
            }
            _ => {}
        }
    }
    (told, offer)
}

/// An architecture whose QEMU does not tell what a model lacks runs all that it has.
fn take_model(offer: &mut ProcessorOffer, model: &Value) {
    let Some(name) = model["name"].as_str() else {
        return;
    };
    let lacks = model["unavailable-features"]
        .as_array()
        .into_iter()
        .flatten();
    let lacks: BTreeSet<String> = lacks.filter_map(Value::as_str).map(str::to_owned).collect();
    if lacks.is_empty() {
        offer.models.insert(name.to_owned());
    } else {
        offer.lacking.insert(name.to_owned(), lacks);
    }
}

/// Properties that begin with `x-` are QEMU's own business, and no features of a processor.
fn feature_that_is_on((name, value): (&String, &Value)) -> Option<String> {
    (value.as_bool() == Some(true) && !name.starts_with("x-")).then(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_lack_something_and_features_that_are_off_are_left_out() {
        let answered = concat!(
            r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}}, "capabilities": []}}"#,
            "\n{\"return\": {}}\n",
            r#"{"return": [{"name": "max", "unavailable-features": []}, {"name": "a57"}, {"typename": "x"}, "#,
            r#"{"name": "EPYC", "unavailable-features": ["avx2"]}], "id": 1}"#,
            "\n",
            r#"{"id": 2, "return": {"model": {"name": "max", "props": {"sse4.1": true, "avx": false, "#,
            r#""vendor": "AuthenticAMD", "x-migrate": true}}}}"#,
            "\n{\"return\": {}}\n",
        );
        let (version, offer) = read(answered);
        assert_eq!(version.map(|v| v.to_string()).as_deref(), Some("10.0.2"));
        let models: Vec<_> = offer.models.iter().map(String::as_str).collect();
        assert_eq!(models, ["a57", "max"]);
        assert_eq!(offer.features, ["sse4.1".to_owned()].into());
        let lacks = [("EPYC".to_owned(), ["avx2".to_owned()].into())];
        assert_eq!(offer.lacking, lacks.into());
    }

    #[test]
    fn what_is_no_answer_offers_nothing() {
        for text in ["", "hello", "{}\n[]\n", "{\"return\": 7, \"id\": 1}\n"] {
            assert_eq!(read(text), (None, ProcessorOffer::default()), "{text:?}");
        }
    }
}
