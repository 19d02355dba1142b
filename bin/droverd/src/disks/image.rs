//! What an image is, and how one is made: by QEMU's own `qemu-img`, from the host's path.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;

use drover_api::DiskLayout;
use drover_types::{Bytes, in_short};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::limits;

const PROGRAM: &str = "qemu-img";

/// Why such a one is not copied.
pub const ENCRYPTED: &str = "is encrypted in its file, which a copy would not be";

/// What a guest sees of an image, and how it is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    pub size: Bytes,
    pub layout: DiskLayout,
}

/// As `qemu-img info --output=json` tells (QEMU's `qapi/block-core.json`, `ImageInfo`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    virtual_size: u64,
    format: String,
    cluster_size: Option<u32>,
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    snapshots: Vec<IgnoredAny>,
    format_specific: Option<Specific>,
}

#[derive(Debug, Deserialize)]
struct Specific {
    #[serde(default)]
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Data {
    #[serde(default)]
    bitmaps: Vec<Bitmap>,
    data_file: Option<String>,
}

/// One of what was changed since a backup.
#[derive(Debug, Deserialize)]
struct Bitmap {
    #[serde(default)]
    flags: Vec<String>,
}

impl Bitmap {
    fn records(&self) -> bool {
        self.flags.iter().any(|flag| flag == "auto")
    }
}

/// What becomes of bitmaps of an image that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bitmaps {
    /// libvirt has QEMU carry those that record what is written (`qemuMigrationSrcBeginPhaseBlockDirtyBitmaps`, of 9.0.0 and 11.3.0).
    Carried,
    /// Nobody carries them.
    Lost,
}

impl Bitmaps {
    /// Why an image with these is not copied.
    fn refused(self, found: &[Bitmap]) -> Option<String> {
        match self {
            Self::Carried => several(
                "bitmaps of what was changed once that record no more, which a copy would not have",
                found.iter().filter(|bitmap| !bitmap.records()).count(),
            ),
            Self::Lost => several(
                "bitmaps of what was changed since a backup, which a copy would not have",
                found.len(),
            ),
        }
    }
}

/// Looks at an image, which a hypervisor may have open. It is read as this format, whatever its contents say.
///
/// # Errors
/// It cannot be told, or a copy of what the guest sees would lose something; why.
pub async fn look(path: &Path, format: &str, bitmaps: Bitmaps) -> Result<Image, String> {
    let args = ["info", "--force-share", "--output=json", "-f", format];
    let mut args: Vec<&OsStr> = args.map(OsStr::new).to_vec();
    args.push(path.as_os_str());
    read(&run(&args).await?, bitmaps)
}

fn read(told: &str, bitmaps: Bitmaps) -> Result<Image, String> {
    let info: Info = serde_json::from_str(told)
        .map_err(|error| format!("what {PROGRAM} says of it is not understood: {error}"))?;
    let data = info.format_specific.map(|specific| specific.data);
    let data = data.unwrap_or_default();
    let loses = [
        info.backing_filename.map(|below| changes_of(&below)),
        data.data_file
            .map(|file| format!("has its contents in another file, {file}")),
        info.encrypted.then(|| ENCRYPTED.to_owned()),
        several(
            "snapshots in its file, which a copy would not have",
            info.snapshots.len(),
        ),
        bitmaps.refused(&data.bitmaps),
    ];
    if let Some(why) = loses.into_iter().flatten().next() {
        return Err(why);
    }
    let layout = match (info.format.as_str(), info.cluster_size) {
        ("raw", _) => DiskLayout::Raw,
        ("qcow2", Some(cluster)) if cluster.is_power_of_two() => DiskLayout::Qcow2 { cluster },
        (other, _) => {
            return Err(format!(
                "is of format {other:?}, and only raw and qcow2 are copied"
            ));
        }
    };
    let size = Bytes(info.virtual_size);
    Ok(Image { size, layout })
}

/// Why one that has another file below it is not copied.
pub fn changes_of(below: &str) -> String {
    format!(
        "is changes of {below} only, which are not copied apart: make one file of both (`virsh blockpull` of a domain, `qemu-img rebase -b \"\"` of a guest that is off)"
    )
}

fn several(what: &str, count: usize) -> Option<String> {
    (count > 0).then(|| format!("has {count} {what}"))
}

/// Lays an image out that has nothing in it, in a file that has nothing in it.
///
/// # Errors
/// Why not.
pub async fn make(file: &File, image: Image) -> Result<(), String> {
    match image.layout {
        DiskLayout::Raw => file
            .set_len(image.size.0)
            .map_err(|error| format!("it cannot be as large as its disk: {error}")),
        DiskLayout::Qcow2 { cluster } => {
            // By its path it could be another by now.
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            let (options, size) = (format!("cluster_size={cluster}"), image.size.0.to_string());
            let args = ["create", "-q", "-f", "qcow2", "-o", &options];
            let mut args: Vec<&OsStr> = args.map(OsStr::new).to_vec();
            args.extend([OsStr::new(&path), OsStr::new(&size)]);
            run(&args).await.map(drop)
        }
    }
}

async fn run(args: &[&OsStr]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!(
                "{PROGRAM}, which comes with QEMU (Debian: qemu-utils), cannot be started: {error}"
            )
        })?;
    let (told, said) = (child.stdout.take(), child.stderr.take());
    let ended = async { tokio::try_join!(child.wait(), all(told), all(said)) };
    let ended = timeout(limits::IMAGE, ended).await.map_err(|_| {
        let seconds = limits::IMAGE.as_secs();
        format!("{PROGRAM} did not end within {seconds} s")
    })?;
    let (status, told, said) = ended.map_err(|error| format!("{PROGRAM} is not heard: {error}"))?;
    match status.success() {
        true => Ok(told),
        false => Err(format!("{PROGRAM} says: {}", in_short(said.trim()))),
    }
}

/// What is written there, which may be by whoever made an image.
async fn all(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(limits::SAID_BYTES)
            .read_to_end(&mut bytes)
            .await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(told: &str) -> Result<Image, String> {
        super::read(told, Bitmaps::Carried)
    }

    #[test]
    fn bitmaps_that_record_are_carried_by_libvirt_alone() {
        let told = r#"{"virtual-size": 16777216, "format": "qcow2", "cluster-size": 65536, "format-specific":
            {"type": "qcow2", "data": {"bitmaps": [{"name": "b", "granularity": 65536, "flags": ["in-use", "auto"]}]}}}"#;
        read(told).unwrap();
        let why = super::read(told, Bitmaps::Lost).unwrap_err();
        assert!(why.starts_with("has 1 bitmaps"), "{why}");
    }

    #[test]
    fn an_image_is_what_qemu_says_of_it_and_what_a_copy_would_lose_is_told() {
        let qcow2 = |more: &str| {
            read(&format!(
                r#"{{"virtual-size": 16777216, "format": "qcow2", "cluster-size": 65536{more}}}"#
            ))
        };
        let image = Image {
            size: Bytes(16 << 20),
            layout: DiskLayout::Qcow2 { cluster: 65536 },
        };
        assert_eq!(qcow2(""), Ok(image));
        let raw = read(r#"{"virtual-size": 512, "format": "raw", "children": []}"#).unwrap();
        assert_eq!((raw.size, raw.layout), (Bytes(512), DiskLayout::Raw));
        let specific = |data: &str| {
            qcow2(&format!(
                r#", "format-specific": {{"type": "qcow2", "data": {{{data}}}}}"#
            ))
        };
        assert_eq!(specific(r#""compat": "1.1""#), Ok(image));
        for (refused, words) in [
            (
                qcow2(r#", "backing-filename": "/base.qcow2""#),
                "changes of /base.qcow2",
            ),
            (
                qcow2(r#", "snapshots": [{"id": "1"}, {"id": "2"}]"#),
                "has 2 snapshots",
            ),
            (qcow2(r#", "encrypted": true"#), "is encrypted"),
            (
                specific(r#""bitmaps": [{"name": "b", "flags": ["in-use"]}]"#),
                "has 1 bitmaps",
            ),
            (specific(r#""data-file": "/data.raw""#), "/data.raw"),
            (read(r#"{"virtual-size": 1, "format": "vmdk"}"#), "\"vmdk\""),
            (read("{"), "not understood"),
        ] {
            let why = refused.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }

    #[tokio::test]
    async fn an_image_that_was_made_is_what_it_was_to_be_whatever_has_its_files_name_by_then() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [
            (DiskLayout::Raw, "raw"),
            (DiskLayout::Qcow2 { cluster: 4096 }, "qcow2"),
        ];
        for (layout, format) in sizes {
            let image = Image {
                size: Bytes(3 << 20),
                layout,
            };
            let path = folder.path().join(format);
            let file = File::create_new(&path).unwrap();
            let moved = path.with_extension("moved");
            std::fs::rename(&path, &moved).unwrap();
            let others = folder.path().join("others");
            std::os::unix::fs::symlink(&others, &path).unwrap();
            match make(&file, image).await {
                Err(why) if why.contains("cannot be started") => {
                    println!("skipped, because {why}");
                    return;
                }
                made => made.unwrap(),
            }
            let looked = look(&moved, format, Bitmaps::Lost).await;
            assert_eq!(looked, Ok(image));
            assert!(!others.exists(), "written to by a link");
        }
    }
}
