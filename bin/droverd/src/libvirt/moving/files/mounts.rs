//! Whose a file system is, by the kernel's list of mounts (`/proc/self/mountinfo`, proc_pid_mountinfo(5)). Pure, but for reading
//! that.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use drover_api::FileServer;

/// Where this process's are listed.
const LIST: &str = "/proc/self/mountinfo";

/// CephFS, of which a cluster may have several.
const CEPH: &str = "ceph";

/// The field after which a mount's file system is told.
const SEPARATOR: &str = "-";

/// Those of this process.
#[derive(Debug)]
pub struct Mounts {
    /// As the kernel lists them.
    list: String,
    /// Where they are: it is asked for with each step of a way, and there may be thousands.
    points: BTreeSet<PathBuf>,
}

impl Mounts {
    /// As they are now; none where the kernel does not list them. To read that waits for no server.
    pub fn now() -> Self {
        let list = std::fs::read(LIST).unwrap_or_default();
        Self::listed(String::from_utf8_lossy(&list).into_owned())
    }

    /// Those of this list.
    pub fn listed(list: String) -> Self {
        let points = list.lines().filter_map(|line| line.split(' ').nth(4));
        let points = points.map(|point| PathBuf::from(unescaped(point)));
        Self {
            points: points.collect(),
            list,
        }
    }

    /// The mount point below which a path without links is. The root where none is listed.
    pub fn point_of(&self, path: &Path) -> &Path {
        let mut above = path.ancestors();
        let nearest = above.find_map(|above| self.points.get(above));
        nearest.map_or(Path::new("/"), PathBuf::as_path)
    }

    /// The one of this number.
    pub fn find(&self, id: u64) -> Option<Mount> {
        Mount::find(&self.list, id)
    }
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The kind of its file system, such as `nfs4` or `fuse.glusterfs`.
    pub file_system: String,
    /// It is on a block device, which is a host's own.
    pub has_device: bool,
    /// What is mounted, such as `nas:/images`.
    source: String,
    /// The folder of the file system that is seen at its mount point.
    root: String,
    /// Where it is mounted.
    point: String,
    /// The address by which its server is reached.
    address: Option<String>,
    /// The file system of a cluster that has several.
    volume: Option<String>,
}

impl Mount {
    /// The one of this number, in the kernel's list.
    fn find(list: &str, id: u64) -> Option<Self> {
        let id = id.to_string();
        let mut lines = list.lines();
        let line = lines.find(|line| line.split(' ').next() == Some(&id))?;
        let mut fields = line.split(' ').skip(2);
        let (major, _) = fields.next()?.split_once(':')?;
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let mut fields = fields.skip_while(|field| *field != SEPARATOR).skip(1);
        let (file_system, source) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let options = fields.next().unwrap_or_default();
        let option = |names: &[&str]| {
            let is_it = |name: &str| names.contains(&name);
            let mut values = options.split(',').filter_map(|one| one.split_once('='));
            values.find_map(|(name, value)| is_it(name).then(|| unescaped(value)))
        };
        Some(Self {
            // Those without one have numbers of major 0.
            has_device: major != "0",
            address: option(&["addr"]),
            volume: option(&["mds_namespace", "fs"]).filter(|_| file_system == CEPH),
            file_system,
            source,
            root,
            point,
        })
    }

    /// Who has the file that is seen by this path, where the mount names another machine.
    pub fn server(&self, path: &str) -> Option<FileServer> {
        let (name, volume, mounted) = self.parts()?;
        let below = path.strip_prefix(self.point.trim_end_matches('/'))?;
        let is_below = below.is_empty() || below.starts_with('/');
        let parts = [mounted, &self.root, below].into_iter();
        let parts = parts.flat_map(|part| part.split('/').filter(|part| !part.is_empty()));
        let parts: String = parts.flat_map(|part| ["/", part]).collect();
        (is_below && !name.is_empty()).then(|| FileServer {
            name: name.to_owned(),
            address: self.address.clone(),
            is_own: false,
            volume: volume.map(str::to_owned),
            path: parts,
        })
    }

    /// Machine, file system and folder of what is mounted.
    fn parts(&self) -> Option<(&str, Option<&str>, &str)> {
        if let Some(share) = self.source.strip_prefix("//") {
            let (name, mounted) = share.split_once('/')?;
            return Some((name, None, mounted));
        }
        // `client@CLUSTER.volume=/images`, by mount.ceph(8) of version 17 and newer.
        let named = self
            .source
            .split_once("=/")
            .filter(|_| self.file_system == CEPH);
        if let Some(((_, of), mounted)) =
            named.and_then(|(of, path)| Some((of.split_once('@')?, path)))
        {
            let (cluster, volume) = of.split_once('.')?;
            return Some((cluster, Some(volume), mounted));
        }
        // `nas:/images`, `[fe80::1]:/images`, `one:6789,two:6789:/`.
        let (name, mounted) = self.source.split_once(":/")?;
        Some((name, self.volume.as_deref(), mounted))
    }
}

/// The kernel writes a space, a tab, a line's end and a backslash as three octal digits after a backslash.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut bytes: Vec<u8> = parts.next().unwrap_or_default().into();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3).unwrap_or(("", part));
        match u8::from_str_radix(digits, 8) {
            Ok(byte) => {
                bytes.push(byte);
                bytes.extend(rest.bytes());
            }
            Err(_) => bytes.extend(b"\\".iter().copied().chain(part.bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 21 0:43 / /images rw,relatime shared:2 - nfs4 nas:/export/images rw,vers=4.2,hard,clientaddr=10.0.0.1,addr=10.0.0.5
37 21 0:43 / /a\040b rw - nfs4 nas:/export/images/of\040web rw,addr=fe80::1
38 21 0:44 /sub /vms rw,relatime - ceph 10.0.0.1:6789,10.0.0.2:6789:/all rw,name=admin
39 21 0:45 / /win rw - cifs //nas/share rw,addr=10.0.0.5
40 21 0:46 / /gluster rw - fuse.glusterfs [fe80::1]:/vol rw,allow_other
41 21 0:47 / /ssh rw - fuse.sshfs me@nas: rw
42 21 0:48 / /images/web.img rw - nfs4 nas:/export/web.img rw
49 21 0:50 / /prod rw - ceph one:6789:/ rw,name=fs,mds_namespace=prod
50 21 0:51 / /stage rw - ceph admin@b7f1.stage.2=/vms rw,fsid=b7f1,mon_addr=one:6789
364 21 0:49 / /proc rw - proc proc rw
43 broken";

    fn server(id: u64, path: &str) -> Option<(String, Option<String>, String)> {
        let server = Mount::find(LINES, id)?.server(path)?;
        Some((server.name, server.address, server.path))
    }

    #[test]
    fn a_file_is_told_by_its_server_and_its_path_there_however_it_is_mounted() {
        let of = |name: &str, address: Option<&str>, path: &str| {
            Some((name.to_owned(), address.map(str::to_owned), path.to_owned()))
        };
        let nas = |path| of("nas", Some("10.0.0.5"), path);
        assert_eq!(
            server(36, "/images/of web/1.img"),
            nas("/export/images/of web/1.img")
        );
        let same = of("nas", Some("fe80::1"), "/export/images/of web/1.img");
        assert_eq!(server(37, "/a b/1.img"), same);
        let monitors = "10.0.0.1:6789,10.0.0.2:6789";
        assert_eq!(
            server(38, "/vms/1.img"),
            of(monitors, None, "/all/sub/1.img")
        );
        assert_eq!(server(39, "/win/1.img"), nas("/share/1.img"));
        assert_eq!(
            server(40, "/gluster/1.img"),
            of("[fe80::1]", None, "/vol/1.img")
        );
        let one = of("nas", None, "/export/web.img");
        assert_eq!(server(42, "/images/web.img"), one, "one file is mounted");
    }

    #[test]
    fn of_a_cluster_with_several_file_systems_it_is_told_which_one_a_mount_names() {
        let server = |id, path| Mount::find(LINES, id)?.server(path);
        let named = |name: &str, volume: &str, path: &str| {
            Some(FileServer {
                name: name.to_owned(),
                address: None,
                is_own: false,
                volume: Some(volume.to_owned()),
                path: path.to_owned(),
            })
        };
        assert_eq!(
            server(49, "/prod/1.img"),
            named("one:6789", "prod", "/1.img")
        );
        let newer = named("b7f1", "stage.2", "/vms/1.img");
        assert_eq!(server(50, "/stage/1.img"), newer);
        assert_eq!(server(38, "/vms/1.img").unwrap().volume, None);
    }

    #[test]
    fn what_names_no_server_or_is_another_mounts_has_none() {
        assert_eq!(server(21, "/web.img"), None);
        assert_eq!(server(41, "/ssh/web.img"), None);
        assert_eq!(server(36, "/images-too/web.img"), None);
        assert_eq!(Mount::find(LINES, 3), None, "of no number is a part taken");
        assert_eq!(Mount::find(LINES, 43), None);
        let has_device = |id| Mount::find(LINES, id).unwrap().has_device;
        assert_eq!([21, 36].map(has_device), [true, false]);
        let listed = Mounts::listed(LINES.to_owned());
        let point = |path: &'static str| listed.point_of(Path::new(path));
        assert_eq!(point("/images/web.img"), Path::new("/images/web.img"));
        assert_eq!(point("/images/db.img"), Path::new("/images"));
        assert_eq!(point("/images-too/db.img"), Path::new("/"));
        assert_eq!(point("/a b/c/db.img"), Path::new("/a b"));
        let none = Mounts::listed(String::new());
        assert_eq!(none.point_of(Path::new("/a")), Path::new("/"));
        assert_eq!(unescaped(r"a\134b\x"), r"a\b\x");
    }
}
