//! Whether a file that a domain writes to is the same one on another host, by what both kernels say of it. Pure.
//!
//! # Invariant
//! What is not shown to be the same is lacking. An operator's word stands for what cannot be shown, and for nothing that is shown to be
//! another: over another file's contents a domain would spoil both.

use std::net::IpAddr;
use std::path::Path;

use drover_api::{FileSeen, FileServer};

use super::super::offers::Offer;
use super::found::{Found, is_local};
use super::servers;
use super::word::{QEMU_CONF, SHARED};

/// File systems whose number (`f_fsid`) is one cluster's or one instance's alone: CephFS and OCFS2 make it of their ids, and that of a
/// tmpfs is random. XFS makes it of a device's number, NFS and FUSE tell none. That of CephFS is the same for all of a cluster's before
/// Linux 5.16, and their inodes begin with the same numbers.
const NUMBERED: [&str; 3] = ["ceph", "ocfs2", "tmpfs"];

/// File systems whose server has one file by one path. What FUSE calls so may be a name that one host alone knows (sshfs).
const SERVED: [&str; 5] = ["nfs", "cifs", "lustre", "ceph", GLUSTER];

/// File systems whose inodes have the same numbers on every host.
const KEEPS_INODES: [&str; 10] = [
    "ceph", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "nfs", "ocfs2", "lustre", GLUSTER,
];

/// Its inodes' numbers are parts of ids that no two files have.
const GLUSTER: &str = "fuse.glusterfs";

/// What a host of these addresses says when it is asked for a file of which the source sees this.
pub fn judge(path: &Path, source: &FileSeen, found: &Found, own: &[IpAddr]) -> Offer {
    let path = path.display();
    let (here, is_ours, by_word) = match found {
        Found::File {
            seen,
            is_local,
            is_shared_by_word,
            ..
        } => (seen, *is_local, *is_shared_by_word),
        Found::Nothing => return Offer::Lacks(format!("{path} is not there")),
        Found::Other(what) => return Offer::Lacks(format!("{path} there is {what}")),
        Found::NotKnown(why) => return Offer::NotKnown(why.clone()),
    };
    let here = &servers::by_host(here, own);
    if is_proven(source, here) || (by_word && is_its_export(source, here, own)) {
        return Offer::Has;
    }
    let lacks = |what: String, next: &str| {
        Offer::Lacks(format!(
            "the file {path} there {what}; the domain writes to {source}: {next}"
        ))
    };
    if is_ours {
        let what = format!("is on {here}, of that host alone, and not the same one");
        return lacks(what, "mount the same storage there");
    }
    if is_another(source, here) {
        let what = format!("is another one, {here}");
        return lacks(what, "mount the same storage there");
    }
    if by_word {
        return Offer::Has;
    }
    let what = format!("is {here}, and it cannot be told whether that is the same one");
    let next = format!(
        "if hosts share it, name its folder, by a path without links, in `{SHARED}` of {QEMU_CONF} there"
    );
    lacks(what, &next)
}

/// Whether both see one file, by what no two file systems have in common.
fn is_proven(source: &FileSeen, here: &FileSeen) -> bool {
    let kind = kind(source);
    if kind != self::kind(here) {
        return false;
    }
    let servers = source.server.as_ref().zip(here.server.as_ref());
    let is_at = |is_server: fn(&FileServer, &FileServer) -> bool| {
        servers.is_some_and(|(source, here)| source.path == here.path && is_server(source, here))
    };
    let is_served = SERVED.contains(&kind) && is_at(servers::is_one);
    let is_gluster = kind == GLUSTER && is_at(servers::may_be_one_cluster);
    let numbers = source.fsid.as_ref().zip(here.fsid.as_ref());
    let numbers = numbers.filter(|_| NUMBERED.contains(&kind));
    // Where they tell numbers, no name or path stands against these.
    let is_system = numbers.map_or(is_served || is_gluster, |(source, here)| source == here)
        && volume(source) == volume(here);
    let inodes = source.inode.zip(here.inode);
    // Where root of one of the hosts may not look, the path on one server has to do.
    is_system && inodes.map_or(is_served, |(source, here)| source == here)
}

/// Which of a cluster's file systems a mount names.
fn volume(file: &FileSeen) -> Option<&str> {
    file.server.as_ref()?.volume.as_deref()
}

/// Whether both are different files, whatever else is told of them.
fn is_another(source: &FileSeen, here: &FileSeen) -> bool {
    let kinds = [kind(source), kind(here)];
    let is_exported = kinds.contains(&"nfs")
        && [source, here]
            .iter()
            .any(|file| is_local(&file.file_system));
    let are_comparable = kinds.iter().all(|kind| KEEPS_INODES.contains(kind))
        && (kinds[0] == kinds[1] || is_exported);
    let numbers = source.inode.zip(here.inode);
    are_comparable && numbers.is_some_and(|(source, here)| source != here)
}

/// Whether the source has by NFS from this host what this host has on a file system of its own: the same inode then. An address that the
/// source has, too, is no more this host's than its.
fn is_its_export(source: &FileSeen, here: &FileSeen, own: &[IpAddr]) -> bool {
    let server = source.server.as_ref();
    let is_ours = server.is_some_and(|server| !server.is_own && servers::has_one_of(server, own));
    let numbers = source.inode.zip(here.inode);
    kind(source) == "nfs"
        && is_ours
        && KEEPS_INODES.contains(&kind(here))
        && numbers.is_some_and(|(source, here)| source == here)
}

/// Several names of the kernel's are one kind of file system.
fn kind(file: &FileSeen) -> &str {
    match file.file_system.as_str() {
        "nfs4" => "nfs",
        "smb3" => "cifs",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/images/web.img";

    /// On a mount of this, by this address.
    fn nfs(name: &str, address: &str, path: &str, inode: u64) -> FileSeen {
        FileSeen {
            file_system: "nfs4".to_owned(),
            fsid: None,
            server: Some(FileServer {
                name: name.to_owned(),
                address: Some(address.to_owned()),
                is_own: false,
                volume: None,
                path: path.to_owned(),
            }),
            inode: Some(inode),
        }
    }

    fn on(file_system: &str, fsid: &str, inode: u64) -> FileSeen {
        FileSeen {
            file_system: file_system.to_owned(),
            fsid: Some(fsid.to_owned()),
            server: None,
            inode: Some(inode),
        }
    }

    fn found(seen: &FileSeen, is_shared_by_word: bool) -> Found {
        Found::File {
            seen: seen.clone(),
            is_local: is_local(&seen.file_system),
            is_shared_by_word,
            held: [].into(),
        }
    }

    fn judged(source: &FileSeen, found: &Found) -> Offer {
        let own = ["10.0.0.9".parse().unwrap()];
        judge(Path::new(PATH), source, found, &own)
    }

    /// Without an operator's word, and with it.
    fn both(source: &FileSeen, here: &FileSeen) -> [Offer; 2] {
        [false, true].map(|by_word| judged(source, &found(here, by_word)))
    }

    fn lacks(source: &FileSeen, here: &FileSeen, words: &str) {
        for offer in both(source, here) {
            let Offer::Lacks(why) = offer else {
                panic!("{offer:?}: {source} and {here}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    fn is_asked_of_the_operator(source: &FileSeen, here: &FileSeen) {
        let [without, with] = both(source, here);
        let Offer::Lacks(why) = without else {
            panic!("{without:?}: {source} and {here}");
        };
        assert!(why.contains("cannot be told"), "{why}");
        assert!(
            why.contains("`shared_filesystems` of /etc/libvirt/qemu.conf"),
            "{why}"
        );
        assert_eq!(with, Offer::Has, "{source} and {here}");
    }

    #[test]
    fn one_servers_file_is_the_same_by_its_path_there_and_its_inode() {
        let source = nfs("nas", "10.0.0.5", "/export/web.img", 12);
        let has = [Offer::Has, Offer::Has];
        for here in [
            source.clone(),
            nfs("NAS", "10.0.1.5", "/export/web.img", 12),
            nfs("10.0.0.5", "10.0.0.5", "/export/web.img", 12),
            FileSeen {
                file_system: "nfs".to_owned(),
                ..source.clone()
            },
        ] {
            assert_eq!(both(&source, &here), has, "{here}");
        }
        lacks(
            &source,
            &nfs("nas", "10.0.0.5", "/export/web.img", 13),
            "is another one, nfs4, nas:/export/web.img, inode 13",
        );
        // A copy of a whole server has the same inodes under the same paths.
        is_asked_of_the_operator(&source, &nfs("copy", "10.0.0.6", "/export/web.img", 12));
        is_asked_of_the_operator(&source, &nfs("nas", "10.0.0.5", "/web.img", 12));
        let near = nfs("localhost", "127.0.0.1", "/export/web.img", 12);
        is_asked_of_the_operator(&near, &near);
    }

    #[test]
    fn a_file_that_is_left_on_a_host_is_never_taken_for_the_one_on_shared_storage() {
        let source = nfs("nas", "10.0.0.5", "/export/web.img", 12);
        let left = on("ext4", "1f", 12);
        lacks(
            &source,
            &left,
            "/images/web.img there is on ext4, inode 12, of that host alone, and not the same one; the domain writes to nfs4, nas:",
        );
        lacks(&left, &left, "mount the same storage there");
        let another = on("tmpfs", "2e", 12);
        lacks(&on("tmpfs", "1f", 12), &another, "on tmpfs");
        lacks(&on("ceph", "1f", 12), &on("xfs", "1f", 12), "on xfs");
        // It is told by what it is on, too.
        let unlisted = Found::File {
            seen: on("f2fs", "1f", 12),
            is_local: true,
            is_shared_by_word: true,
            held: [].into(),
        };
        let offer = judged(&source, &unlisted);
        assert!(matches!(offer, Offer::Lacks(why) if why.contains("of that host alone")));
    }

    #[test]
    fn a_host_that_exports_a_file_has_it_where_the_operator_says_so_and_the_inode_does_too() {
        let own = nfs("nas", "10.0.0.9", "/export/web.img", 12);
        let here = on("ext4", "1f", 12);
        let [without, with] = both(&own, &here);
        assert!(matches!(without, Offer::Lacks(_)), "{without:?}");
        assert_eq!(with, Offer::Has);
        lacks(&own, &on("ext4", "1f", 13), "on ext4");
        // An address that the source has, too.
        let mut both_have = own.clone();
        both_have.server.as_mut().unwrap().is_own = true;
        lacks(&both_have, &here, "on ext4");
        is_asked_of_the_operator(&both_have, &own);
        // The other way about nobody knows whose the server is.
        is_asked_of_the_operator(&here, &own);
        lacks(&on("ext4", "1f", 13), &own, "is another one");
    }

    #[test]
    fn a_cluster_tells_itself_from_others_and_what_does_not_is_left_to_the_operator() {
        let source = on("ceph", "1f", 12);
        let has = [Offer::Has, Offer::Has];
        assert_eq!(both(&source, &source), has);
        lacks(&source, &on("ceph", "1f", 13), "another one");
        is_asked_of_the_operator(&source, &on("ceph", "2e", 12));
        let tmpfs = on("tmpfs", "1f", 12);
        assert_eq!(both(&tmpfs, &tmpfs), has, "one seen from two namespaces");
        let gluster = |name: &str, path: &str, inode| FileSeen {
            file_system: GLUSTER.to_owned(),
            ..nfs(name, "127.0.0.1", path, inode)
        };
        let volume = gluster("localhost", "/vol/web.img", 12);
        let peer = gluster("peer", "/vol/web.img", 12);
        assert_eq!(both(&volume, &peer), has);
        // A copy of a whole volume has the same ids.
        let copy = FileSeen {
            file_system: GLUSTER.to_owned(),
            ..nfs("copy", "10.0.0.6", "/vol/web.img", 12)
        };
        let named = FileSeen {
            file_system: GLUSTER.to_owned(),
            ..nfs("peer", "10.0.0.5", "/vol/web.img", 12)
        };
        is_asked_of_the_operator(&named, &copy);
        assert_eq!(both(&named, &named), has);
        assert_eq!(both(&volume, &copy), has, "itself may be any of a cluster");
        lacks(
            &volume,
            &gluster("localhost", "/vol/web.img", 13),
            "another one",
        );
        for unnumbered in ["fuse.sshfs", "9p", "virtiofs", "beegfs", "gpfs"] {
            let file = FileSeen {
                fsid: None,
                ..on(unnumbered, "", 12)
            };
            is_asked_of_the_operator(&file, &file);
            is_asked_of_the_operator(&file, &on(unnumbered, "1f", 13));
            is_asked_of_the_operator(&source, &file);
        }
    }

    #[test]
    fn what_fuse_calls_a_server_proves_nothing() {
        let sshfs = FileSeen {
            file_system: "fuse.sshfs".to_owned(),
            ..nfs("me@nas", "10.0.0.5", "/export/web.img", 3)
        };
        is_asked_of_the_operator(&sshfs, &sshfs);
        let squashed = FileSeen {
            inode: None,
            ..sshfs
        };
        is_asked_of_the_operator(&squashed, &squashed);
    }

    #[test]
    fn two_file_systems_of_one_ceph_cluster_are_never_proven_one() {
        let of = |fsid: &str, volume: Option<&str>| FileSeen {
            server: Some(FileServer {
                name: "mon1".to_owned(),
                address: None,
                is_own: false,
                volume: volume.map(str::to_owned),
                path: "/web.img".to_owned(),
            }),
            ..on("ceph", fsid, 0x100_0000_0000)
        };
        let (prod, stage) = (of("1f", Some("prod")), of("2e", Some("stage")));
        assert_eq!(both(&prod, &prod), [Offer::Has, Offer::Has]);
        is_asked_of_the_operator(&prod, &stage);
        is_asked_of_the_operator(&of("1f", None), &of("2e", None));
        // Kernels that tell the cluster's number only.
        is_asked_of_the_operator(&prod, &of("1f", Some("stage")));
        is_asked_of_the_operator(&prod, &of("1f", None));
        let untold = |volume| FileSeen {
            fsid: None,
            ..of("", volume)
        };
        let has = [Offer::Has, Offer::Has];
        assert_eq!(both(&untold(Some("prod")), &untold(Some("prod"))), has);
        is_asked_of_the_operator(&untold(Some("prod")), &untold(Some("stage")));
        let squashed = |seen: FileSeen| FileSeen {
            inode: None,
            ..seen
        };
        is_asked_of_the_operator(&squashed(prod.clone()), &squashed(stage));
        assert_eq!(both(&squashed(prod.clone()), &prod), has);
    }

    #[test]
    fn where_root_may_not_look_the_path_on_one_server_has_to_do() {
        let source = nfs("nas", "10.0.0.5", "/export/web.img", 12);
        let squashed = |path: &str| FileSeen {
            inode: None,
            ..nfs("nas", "10.0.0.5", path, 0)
        };
        let has = [Offer::Has, Offer::Has];
        assert_eq!(both(&source, &squashed("/export/web.img")), has);
        assert_eq!(both(&squashed("/export/web.img"), &source), has);
        is_asked_of_the_operator(&source, &squashed("/other/web.img"));
        let ceph = FileSeen {
            inode: None,
            ..on("ceph", "1f", 0)
        };
        is_asked_of_the_operator(&ceph, &ceph);
    }

    #[test]
    fn what_is_no_file_or_not_there_is_lacking_and_what_cannot_be_looked_at_is_not_known() {
        let source = nfs("nas", "10.0.0.5", "/export/web.img", 12);
        let lacks = |why: &str| Offer::Lacks(why.to_owned());
        let gone = judged(&source, &Found::Nothing);
        assert_eq!(gone, lacks("/images/web.img is not there"));
        let folder = judged(&source, &Found::Other("a folder"));
        assert_eq!(folder, lacks("/images/web.img there is a folder"));
        let why = "no answer".to_owned();
        let hangs = judged(&source, &Found::NotKnown(why.clone()));
        assert_eq!(hangs, Offer::NotKnown(why));
    }
}
