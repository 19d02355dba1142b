//! Emulated TPMs: programs (swtpm) that libvirt starts beside a domain's hypervisor. Pure.
//!
//! Source: libvirt's `docs/formatdomain.rst` and `docs/formatdomaincaps.rst`, TPM device.

use roxmltree::Node;

use super::{NoDescription, attribute, child, children, parse, root};
use crate::error::excerpt;
use crate::offered::Has;

/// An emulated TPM.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tpm {
    /// What the guest sees of it, such as `tpm-crb`.
    pub model: String,
    /// The version of the standard, such as `2.0`, where it is told.
    pub version: Option<String>,
}

/// That of a device; none where it is the host's own, or somebody else's program.
pub(super) fn of(node: Node<'_, '_>) -> Option<Tpm> {
    let backend = child(node, "backend")?;
    (backend.attribute("type") == Some("emulator")).then(|| Tpm {
        model: attribute(node, "model").unwrap_or_default(),
        version: attribute(backend, "version"),
    })
}

/// Whether a hypervisor can give domains this one, by the XML that libvirt tells of such domains. libvirt names the backend `emulator`
/// only while it finds swtpm.
///
/// # Errors
/// It is no XML, has more than [`limits::XML_NODES`](crate::limits::XML_NODES) nodes, or is of something else.
pub(crate) fn gives(capabilities: &str, tpm: &Tpm) -> Result<Has, NoDescription> {
    let document = parse(capabilities)?;
    let root = root(&document, "domainCapabilities")?;
    let Some(told) = child(root, "devices").and_then(|devices| child(devices, "tpm")) else {
        let why = "this libvirt does not tell which TPMs it can give domains";
        return Ok(Has::NotKnown(why.to_owned()));
    };
    let values = |wanted: &str| -> Option<Vec<String>> {
        let mut enums = children(told, "enum");
        let found = enums.find(|node| node.attribute("name") == Some(wanted))?;
        let values = children(found, "value").filter_map(|value| value.text());
        Some(values.map(excerpt).collect())
    };
    let has = |name: &str, wanted: &str| {
        values(name).is_none_or(|all| all.iter().any(|value| value == wanted))
    };
    let (model, version) = (&tpm.model, tpm.version.as_deref());
    Ok(if told.attribute("supported") != Some("yes") {
        Has::Not("its hypervisor has none".to_owned())
    } else if !has("backendModel", "emulator") {
        let why = "libvirt finds no swtpm and swtpm_setup there (Debian: swtpm, swtpm-tools)";
        Has::Not(why.to_owned())
    } else if !has("model", model) {
        Has::Not(format!("its hypervisor has none of model {model}"))
    } else if let Some(version) = version.filter(|version| !has("backendVersion", version)) {
        Has::Not(format!("its swtpm has no version {version}"))
    } else {
        Has::It
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libvirt 9.0 and 11.3 tell it, but for all else.
    fn capabilities(backends: &str) -> String {
        format!(
            "<domainCapabilities><devices><disk supported='yes'/><tpm supported='yes'>\
             <enum name='model'><value>tpm-tis</value><value>tpm-crb</value></enum>\
             <enum name='backendModel'><value>passthrough</value>{backends}</tpm></devices></domainCapabilities>"
        )
    }

    #[test]
    fn a_host_gives_a_tpm_where_libvirt_finds_a_program_of_its_version_and_a_model_for_the_guest() {
        let tpm = |model: &str, version: Option<&str>| Tpm {
            model: model.to_owned(),
            version: version.map(str::to_owned),
        };
        let two = tpm("tpm-crb", Some("2.0"));
        let without = capabilities("</enum>");
        let versions = "<enum name='backendVersion'><value>2.0</value></enum>";
        let with = capabilities(&format!("<value>emulator</value></enum>{versions}"));
        let no_version = capabilities("<value>emulator</value></enum>");
        for there in [&with, &no_version] {
            assert_eq!(gives(there, &two), Ok(Has::It));
            assert_eq!(gives(there, &tpm("tpm-tis", None)), Ok(Has::It));
        }
        for (told, tpm, words) in [
            (without.as_str(), two.clone(), "finds no swtpm"),
            (&with, tpm("tpm-crb", Some("1.2")), "no version 1.2"),
            (&with, tpm("tpm-spapr", None), "of model tpm-spapr"),
            (
                "<domainCapabilities><devices><tpm supported='no'/></devices></domainCapabilities>",
                two.clone(),
                "has none",
            ),
        ] {
            let Ok(Has::Not(why)) = gives(told, &tpm) else {
                panic!("{words:?} is not told");
            };
            assert!(why.contains(words), "{why}");
        }
        let older = gives("<domainCapabilities/>", &two);
        assert!(matches!(older, Ok(Has::NotKnown(_))), "{older:?}");
        assert!(gives("<domain/>", &two).is_err() && gives("<", &two).is_err());
    }
}
