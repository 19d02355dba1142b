//! What libvirt has of a domain beside its definition, or does with it, that keeps it on its host. Words only.

use drover_libvirt::{Beside, Job};

use crate::libvirt::virsh::Place;

/// What keeps it by what libvirt has of it, each with what to do.
pub fn keeping(place: Place<'_>, called: &str, beside: &Beside) -> Vec<String> {
    let command = |text| place.command(text, called);
    let snapshots = (beside.snapshots > 0).then(|| {
        format!(
            "libvirt has {} of it, and migrates no domain that has any: {} names them, and {} deletes one",
            counted(beside.snapshots, "snapshot"),
            command("snapshot-list {}"),
            command("snapshot-delete {} SNAPSHOT")
        )
    });
    let checkpoints = (beside.checkpoints > 0).then(|| {
        format!(
            "libvirt has {} of it, takes none along and would forget them, so that the next backup that builds on one fails: {} names them, \
             {} deletes one; have the first backup there be a full one",
            counted(beside.checkpoints, "checkpoint"),
            command("checkpoint-list {}"),
            command("checkpoint-delete {} CHECKPOINT")
        )
    });
    let backup = beside
        .is_backed_up
        .then(|| under_way(place, called, "libvirt makes a backup of it"));
    [snapshots, checkpoints, backup]
        .into_iter()
        .flatten()
        .collect()
}

/// That libvirt is at it.
pub fn busy(place: Place<'_>, called: &str, job: &Job) -> String {
    let what = match job.operation {
        Some(operation) => format!("libvirt {operation}"),
        None => "libvirt does something with it".to_owned(),
    };
    under_way(place, called, &what)
}

fn under_way(place: Place<'_>, called: &str, what: &str) -> String {
    let [info, abort] = ["domjobinfo {}", "domjobabort {}"].map(|text| place.command(text, called));
    format!("{what}: wait for its end, which {info} foretells, or give it up with {abort}")
}

fn counted(count: u32, what: &str) -> String {
    match count {
        1 => format!("a {what}"),
        more => format!("{more} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use drover_libvirt::Operation;

    use super::*;

    fn on<T>(asked: impl FnOnce(Place<'_>) -> T) -> T {
        let host = "a".parse().unwrap();
        asked(Place {
            host: &host,
            uri: None,
        })
    }

    #[test]
    fn what_libvirt_has_of_a_domain_keeps_it_with_the_command_that_takes_it_away() {
        let told = |beside: Beside| on(|place| keeping(place, "it's", &beside));
        assert_eq!(told(Beside::default()), Vec::<String>::new());
        let all = told(Beside {
            snapshots: 1,
            checkpoints: 2,
            is_backed_up: true,
        });
        let [snapshots, checkpoints, backup] = &all[..] else {
            panic!("{all:?}");
        };
        assert!(
            snapshots.starts_with("libvirt has a snapshot of it"),
            "{snapshots}"
        );
        let delete = r"`virsh snapshot-delete 'it'\''s' SNAPSHOT`";
        assert!(snapshots.contains(delete), "{snapshots}");
        assert!(
            checkpoints.starts_with("libvirt has 2 checkpoints"),
            "{checkpoints}"
        );
        assert!(backup.contains("domjobabort"), "{backup}");
    }

    #[test]
    fn a_job_that_is_under_way_keeps_a_domain_by_what_it_does() {
        let busy = |number: Option<u64>| {
            let job = Job {
                operation: number.map(Operation),
                ..Job::default()
            };
            on(|place| busy(place, "web", &job))
        };
        assert!(busy(Some(8)).starts_with("libvirt dumps it: wait"));
        assert!(busy(Some(5)).starts_with("libvirt migrates it: wait"));
        assert!(busy(None).starts_with("libvirt does something with it: wait"));
    }
}
