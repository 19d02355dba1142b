//! Which libvirt the agent looks at.

use serde::Deserialize;

/// Longest URI of libvirt's: a socket's path with each of its bytes escaped, and what is around it.
const URI_BYTES: usize = 512;

/// How a URI of a libvirt on this host begins: by its own socket, or by one that is named.
const ON_THIS_HOST: [&str; 2] = ["qemu:///", "qemu+unix:///"];

/// Where a host's libvirt is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LibvirtAt {
    /// At the system's socket, where there is one.
    #[default]
    Auto,
    /// It is not looked at.
    Off,
    /// At this URI, whether it is there or not.
    Uri(String),
}

impl TryFrom<String> for LibvirtAt {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let is_here = ON_THIS_HOST.iter().any(|begin| text.starts_with(begin));
        if is_here && text.len() <= URI_BYTES && text.chars().all(|c| c.is_ascii_graphic()) {
            return Ok(Self::Uri(text));
        }
        let shown: String = text.chars().take(URI_BYTES).collect();
        Err(format!(
            "{shown:?} is no libvirt of this host: write \"auto\", \"off\", \"qemu:///system\" or \
             \"qemu+unix:///system?socket=/path\""
        ))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LibvirtSection {
    pub(super) uri: LibvirtAt,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirt_is_one_of_this_host_or_none() {
        let read = |text: &str| LibvirtAt::try_from(text.to_owned());
        assert_eq!(read("auto"), Ok(LibvirtAt::default()));
        assert_eq!(read("off"), Ok(LibvirtAt::Off));
        let here = "qemu+unix:///system?socket=/run/other/libvirt-sock";
        assert_eq!(read(here), Ok(LibvirtAt::Uri(here.to_owned())));
        for other in [
            "",
            "on",
            "/run/libvirt/libvirt-sock",
            "qemu+ssh://b/system",
            "qemu+tcp://b/system",
            "xen:///system",
            "qemu:///sys tem",
            "qemu:///sys\0tem",
        ] {
            let refused = read(other).unwrap_err();
            assert!(refused.contains("qemu:///system"), "{other}: {refused}");
        }
    }
}
