//! Whether the other host's agent is of a version that tells what files a domain writes to, or that looks for them.

use drover_api::{
    DomainNeed, DomainNeedsRequest, DomainNeedsView, ErrorCode, MovingDomain, Refusal,
};
use drover_types::{HostName, in_short};

use crate::agent::Context;
use crate::libvirt::domains::name;

/// Whether the source of a domain that comes has told what it sees of each file that the domain writes to.
///
/// # Errors
/// Its agent is too old to.
pub fn files_told(
    here: &HostName,
    source: &HostName,
    domain: &MovingDomain,
) -> Result<(), Refusal> {
    if domain.files_told {
        return Ok(());
    }
    let vm = name(&domain.name);
    let message = format!(
        "whether {here} has the very files that domain {vm:?} writes to is not known: the agent of {source} is too old to tell which these are"
    );
    let next = format!("bring the agent of {source} to the version of {here}");
    Err(Refusal::new(ErrorCode::HostLacks, message).next(next))
}

/// Whether another host can tell whether it has the files that a domain writes to, before it is asked to take the domain in: an agent before
/// this one would take it without knowing what it was asked for.
///
/// # Errors
/// It cannot, or does not answer.
pub async fn knows_all(
    context: &Context,
    there: &HostName,
    called: &str,
    files: &[DomainNeed],
) -> Result<(), Refusal> {
    if files.is_empty() {
        return Ok(());
    }
    let request = DomainNeedsRequest {
        needs: files.to_vec(),
    };
    let told = context.peers.needs_of(vec![there.clone()], &request).await;
    let mut told = told.into_iter().map(|(_, told)| told);
    told.try_for_each(|told| known_by(there, called, files, told))
}

fn known_by(
    there: &HostName,
    called: &str,
    files: &[DomainNeed],
    told: Result<DomainNeedsView, Refusal>,
) -> Result<(), Refusal> {
    let next = format!(
        "see that the agent of {there} has this version, and that file systems there answer"
    );
    let what = format!(
        "whether {there} has the files that domain {:?} writes to",
        name(called)
    );
    let refused = |message| Err(Refusal::new(ErrorCode::HostLacks, message).next(next.clone()));
    match told {
        Ok(told) => {
            let mut unknown = told.unknown.into_iter();
            unknown.try_for_each(|lack| {
                let file = usize::try_from(lack.need).ok();
                let file = file.and_then(|number| files.get(number));
                let file = file.map(|file| format!(" ({file})")).unwrap_or_default();
                refused(format!("{what}{file} is not known: {}", in_short(lack.why)))
            })
        }
        Err(refusal) if refusal.code == ErrorCode::NoSuchRoute => {
            refused(format!("{what} is not known: its agent is too old to tell"))
        }
        Err(refusal) => Err(refusal),
    }
}

#[cfg(test)]
pub mod tests {
    use drover_api::{DomainLack, FileSeen};

    use super::*;

    pub fn file() -> DomainNeed {
        DomainNeed::SameFile {
            path: "/images/web.img".into(),
            seen: FileSeen {
                file_system: "nfs4".to_owned(),
                fsid: None,
                server: None,
                inode: Some(12),
            },
        }
    }

    fn lack(why: &str) -> DomainLack {
        let why = why.to_owned();
        DomainLack { need: 0, why }
    }

    #[test]
    fn no_domain_comes_whose_host_is_too_old_to_tell_which_files_it_writes_to() {
        let (here, source) = ("b".parse().unwrap(), "a".parse().unwrap());
        // As the version before sends it.
        let older = r#"{"uuid":"7","name":"it's 1","persistent":true,"autostart":false,"paused":false,
            "needs":[{"kind":"path","path":"/images/web.img"}]}"#;
        let older: MovingDomain = serde_json::from_str(older).unwrap();
        let refusal = files_told(&here, &source, &older).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::HostLacks);
        assert!(
            refusal.message.contains("the agent of a is too old"),
            "{refusal}"
        );
        assert_eq!(
            refusal.next.unwrap(),
            "bring the agent of a to the version of b"
        );
        let told = MovingDomain {
            files_told: true,
            ..older
        };
        assert_eq!(files_told(&here, &source, &told), Ok(()));
    }

    #[test]
    fn no_domain_goes_to_a_host_whose_agent_does_not_know_that_its_files_must_be_the_same() {
        let (there, files) = ("b".parse().unwrap(), [file()]);
        let told = |told| known_by(&there, "it's 1", &files, told);
        assert_eq!(told(Ok(DomainNeedsView::default())), Ok(()));
        let lacks = DomainNeedsView {
            lacks: vec![lack("it is not there")],
            ..DomainNeedsView::default()
        };
        assert_eq!(told(Ok(lacks)), Ok(()), "it tells that itself");
        // As the version before answers what it does not know.
        let unknown = DomainNeedsView {
            unknown: vec![lack("this version of the agent does not know what that is")],
            ..DomainNeedsView::default()
        };
        let older = told(Ok(unknown)).unwrap_err();
        assert_eq!(older.code, ErrorCode::HostLacks);
        assert!(
            older
                .message
                .contains("(the same /images/web.img) is not known"),
            "{older}"
        );
        let route = Refusal::new(ErrorCode::NoSuchRoute, "no such route");
        let oldest = told(Err(route)).unwrap_err();
        assert!(oldest.message.contains("too old to tell"), "{oldest}");
        assert!(oldest.next.unwrap().contains("has this version"));
        let silent = Refusal::new(ErrorCode::PeerUnreachable, "no answer");
        assert_eq!(told(Err(silent.clone())), Err(silent));
    }
}
