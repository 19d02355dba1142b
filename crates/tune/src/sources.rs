//! Where the kernel's and the field's documents are to be found.

use serde::{Deserialize, Serialize};

/// Where something is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// In which document.
    pub said: String,
    /// Its address, where it has one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

const DOCUMENTS: &str = "https://docs.kernel.org/";
const TREE: &str = "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/";
const RFC: &str = "https://www.rfc-editor.org/rfc/rfc";
const QEMU: &str = "https://gitlab.com/qemu-project/qemu/-/blob/master/";

/// The parts of a rule's source, with addresses of those that have one.
pub(crate) fn sources(source: &str) -> Vec<Source> {
    let told = |part: &str| Source {
        said: part.to_owned(),
        address: address(part),
    };
    source.split("; ").map(told).collect()
}

fn address(part: &str) -> Option<String> {
    let path = |rest: &str| {
        let path = rest.split(',').next().unwrap_or(rest).trim().to_owned();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        path.chars().all(plain).then_some(path)
    };
    if let Some(rest) = part.strip_prefix("kernel: ") {
        let path = path(rest)?;
        let page = path
            .strip_prefix("Documentation/")
            .and_then(|page| page.strip_suffix(".rst"));
        return Some(match page {
            Some(page) => format!("{DOCUMENTS}{page}.html"),
            None => format!("{TREE}{path}"),
        });
    }
    if let Some(rest) = part.strip_prefix("QEMU: ") {
        return Some(format!("{QEMU}{}", path(rest)?));
    }
    let number = part.strip_prefix("RFC ")?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| format!("{RFC}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_leads_to_its_page_where_there_is_one() {
        for (part, expected) in [
            (
                "kernel: Documentation/networking/scaling.rst",
                Some("https://docs.kernel.org/networking/scaling.html"),
            ),
            (
                "kernel: Documentation/networking/ip-sysctl.rst, rp_filter and arp_filter",
                Some("https://docs.kernel.org/networking/ip-sysctl.html"),
            ),
            (
                "kernel: Documentation/ABI/testing/sysfs-class-net, carrier_changes",
                Some(
                    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/Documentation/ABI/testing/sysfs-class-net",
                ),
            ),
            (
                "RFC 2923, 2.1 (black holes)",
                Some("https://www.rfc-editor.org/rfc/rfc2923"),
            ),
            (
                "QEMU: qemu-options.hx, -netdev tap",
                Some("https://gitlab.com/qemu-project/qemu/-/blob/master/qemu-options.hx"),
            ),
            ("IEEE 802.1AB, and 802.3's annex 79", None),
        ] {
            assert_eq!(address(part).as_deref(), expected, "{part}");
        }
    }
}
