use std::ffi::c_ulong;
use std::fmt;

/// A version as libvirt counts them: a million for each major, a thousand for each minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub(crate) c_ulong);

impl Version {
    /// From then on zeroes that are written to a disk while it is copied can leave holes (libvirt's `NEWS.rst`, v10.9.0).
    pub(crate) const FINDS_ZEROES: Self = Self(10_009_000);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.0 / 1_000_000, self.0 / 1000 % 1000);
        write!(f, "{major}.{minor}.{}", self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shown_as_people_write_them_and_compare() {
        assert_eq!(Version(9_000_000).to_string(), "9.0.0");
        assert_eq!(Version(11_003_002).to_string(), "11.3.2");
        assert!(Version(9_010_000) < Version(11_003_000));
    }
}
