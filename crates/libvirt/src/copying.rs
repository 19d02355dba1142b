//! A disk of a domain that runs is copied to another file of its host, by libvirt, and then is that file.
//!
//! ```text
//!   begin_copy ─▶ Copies ─▶ Same ── let_it_be_the_copy ─▶ Ending ─▶ none, and the disk is the other file
//!                   └─────────┴──── give_copy_up ───────▶ Ending ─▶ none, and the disk is what it was
//! ```
//! libvirt and its QEMU go on by themselves, whoever asked. When the disk becomes the copy libvirt writes that into the domain's
//! definition, where that names the same file as before (`qemuBlockJobRewriteConfigDiskSource` of its `qemu_blockjob.c`).

use std::ffi::{CString, c_uint};
use std::path::{Path, PathBuf};

use drover_types::{ByteRate, Bytes};
use uuid::Uuid;

use crate::connection::{Connection, unless_gone};
use crate::description::{NoDescription, Source, attribute, child, children, parse, root, source};
use crate::domain::{self, Look, Xml};
use crate::error::{CallError, Refusal, excerpt};
use crate::raw::{self, Params};

/// A copy of a disk, to a file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCopy {
    /// The disk's name for the guest, such as `vda`.
    pub target: String,
    /// The file, as large as the disk and with nothing in it.
    pub to: PathBuf,
    /// Its format, such as `qcow2`.
    pub format: &'static str,
    /// The most that it may take.
    pub limit: Option<ByteRate>,
}

/// How far a copy is, by what libvirt shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// It is not the same yet.
    Copies,
    /// It is the same, but for what the guest writes at the moment.
    Same,
    /// It was told to end, either way.
    Ending,
}

/// What libvirt has a disk copied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySeen {
    /// Where that is.
    pub to: Source,
    /// How far it is.
    pub state: CopyState,
}

/// A disk, as one XML of its domain has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSeen {
    /// Where its contents are.
    pub source: Source,
    /// What it is being copied to.
    pub copy: Option<CopySeen>,
}

/// A domain and one of its disks, as they were when asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLook {
    /// The domain.
    pub domain: Look,
    /// The disk as it is now; none where the domain has none of that name.
    pub now: Option<DiskSeen>,
    /// Where its contents will be when the domain is started next; none where it has no definition, or that no such disk.
    pub defined: Option<Source>,
    /// How much was copied by now, and of how much.
    pub copied: Option<(Bytes, Bytes)>,
}

impl DiskSeen {
    /// The disk with this name for the guest, in the XML of a domain; none where it has none.
    ///
    /// # Errors
    /// As [`Description::read`](crate::Description::read).
    pub fn read(xml: &str, target: &str) -> Result<Option<Self>, NoDescription> {
        let document = parse(xml)?;
        let devices = child(root(&document, "domain")?, "devices");
        let mut disks = devices.into_iter().flat_map(|at| children(at, "disk"));
        let named = disks.find(|disk| {
            let at = child(*disk, "target");
            at.and_then(|at| attribute(at, "dev")).as_deref() == Some(target)
        });
        Ok(named.map(|disk| Self {
            source: source(disk),
            copy: child(disk, "mirror").map(|mirror| CopySeen {
                to: source(mirror),
                state: match mirror.attribute("ready") {
                    None => CopyState::Copies,
                    Some("yes") => CopyState::Same,
                    // `pivot` and `abort`.
                    Some(_) => CopyState::Ending,
                },
            }),
        }))
    }
}

impl Connection {
    /// A domain and one of its disks; none where there is no such domain.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn look_at_disk(
        &self,
        domain: Uuid,
        target: &str,
    ) -> Result<Option<DiskLook>, CallError> {
        const WHAT: &str = "tell of a domain's disk";
        let (name, named) = (text(WHAT, target)?, target.to_owned());
        let ask = move |connection: &raw::Connection| {
            unless_gone(connection.domain(domain).and_then(|at| {
                let look = domain::look(&at)?;
                // What a disk has become is in the definition by then.
                let now = seen(&at.xml(Xml::Current.flags())?, &named)?;
                let defined = match look.domain.persistent {
                    true => seen(&at.xml(Xml::Definition.flags())?, &named)?,
                    false => None,
                };
                let copied = match now.as_ref().is_some_and(|disk| disk.copy.is_some()) {
                    // It may have ended since.
                    true => at.disk_job(&name).ok().flatten(),
                    false => None,
                };
                Ok(DiskLook {
                    domain: look,
                    now,
                    defined: defined.map(|disk| disk.source),
                    copied: copied.map(|(done, all)| (Bytes(done), Bytes(all))),
                })
            }))
        };
        self.call(WHAT, ask).await
    }

    /// Begins to copy a disk of a domain that is in memory.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn begin_copy(&self, domain: Uuid, copy: &DiskCopy) -> Result<(), CallError> {
        /// `VIR_DOMAIN_BLOCK_COPY_REUSE_EXT`: the file is there, and is not made by libvirt.
        const REUSE_EXT: c_uint = 1 << 1;
        /// `VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB`: it ends with the domain's hypervisor. libvirt copies no disk of a domain that has a
        /// definition without it.
        const TRANSIENT_JOB: c_uint = 1 << 2;
        const WHAT: &str = "copy a domain's disk";
        let target = text(WHAT, &copy.target)?;
        let to = text(WHAT, &xml(&copy.to, copy.format))?;
        let limit = copy.limit;
        let ask = move |connection: &raw::Connection| {
            let mut params = Params::new(connection.raw());
            if let Some(limit) = limit {
                params.large(c"bandwidth", limit.0)?;
            }
            let at = connection.domain(domain)?;
            at.copy_disk(&target, &to, &params, REUSE_EXT | TRANSIENT_JOB)
        };
        self.call(WHAT, ask).await
    }

    /// Has a copy take as much as it can.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn unlimit_copy(&self, domain: Uuid, target: &str) -> Result<(), CallError> {
        const WHAT: &str = "copy a domain's disk without a limit";
        let name = text(WHAT, target)?;
        let ask = move |connection: &raw::Connection| {
            let at = connection.domain(domain)?;
            at.unlimit_disk_job(&name)
        };
        self.call(WHAT, ask).await
    }

    /// Has a disk be its copy, which is the same. It is told and not waited for.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn let_it_be_the_copy(&self, domain: Uuid, target: &str) -> Result<(), CallError> {
        /// `VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT`.
        const PIVOT: c_uint = 1 << 1;
        self.end_copy("have a domain's disk be its copy", domain, target, PIVOT)
            .await
    }

    /// Gives a copy up: the disk stays what it is. It is told and not waited for.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn give_copy_up(&self, domain: Uuid, target: &str) -> Result<(), CallError> {
        self.end_copy("give the copy of a domain's disk up", domain, target, 0)
            .await
    }

    async fn end_copy(
        &self,
        what: &'static str,
        domain: Uuid,
        target: &str,
        how: c_uint,
    ) -> Result<(), CallError> {
        /// `VIR_DOMAIN_BLOCK_JOB_ABORT_ASYNC`.
        const ASYNC: c_uint = 1;
        let name = text(what, target)?;
        let ask = move |connection: &raw::Connection| {
            let at = connection.domain(domain)?;
            at.end_disk_job(&name, how | ASYNC)
        };
        self.call(what, ask).await
    }

    /// Has a domain that runs stand still, as `virsh suspend` does.
    ///
    /// # Errors
    /// libvirt's reason, no answer, or the connection is lost.
    pub async fn suspend(&self, domain: Uuid) -> Result<(), CallError> {
        let ask = move |connection: &raw::Connection| connection.domain(domain)?.suspend();
        self.call("suspend a domain", ask).await
    }
}

fn text(what: &'static str, text: &str) -> Result<CString, CallError> {
    CString::new(text).map_err(|_| CallError::Text {
        what,
        text: text.to_owned(),
    })
}

/// An XML of libvirt's that is none is its own fault.
fn seen(xml: &str, target: &str) -> Result<Option<DiskSeen>, Refusal> {
    /// `VIR_ERR_XML_ERROR`.
    const XML_ERROR: i32 = 27;
    DiskSeen::read(xml, target).map_err(|error| Refusal {
        words: excerpt(&error.to_string()),
        domain: 0,
        code: XML_ERROR,
    })
}

/// What a disk is copied to, as libvirt takes it.
fn xml(to: &Path, format: &str) -> String {
    let to = to.to_string_lossy();
    let escaped = to
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;");
    format!("<disk type='file'><driver type='{format}'/><source file='{escaped}'/></disk>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &str) -> Option<DiskSeen> {
        let xml = format!(
            "<domain><devices><disk type='file'><target dev='vdb'/></disk>{disk}</devices></domain>"
        );
        DiskSeen::read(&xml, "vda").unwrap()
    }

    #[test]
    fn what_a_disk_is_copied_to_and_how_far_that_is_are_read_from_the_xml() {
        let with = |mirror: &str| {
            let disk = format!(
                "<disk type='file'><source file='/old'/>{mirror}<target dev='vda'/></disk>"
            );
            read(&disk).unwrap()
        };
        assert_eq!(read(""), None);
        let alone = with("");
        assert_eq!(alone.source, Source::File("/old".into()));
        assert_eq!(alone.copy, None);
        for (ready, state) in [
            ("", CopyState::Copies),
            ("ready='yes'", CopyState::Same),
            ("ready='pivot'", CopyState::Ending),
            ("ready='abort'", CopyState::Ending),
        ] {
            let mirror = format!(
                "<mirror type='file' file='/new' job='copy' {ready}><source file='/new'/></mirror>"
            );
            let to = Source::File("/new".into());
            assert_eq!(with(&mirror).copy, Some(CopySeen { to, state }));
        }
    }

    #[test]
    fn a_file_of_any_name_is_named_to_libvirt() {
        let named = xml(Path::new("/a & <b>'c'/ä.qcow2"), "qcow2");
        let document = parse(&named).unwrap();
        let to = source(root(&document, "disk").unwrap());
        assert_eq!(to, Source::File("/a & <b>'c'/ä.qcow2".into()));
    }
}
