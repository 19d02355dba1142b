//! What is to last beyond a restart: written by an agent, and put back by it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::PathBuf;

use drover_api::{
    ChangePlanRequest, ChangeRequest, ChangeState, ChangeStepState, ChangeView, ErrorCode,
};
use drover_change::{Plan, Planned};
use drover_tune::{Disruption, Step};

use crate::host::{Deaths, Host, records_of};
use crate::refusals::refused;

const SYSCTL: &str = "/etc/sysctl.d";
const OURS: &str = "90-drover.conf";
/// It comes after ours, and sets what is to be set.
const THEIRS: &str = "99-theirs.conf";

/// What a file has in it, its mode and its owner.
type Files = BTreeMap<String, (String, u32, u32, u32)>;

impl Host {
    /// One whose `/etc/sysctl.d` is its agent's alone, with a file of somebody's.
    async fn keeping(test: &str) -> Option<Self> {
        let mut host = Self::new(test).await?;
        fs::create_dir(host.sysctl()).unwrap();
        let theirs = host.sysctl().join(THEIRS);
        fs::write(&theirs, "# theirs\nnet/ipv4/tcp_timestamps=0\nvm.x = 1").unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o640)).unwrap();
        chown(&theirs, Some(7), Some(8)).unwrap();
        host.mounts.push((host.sysctl(), SYSCTL));
        host.kill_agent();
        host.start_as("first").await;
        Some(host)
    }

    fn sysctl(&self) -> PathBuf {
        self.place.path("sysctl.d")
    }

    fn files(&self) -> Files {
        let all = fs::read_dir(self.sysctl()).unwrap();
        let told = all.map(|entry| {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            let text = fs::read_to_string(entry.path()).unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, (text, about.mode(), about.uid(), about.gid()))
        });
        told.collect()
    }

    async fn lasting_plan(&self) -> String {
        let request = ChangePlanRequest {
            lasting: true,
            ..Default::default()
        };
        self.client()
            .plan_changes(&request)
            .await
            .unwrap()
            .plan
            .unwrap()
    }

    async fn persist(&self, plan: &str) -> Result<ChangeView, drover_api::ClientError> {
        self.order(ChangeRequest {
            plan: plan.to_owned(),
            force: false,
            persist: true,
        })
        .await
    }

    /// As the host comes up, and sets what its files say.
    async fn restart_with_files(&mut self, boot: &str) {
        self.network.set_up();
        let all = self.files();
        let lines = all.values().flat_map(|(text, ..)| text.lines());
        let set = lines.filter_map(|line| line.split_once('='));
        for (name, value) in set.filter(|(name, _)| name.starts_with("net")) {
            let name = name.trim().replace('/', ".");
            self.network
                .on_a(&format!("sysctl -qw {name}='{}'", value.trim()));
        }
        self.start_as(boot).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_last_is_written_outlives_a_restart_and_is_put_back_to_the_byte() {
    let Some(mut host) = Host::keeping("lasts").await else {
        return;
    };
    let (facts, files) = (host.facts().await, host.files());
    let id = host.persist(&host.lasting_plan().await).await.unwrap().id;
    let view = host.ended(id).await;
    assert_eq!(
        (view.state, view.files),
        (ChangeState::Applied, 2),
        "{view:#?}"
    );
    let written = host.files();
    let (text, mode, uid, gid) = &written[THEIRS];
    assert_eq!(text, "# theirs\nnet.ipv4.tcp_timestamps = 1\nvm.x = 1\n");
    assert_eq!((mode & 0o7777, *uid, *gid), (0o640, 7, 8));
    let (text, mode, ..) = &written[OURS];
    for name in [
        "tcp_rmem = 4096 ",
        "tcp_wmem = 4096 ",
        "tcp_window_scaling = 1",
    ] {
        assert!(text.contains(&format!("net.ipv4.{name}")), "{text}");
    }
    assert_eq!((text.lines().count(), mode & 0o7777), (3, 0o644), "{text}");
    assert_eq!(written.len(), 2, "nothing is beside them");
    let detail = host.client().change(id).await.unwrap();
    let of_theirs = detail.files.iter().find(|file| file.file.ends_with(THEIRS));
    let of_theirs = of_theirs.unwrap();
    assert_eq!(of_theirs.goes, ["net/ipv4/tcp_timestamps=0"]);
    assert_eq!(of_theirs.comes, ["net.ipv4.tcp_timestamps = 1"]);
    assert_eq!(of_theirs.state, ChangeStepState::Done);

    let after = host.facts().await;
    host.kill_agent();
    host.restart_with_files("second").await;
    assert_eq!(host.facts().await, after);
    let view = host.ended(id).await;
    assert_eq!(
        (view.state, view.can_be_undone),
        (ChangeState::Applied, true)
    );
    let undone = host.undo(id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    assert_eq!(host.files(), files);
    assert_eq!(host.facts().await, facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_killed_by_a_loss_of_power_at_any_record_has_all_files_as_before_or_all_written() {
    let Some(mut host) = Host::keeping("lastspower").await else {
        return;
    };
    let (facts, files) = (host.facts().await, host.files());
    let whole = host.persist(&host.lasting_plan().await).await.unwrap().id;
    host.ended(whole).await;
    let records = host.account(whole).records.len();
    host.undo(whole).await.unwrap();
    let mut deaths = Deaths::default();
    for (round, at) in records_of(records, 4).enumerate() {
        let plan = host.lasting_plan().await;
        let id = host.persist(&plan).await.unwrap().id;
        host.when_written(id, at).await;
        host.kill_agent();
        host.kill_process(id);
        let had_ended = host.account(id).standing.has_ended();
        host.restart_with_files(&format!("round {round}")).await;
        let view = host.ended(id).await;
        if had_ended {
            assert_eq!(view.state, ChangeState::Applied);
            host.undo(id).await.unwrap();
        } else {
            assert_ne!(view.state, ChangeState::Applied, "{view:#?}");
        }
        assert_eq!(host.files(), files, "{view:#?}");
        assert_eq!(host.facts().await, facts, "{view:#?}");
        deaths.came_to(match had_ended {
            true => "applied, and undone",
            false => "as before",
        });
    }
    deaths.tell("the power of the host, at each record of a change with files to last");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_written_is_what_the_plan_says_or_nothing_is_done() {
    let Some(host) = Host::keeping("lastsnot").await else {
        return;
    };
    let before = host.facts().await;
    let plan = host.lasting_plan().await;
    for (plan, why) in [
        (host.plan().await, "does not say what makes it last"),
        (
            plan.replace("90-drover", "91-drover"),
            "91-drover.conf is not to be written",
        ),
        (
            plan.replace("\"net.ipv4.tcp_window_scaling = 1\"", "\"vm.y = 1\""),
            "would get other lines",
        ),
    ] {
        let (code, message) = refused(host.persist(&plan).await);
        assert_eq!(code, ErrorCode::ChangePlanUnusable, "{message}");
        assert!(message.contains(why), "{message}");
    }
    let theirs = host.sysctl().join(THEIRS);
    let text = fs::read_to_string(&theirs).unwrap();
    fs::write(&theirs, format!("{text}\n")).unwrap();
    let (_, message) = refused(host.persist(&plan).await);
    assert!(
        message.contains("99-theirs.conf was changed since"),
        "{message}"
    );
    fs::remove_file(&theirs).unwrap();
    let elsewhere = host.place.path("elsewhere");
    fs::write(&elsewhere, text).unwrap();
    symlink(elsewhere, &theirs).unwrap();
    let (_, message) = refused(host.persist(&plan).await);
    assert!(
        message.contains("99-theirs.conf is not to be written, or cannot be"),
        "{message}"
    );
    assert_eq!(host.client().changes().await.unwrap(), []);
    assert_eq!(host.facts().await, before);

    // Without the word nothing of it is written.
    let id = host.applied(&plan).await.id;
    assert_eq!(host.files().len(), 1);
    host.undo(id).await.unwrap();
    assert_eq!(host.facts().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_taken_out_with_their_lines_and_what_nobody_keeps_is_told() {
    let Some(host) = Host::keeping("lastsless").await else {
        return;
    };
    let (facts, files) = (host.facts().await, host.files());
    let plan = drover_change::read(&host.lasting_plan().await).unwrap();
    let steering = Planned {
        rule: "a-rule".into(),
        nic: Some("nic0".into()),
        disruption: Disruption::Safe,
        why: "it is to be tried".into(),
        steps: vec![Step::File {
            path: "sys/class/net/nic0/queues/rx-0/rps_cpus".into(),
            from: "1".into(),
            to: "0".into(),
        }],
    };
    let is_about =
        |name: &str, step: &Step| matches!(step, Step::File { path, .. } if path.ends_with(name));
    let mut changes = plan.changes.clone();
    changes.retain(|change| {
        change
            .steps
            .iter()
            .any(|step| is_about("tcp_timestamps", step))
    });
    changes.push(steering);
    let text = |plan: &Plan| drover_change::write(plan).unwrap();
    let (_, message) = refused(
        host.persist(&text(&Plan {
            changes: changes.clone(),
            ..plan.clone()
        }))
        .await,
    );
    assert!(
        message.contains("90-drover.conf is not to be written"),
        "{message}"
    );
    let mut lasting = plan.lasting.clone().unwrap();
    lasting.retain(|file| file.file.ends_with(THEIRS));
    let lasting = Some(lasting);
    let fewer = text(&Plan {
        changes,
        lasting,
        ..plan
    });
    let id = host.persist(&fewer).await.unwrap().id;
    assert_eq!(host.ended(id).await.state, ChangeState::Applied);
    assert_eq!(host.files().len(), 1);
    let detail = host.client().change(id).await.unwrap();
    let [not_kept] = &detail.not_kept[..] else {
        panic!("{detail:#?}");
    };
    assert!(not_kept.step.contains("rps_cpus"), "{not_kept:?}");
    host.undo(id).await.unwrap();
    assert_eq!((host.facts().await, host.files()), (facts, files));
}
