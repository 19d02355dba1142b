use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The system's libvirtd, by its own socket.
pub const SYSTEM: &str = "qemu:///system";

/// The URI of a libvirtd by the path of its socket.
#[must_use]
pub fn of_libvirtd(socket: &Path) -> String {
    format!("qemu+unix:///system?socket={}", escaped(socket))
}

/// The URI by which QEMU listens at a socket, or connects to it.
pub(crate) fn of_qemu(socket: &Path) -> String {
    format!("unix://{}", escaped(socket))
}

/// A path with everything escaped that means something in a URI, or is no ASCII (RFC 3986, 2.1 and 2.3). libvirt undoes it.
///
/// A zero byte stays, so that what C cannot say is refused: libvirt would take an escaped one for the path's end.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | 0 => {
                text.push(char::from(*byte));
            }
            other => {
                // Writing to a String cannot fail.
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_said_so_that_nothing_of_it_is_taken_for_a_part_of_the_uri() {
        let plain = of_libvirtd(Path::new("/run/a_1/libvirt-sock~"));
        assert_eq!(plain, "qemu+unix:///system?socket=/run/a_1/libvirt-sock~");
        let odd = Path::new("/run/ä b&c=#?100%+.sock");
        let said = "/run/%C3%A4%20b%26c%3D%23%3F100%25%2B.sock";
        assert_eq!(
            of_libvirtd(odd),
            format!("qemu+unix:///system?socket={said}")
        );
        assert_eq!(of_qemu(odd), format!("unix://{said}"));
        assert!(of_qemu(Path::new("/run/a\0b")).contains('\0'));
    }
}
