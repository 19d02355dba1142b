//! Whether a domain's disk may move to another file of this host, before anything is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drover_api::{DiskFormat, DiskLayout, ErrorCode, NewDisk, Refusal, StorageMoveRequest};
use drover_libvirt::{CallError, Connection, Description, Look, Source, Xml};
use drover_types::{StorageMoveId, VmName, with_sources};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::begin::{described, line, place, reached, taken_for};
use super::super::conditions::{by_state, of_domain};
use super::super::files::{Found, Holds};
use super::super::line::Line;
use super::super::offers::Offer;
use super::super::{beside, limits};
use super::{DomainDisk, conditions};
use crate::agent::Context;
use crate::disks;
use crate::libvirt::orders;
use crate::libvirt::virsh::Place;

/// What qcow2 has for a cluster where nothing else is said (QEMU's `qcow2.h`).
const CLUSTER: u32 = 64 << 10;

/// A disk that may move.
#[derive(Debug)]
pub struct Ready {
    /// It, in its domain's turn.
    pub disk: DomainDisk,
    /// The domain.
    pub domain: Uuid,
    /// The disk's name for the guest.
    pub target: String,
    /// Its file.
    pub from: PathBuf,
    /// What that is.
    pub from_format: DiskFormat,
    /// The file that is to be made.
    pub new: NewDisk,
}

/// A domain's disk that is to move, where the domain is libvirt's; none where libvirt has no such domain.
///
/// # Errors
/// It cannot.
pub async fn ready(
    context: &Context,
    request: &StorageMoveRequest,
    id: StorageMoveId,
) -> Result<Option<Ready>, Refusal> {
    context.libvirt.looked_at().await;
    let seen = context.libvirt.seen();
    let Some(uuid) = orders::find(&seen, &request.vm).map(|found| found.uuid) else {
        return Ok(None);
    };
    let line = line(context)?;
    let turn = context.libvirt.turns().move_its_disk(uuid, id);
    let turn = turn.map_err(|taken| taken_for(&request.vm, taken))?;
    let connection = reached(context, line.connect().await)?;
    let at = place(context, &line);
    let look = looked(at, &connection, &request.vm, uuid).await?;
    let called = look.domain.name.clone();
    let description = described(at.host, &connection, &look).await?;
    let disk = conditions::named(at, &called, &description, &request.disk)?.clone();
    let defined = defined(at, &connection, &look, &disk.target).await?;
    let from = conditions::file(at, &called, &disk, defined.as_ref())?;
    is_what_it_has_open(context, at, (uuid, &called), &disk.target, &from).await?;
    // Where libvirt is not told, it takes a disk for a raw one.
    let format = disk.format.as_deref().unwrap_or("raw");
    let lost = disks::Bitmaps::Lost;
    let old = disks::described(&disk.target, &from, format, lost).await;
    let old = old.map_err(|why| {
        let why = format!("its disk {} ({}) {why}", disk.target, from.display());
        of_domain(at.host, ErrorCode::DiskStays, &called, &why)
    })?;
    let to = new_place(context, at, &called, &request.to, &from).await?;
    let new = NewDisk {
        path: to.clone(),
        layout: layout(request.format, old.layout),
        ..old
    };
    has_room(context, at, &called, (id, &new)).await?;
    Ok(Some(Ready {
        domain: uuid,
        target: disk.target.clone(),
        from_format: old.layout.into(),
        disk: DomainDisk {
            uuid,
            target: disk.target,
            from: from.clone(),
            to,
            line,
            connection: Mutex::new(Some(connection)),
            _turn: Some(turn),
        },
        from,
        new,
    }))
}

/// One that an agent before was moving. Its domain's turn nobody else has yet.
pub fn taken_up(
    context: &Context,
    id: StorageMoveId,
    domain: Uuid,
    target: &str,
    [from, to]: [&Path; 2],
) -> DomainDisk {
    DomainDisk {
        uuid: domain,
        target: target.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        line: Line::new(context.libvirt.whereabouts()),
        connection: Mutex::new(None),
        _turn: context.libvirt.turns().move_its_disk(domain, id).ok(),
    }
}

/// How a domain stands of which a disk may move.
async fn looked(
    at: Place<'_>,
    connection: &Connection,
    vm: &VmName,
    uuid: Uuid,
) -> Result<Look, Refusal> {
    let unknown = |error: CallError| {
        let why = with_sources(&error);
        of_domain(at.host, ErrorCode::LibvirtNotKnown, vm.as_str(), &why)
            .next("see that libvirtd answers, and try again")
    };
    let look = connection.look(uuid).await.map_err(unknown)?;
    let look = look.ok_or_else(|| {
        let why = "libvirt has it no more";
        of_domain(at.host, ErrorCode::NoSuchVm, vm.as_str(), why)
    })?;
    conditions::in_memory(at, &look)?;
    by_state(at, &look)?;
    let called = &look.domain.name;
    let has = connection.beside(uuid).await.map_err(unknown)?;
    conditions::beside(at, called, &has)?;
    let busy = |why: &str| of_domain(at.host, ErrorCode::VmBusy, called, why);
    if has.is_backed_up {
        let kept = beside::keeping(at, called, &has);
        return Err(busy(&kept.join("; ")));
    }
    match connection.job(uuid).await.map_err(unknown)? {
        Some(job) => Err(busy(&beside::busy(at, called, &job))),
        None => Ok(look),
    }
}

/// What a domain's definition has for a disk; none where there is none.
async fn defined(
    at: Place<'_>,
    connection: &Connection,
    look: &Look,
    target: &str,
) -> Result<Option<Source>, Refusal> {
    if !look.domain.persistent {
        return Ok(None);
    }
    let called = &look.domain.name;
    let unknown = |why: String| of_domain(at.host, ErrorCode::LibvirtNotKnown, called, &why);
    let xml = connection.xml(look.domain.uuid, Xml::Definition).await;
    let xml = xml.map_err(|error| unknown(with_sources(&error)))?;
    let definition = Description::read(&xml).map_err(|error| unknown(error.to_string()))?;
    let mut disks = definition.disks.into_iter();
    let found = disks.find(|disk| disk.target == target);
    let Some(found) = found else {
        let why =
            format!("its disk {target} is not in its definition, and is gone when the domain ends");
        let attach = at.command("attach-disk {} ... --config", called);
        return Err(
            of_domain(at.host, ErrorCode::DiskStays, called, &why).next(format!(
                "have it in the definition, too ({attach}), and try again"
            )),
        );
    };
    Ok(Some(found.source))
}

/// The file is that which the domain's hypervisor has open.
async fn is_what_it_has_open(
    context: &Context,
    at: Place<'_>,
    (uuid, called): (Uuid, &str),
    target: &str,
    path: &Path,
) -> Result<(), Refusal> {
    let stays = |why: &str| {
        let why = format!("its disk {target} ({}) {why}", path.display());
        of_domain(at.host, ErrorCode::DiskStays, called, &why)
    };
    let Some(process) = context.libvirt.process_of(uuid).await else {
        return Err(stays(
            "is not known to be what its hypervisor has open: that one's process is not found",
        ));
    };
    let asked = BTreeMap::from([(path.to_owned(), [process.pid].into())]);
    let looks = context.libvirt.looks();
    let mut found = looks.held(asked, limits::LOOK_FOR_FILES).await;
    match found.remove(path) {
        Some(Ok(Found::File { held, .. })) => match held.get(&process.pid) {
            Some(Holds::It) => Ok(()),
            Some(Holds::NotKnown(why)) => Err(stays(&format!("is not known to be open: {why}"))),
            Some(Holds::Others) | None => Err(stays(&format!(
                "is another file than the one that its hypervisor (pid {}) has open: somebody replaced the file, or mounted something \
                 there. Once the domain was stopped and started it writes to what is there",
                process.pid
            ))),
        },
        Some(Ok(Found::Nothing)) | None => Err(stays("is not there")),
        Some(Ok(Found::Other(what))) => Err(stays(&format!("is {what}"))),
        Some(Ok(Found::NotKnown(why))) => Err(stays(&why)),
        Some(Err(hang)) => Err(stays(&hang.to_string())),
    }
}

fn layout(wanted: Option<DiskFormat>, old: DiskLayout) -> DiskLayout {
    match (wanted, old) {
        (Some(DiskFormat::Raw), _) => DiskLayout::Raw,
        (Some(DiskFormat::Qcow2), DiskLayout::Raw) => DiskLayout::Qcow2 { cluster: CLUSTER },
        (Some(DiskFormat::Qcow2) | None, old) => old,
    }
}

/// The path of the new file, by what was asked for.
async fn new_place(
    context: &Context,
    at: Place<'_>,
    called: &str,
    wanted: &Path,
    from: &Path,
) -> Result<PathBuf, Refusal> {
    let unusable = |why: &str| {
        let why = format!("{} cannot be a disk's file: {why}", wanted.display());
        of_domain(at.host, ErrorCode::PlaceUnusable, called, &why)
    };
    let text = wanted
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    if text.is_none() || !wanted.is_absolute() {
        let next = "name it from the root on, such as /images/web.qcow2";
        return Err(unusable("it is no absolute path of plain text").next(next));
    }
    let (path, from) = (wanted.to_owned(), from.to_owned());
    let look = move |_: &dyn Fn(&Path) -> bool| in_folder(&path, &from);
    let looks = context.libvirt.looks();
    let looked = looks.on_mount_of(wanted.to_owned(), limits::LOOK_FOR_FILES, look);
    looked
        .await
        .map_err(|hang| unusable(&hang.to_string()))?
        .map_err(|why| unusable(&why).next("name a file that is not there, in a folder that is"))
}

/// In a folder it has the name that the old one has.
fn in_folder(wanted: &Path, from: &Path) -> Result<PathBuf, String> {
    let path = match (std::fs::metadata(wanted), from.file_name()) {
        (Ok(found), Some(name)) if found.is_dir() => wanted.join(name),
        _ => wanted.to_owned(),
    };
    match std::fs::symlink_metadata(&path) {
        Ok(_) => Err(format!("{} is there already", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(path),
        Err(error) => Err(format!("{} cannot be looked at: {error}", path.display())),
    }
}

async fn has_room(
    context: &Context,
    at: Place<'_>,
    called: &str,
    (id, new): (StorageMoveId, &NewDisk),
) -> Result<(), Refusal> {
    let looks = context.libvirt.looks();
    let nobody = disks::Owner::nobody(id.0);
    let state = &context.config.state;
    let until = Instant::now() + disks::LOOK;
    let disks = (&nobody, std::slice::from_ref(new));
    let offered = disks::offer(looks, state, disks, until).await;
    let why = match offered {
        Offer::Has | Offer::HasRoom(_) => return Ok(()),
        Offer::Lacks(why) | Offer::NotKnown(why) => why,
    };
    let why = format!("no file for its disk can be made: {why}");
    Err(of_domain(at.host, ErrorCode::PlaceUnusable, called, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_goes_to_a_file_that_is_not_there_or_into_a_folder_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let from = Path::new("/images/web.img");
        assert_eq!(in_folder(&at("new"), from), Ok(at("new")));
        assert_eq!(in_folder(folder.path(), from), Ok(at("web.img")));
        std::fs::write(at("web.img"), "somebody's").unwrap();
        for there in [folder.path(), &at("web.img")] {
            let why = in_folder(there, from).unwrap_err();
            assert!(why.ends_with("web.img is there already"), "{why}");
        }
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        assert!(in_folder(&at("link"), from).is_err());
    }

    #[test]
    fn a_new_file_is_what_the_old_one_was_or_what_was_asked_for() {
        let own = DiskLayout::Qcow2 { cluster: 4096 };
        assert_eq!(layout(None, own), own);
        assert_eq!(layout(Some(DiskFormat::Qcow2), own), own);
        assert_eq!(layout(Some(DiskFormat::Raw), own), DiskLayout::Raw);
        let new = DiskLayout::Qcow2 { cluster: CLUSTER };
        assert_eq!(layout(Some(DiskFormat::Qcow2), DiskLayout::Raw), new);
        assert_eq!(layout(None, DiskLayout::Raw), DiskLayout::Raw);
    }
}
