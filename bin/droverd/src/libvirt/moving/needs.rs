//! What a domain needs of the host that it goes to, as far as it can be looked for before libvirt is asked.

use std::path::Path;

use drover_api::{DomainNeed, ErrorCode, Refusal};
use drover_types::HostName;

use super::limits;
use crate::facts;
use crate::libvirt::preflight::Need;

/// What another host can look for. All else libvirt finds out itself.
pub fn told(needs: &[Need]) -> Vec<DomainNeed> {
    let needs = needs.iter().filter_map(|need| match need {
        Need::Emulator(path) | Need::Storage(path) => Some(DomainNeed::Path { path: path.clone() }),
        Need::Bridge(name) | Need::Interface(name) => {
            let name = name.clone();
            Some(DomainNeed::Interface { name })
        }
        Need::Machine(_) | Need::Network(_) | Need::Volume { .. } | Need::Protocol(_) => None,
    });
    needs.take(limits::DOMAIN_NEEDS).collect()
}

/// Whether this host has all of it.
///
/// # Errors
/// It has not, or is asked for more than is looked for.
pub async fn look(host: &HostName, vm: &str, needs: &[DomainNeed]) -> Result<(), Refusal> {
    if needs.len() > limits::DOMAIN_NEEDS {
        let (count, most) = (needs.len(), limits::DOMAIN_NEEDS);
        let message = format!("a domain that needs {count} things, at most {most} are looked for");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    let interfaces = facts::interfaces().await.map_err(|error| {
        let message = format!("cannot read the facts of {host}: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let names: Vec<String> = interfaces.into_iter().map(|nic| nic.name).collect();
    let needs = needs.to_vec();
    // A file system of another machine may hang.
    let looked = tokio::task::spawn_blocking(move || missing(&needs, &names, Path::exists));
    let missing = match tokio::time::timeout(limits::LOOK_FOR_FILES, looked).await {
        Ok(looked) => looked.unwrap_or_default(),
        Err(_) => {
            let seconds = limits::LOOK_FOR_FILES.as_secs();
            vec![format!("files that can be looked at within {seconds} s")]
        }
    };
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{host} lacks what domain {vm:?} needs: {}",
        missing.join(", ")
    );
    let next = format!("have the same there on {host}, or take it out of the domain");
    Err(Refusal::new(ErrorCode::OfLibvirt, message).next(next))
}

fn missing(
    needs: &[DomainNeed],
    interfaces: &[String],
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let missing = needs.iter().filter_map(|need| match need {
        DomainNeed::Path { path } => (!exists(path)).then(|| path.display().to_string()),
        DomainNeed::Interface { name } => {
            (!interfaces.contains(name)).then(|| format!("interface {name}"))
        }
        // Of a newer agent: libvirt finds out.
        DomainNeed::Unknown => None,
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_what_nobody_can_look_for_is_left_to_libvirt() {
        let needs = [
            Need::Machine("pc-q35-10.0".to_owned()),
            Need::Emulator("/usr/bin/qemu".into()),
            Need::Bridge("br0".to_owned()),
            Need::Interface("eth0".to_owned()),
            Need::Storage("/shared/web.qcow2".into()),
            Need::Network("default".to_owned()),
        ];
        let told = told(&needs);
        assert_eq!(told.len(), 4);
        let has = |path: &Path| path == Path::new("/usr/bin/qemu");
        let lacks = missing(&told, &["eth0".to_owned()], has);
        assert_eq!(lacks, ["interface br0", "/shared/web.qcow2"]);
        assert_eq!(
            missing(&told, &["eth0".to_owned(), "br0".to_owned()], |_| true),
            [""; 0]
        );
    }
}
