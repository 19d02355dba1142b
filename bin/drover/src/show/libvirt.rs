//! A host's libvirt.

use drover_api::{LibvirtState, LibvirtView};

use super::or_dash;

/// What an agent has of its host's libvirt, in a line; none where it is off.
pub fn line(libvirt: &LibvirtView) -> Option<String> {
    let uri = or_dash(libvirt.uri.as_ref());
    let why = or_dash(libvirt.problem.as_ref());
    match libvirt.state {
        LibvirtState::Off | LibvirtState::Unknown => None,
        LibvirtState::Absent => Some(format!("libvirt is not used: {why}")),
        LibvirtState::Looking => Some(format!("libvirt is being looked for at {uri}")),
        LibvirtState::Unreachable => Some(format!("libvirt is UNREACHABLE at {uri}: {why}")),
        LibvirtState::Connected => {
            let (version, domains) = (or_dash(libvirt.version.as_ref()), libvirt.domains);
            let s = if domains == 1 { "" } else { "s" };
            let old = libvirt.problem.as_ref();
            let old = old.map_or_else(String::new, |why| format!(", not told of anew: {why}"));
            Some(format!(
                "libvirt {version} at {uri}, {domains} domain{s}{old}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn libvirt_is_told_in_a_line_unless_it_is_off() {
        let shown = |view: serde_json::Value| line(&serde_json::from_value(view).unwrap());
        let uri = "qemu:///system";
        let connected = json!({"state": "connected", "uri": uri, "version": "9.0.0", "domains": 1});
        assert_eq!(
            shown(connected).as_deref(),
            Some("libvirt 9.0.0 at qemu:///system, 1 domain")
        );
        let old = json!({"state": "connected", "uri": uri, "version": "9.0.0", "domains": 2, "problem": "it hangs"});
        assert_eq!(
            shown(old).as_deref(),
            Some("libvirt 9.0.0 at qemu:///system, 2 domains, not told of anew: it hangs")
        );
        let lost = json!({"state": "unreachable", "uri": uri, "problem": "no socket"});
        assert_eq!(
            shown(lost).as_deref(),
            Some("libvirt is UNREACHABLE at qemu:///system: no socket")
        );
        let absent = json!({"state": "absent", "uri": uri, "problem": "no library"});
        assert_eq!(
            shown(absent).as_deref(),
            Some("libvirt is not used: no library")
        );
        assert_eq!(shown(json!({"state": "off"})), None);
    }
}
