//! The agent of another host, asked with an operator's certificate.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use drover_api::Client;
use drover_trust::{Armed, Fingerprint, OperatorFile, Trust, TrustError, limits, system_clock};
use drover_types::HostName;

use crate::failure::Failure;

/// The agents' port when the URL has none.
const PORT: u16 = 7470;

/// A client of the agent at `url`, which has to be the host that the URL names.
pub fn client(url: &str, identity: &Path) -> Result<Client, Failure> {
    let file = read(identity)?;
    let (host, addresses) = find(url, &file)?;
    let unusable = |error: TrustError| Failure::error(format!("{}: {error}", identity.display()));
    let credentials = file.credentials().map_err(unusable)?;
    let armed = Armed::operator(&credentials, &system_clock()).map_err(unusable)?;
    Ok(Client::host_at(host, addresses, Trust::of(armed)))
}

/// Where the host is that `url` names.
pub fn addresses(url: &str, identity: &Path) -> Result<Vec<SocketAddr>, Failure> {
    let (_, addresses) = find(url, &read(identity)?)?;
    Ok(addresses)
}

/// The cluster that an identity is for: the fingerprint of its authority.
pub fn authority(identity: &Path) -> Result<Fingerprint, Failure> {
    let credentials = read(identity)?.credentials();
    let credentials = credentials.map_err(|error| Failure::error(error.to_string()))?;
    Ok(credentials.authority())
}

fn read(path: &Path) -> Result<OperatorFile, Failure> {
    use std::io::Read as _;
    let shown = path.display();
    let mut text = String::new();
    let opened = std::fs::File::open(path);
    opened
        .and_then(|file| file.take(limits::FILE_BYTES).read_to_string(&mut text))
        .map_err(|error| {
            Failure::error(format!("cannot read the identity file {shown}: {error}"))
        })?;
    OperatorFile::from_text(&text).map_err(|error| {
        Failure::error(format!("{shown}: {error}"))
            .next("`drover cluster operator NAME -o FILE` on the authority's host writes one")
    })
}

/// Which host a URL names, and where that is. A certificate says a host's name, so an address has
/// to be one that the identity file knows.
fn find(url: &str, file: &OperatorFile) -> Result<(HostName, Vec<SocketAddr>), Failure> {
    let wrong = |problem: &str| {
        Failure::error(format!("--agent {url}: {problem}")).next("write https://HOST[:PORT]")
    };
    let rest = url
        .strip_prefix("https://")
        .ok_or_else(|| wrong("it does not begin with https://"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (name, port) = split(rest).ok_or_else(|| wrong("it is no host and port"))?;
    if let Ok(ip) = name.parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port.unwrap_or(PORT));
        let known = file
            .hosts
            .iter()
            .find(|host| host.addresses.iter().any(|known| known.ip() == ip));
        let known = known.ok_or_else(|| {
            wrong("the identity file knows no host at that address").next(
                "name the host instead of its address, or write a new identity file with \
                 `drover cluster operator`",
            )
        })?;
        return Ok((known.host.clone(), vec![address]));
    }
    let host: HostName = name.parse().map_err(|_| wrong("it names no host"))?;
    let known = file.hosts.iter().find(|known| known.host == host);
    let listed = known.map(|known| known.addresses.clone());
    let addresses = match (listed, port) {
        (Some(mut listed), port) if !listed.is_empty() => {
            if let Some(port) = port {
                listed.iter_mut().for_each(|address| address.set_port(port));
            }
            listed
        }
        (_, port) => resolve(name, port.unwrap_or(PORT)).map_err(|problem| wrong(&problem))?,
    };
    Ok((host, addresses))
}

fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (name, port).to_socket_addrs();
    found
        .map(|addresses| addresses.take(limits::ADDRESSES).collect())
        .map_err(|error| {
            format!("neither the identity file nor the resolver knows host {name}: {error}")
        })
}

/// Host and port of `a`, `a:1`, `10.0.0.1:1`, `[fd00::1]:1`.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((ip, Some(port.parse().ok()?))),
            None if after.is_empty() => Some((ip, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((name, port)) => Some((name, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}

#[cfg(test)]
mod tests {
    use drover_trust::Member;

    use super::*;

    fn file() -> OperatorFile {
        OperatorFile {
            key: String::new(),
            certificate: String::new(),
            authority: String::new(),
            hosts: vec![Member {
                host: "a".parse().unwrap(),
                addresses: vec![
                    "10.0.0.1:7470".parse().unwrap(),
                    "[fd00::1]:7470".parse().unwrap(),
                ],
            }],
        }
    }

    fn found(url: &str) -> (String, Vec<String>) {
        let (host, addresses) = find(url, &file()).unwrap();
        let addresses = addresses.iter().map(ToString::to_string).collect();
        (host.to_string(), addresses)
    }

    #[test]
    fn a_host_is_found_by_its_name_or_by_an_address_that_the_file_knows() {
        let both = vec!["10.0.0.1:7470".to_owned(), "[fd00::1]:7470".to_owned()];
        assert_eq!(found("https://a"), ("a".to_owned(), both));
        let moved = vec!["10.0.0.1:1".to_owned(), "[fd00::1]:1".to_owned()];
        assert_eq!(found("https://a:1/"), ("a".to_owned(), moved));
        let one = |text: &str| ("a".to_owned(), vec![text.to_owned()]);
        assert_eq!(found("https://10.0.0.1"), one("10.0.0.1:7470"));
        assert_eq!(found("https://[fd00::1]:9"), one("[fd00::1]:9"));
        let (host, addresses) = found("https://localhost:9");
        assert_eq!(host, "localhost");
        assert!(addresses.iter().all(|address| address.ends_with(":9")));
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for bad in [
            "a",
            "http://a",
            "https://",
            "https://a:port",
            "https://10.0.0.9",
            "https://[fd00::1",
            "https://a/v1",
        ] {
            assert!(find(bad, &file()).is_err(), "{bad}");
        }
    }
}
