use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;

use super::config::{Pinned, provider};
use super::*;
use crate::tcp::Socket;
use crate::{Connection, Encryption, Lane, lock};

const PATIENCE: Duration = Duration::from_secs(20);

/// Two connected sockets.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn connection(stream: TcpStream) -> Connection {
    let connection = Connection::adopt(stream).unwrap();
    connection.set_deadline(Instant::now() + PATIENCE).unwrap();
    connection
}

fn ends() -> (Tls, Tls) {
    let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    (
        Tls::new(&near, far.fingerprint()).unwrap(),
        Tls::new(&far, near.fingerprint()).unwrap(),
    )
}

type Made = Result<Lane, TlsError>;

fn shake(near: TcpStream, far: TcpStream, client: Tls, server: Tls) -> (Made, Made) {
    let far = thread::spawn(move || connection(far).into_tls(Role::Server, &server));
    let near = connection(near).into_tls(Role::Client, &client);
    (near, far.join().unwrap())
}

fn lanes() -> (Arc<Lane>, Arc<Lane>) {
    let ((near, far), (client, server)) = (sockets(), ends());
    let (near, far) = shake(near, far, client, server);
    (Arc::new(near.unwrap()), Arc::new(far.unwrap()))
}

fn content(count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Sends `bytes` in pieces of these sizes, receives them in pieces of those, over and over.
fn carry(from: &Arc<Lane>, to: &Arc<Lane>, bytes: &[u8], sent: &[usize], received: &[usize]) {
    let (from, whole) = (from.clone(), bytes.to_vec());
    let sent = sent.to_vec();
    let sender = thread::spawn(move || {
        let mut rest = &whole[..];
        for size in sent.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(*size));
            let (header, payload) = now.split_at(now.len().min(16));
            from.send(header, payload).unwrap();
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    });
    let mut got = vec![0; bytes.len()];
    let mut rest = &mut got[..];
    for size in received.iter().cycle() {
        let (now, later) = rest.split_at_mut(rest.len().min(*size));
        to.receive(now).unwrap();
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    sender.join().unwrap();
    assert!(got == bytes, "bytes differ");
}

#[test]
fn bytes_arrive_whole_both_ways_at_once_however_they_are_cut() {
    let (near, far) = lanes();
    let bytes = content(5_000_000);
    let sizes = [1, 16, 17, 16_384, 16_385, 131_088, 1_048_592, 5];
    let others = [131_072, 3, 16_384, 70_000, 1];
    thread::scope(|scope| {
        scope.spawn(|| carry(&near, &far, &bytes, &sizes, &others));
        scope.spawn(|| carry(&far, &near, &bytes, &others, &sizes));
    });
}

#[test]
fn bytes_that_follow_the_handshake_at_once_are_not_lost() {
    for _ in 0..20 {
        let ((near, far), (client, server)) = (sockets(), ends());
        let near = thread::spawn(move || {
            let lane = connection(near).into_tls(Role::Client, &client).unwrap();
            lane.send(b"hello", b", hello").unwrap();
            lane
        });
        let far = connection(far);
        let far = far.into_tls(Role::Server, &server).unwrap();
        let mut bytes = [0; 12];
        far.receive(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello, hello");
        drop(near.join());
    }
}

#[test]
fn aes_is_used_where_both_ends_have_it_and_chacha_otherwise() {
    for (near_has, far_has) in [(true, true), (true, false), (false, true), (false, false)] {
        let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let client = Tls::with_aes(&near, far.fingerprint(), near_has).unwrap();
        let server = Tls::with_aes(&far, near.fingerprint(), far_has).unwrap();
        let streams = sockets();
        let (near, far) = shake(streams.0, streams.1, client, server);
        let expected = if near_has && far_has {
            Encryption::Tls13Aes128Gcm
        } else {
            Encryption::Tls13Chacha20Poly1305
        };
        assert_eq!(near.unwrap().encryption(), expected);
        assert_eq!(far.unwrap().encryption(), expected);
    }
}

#[test]
fn a_lane_within_tls_gives_no_socket_away() {
    let (near, _far) = lanes();
    assert!(!near.is_plain() && near.plain_fd().is_none());
    let (stream, _peer) = sockets();
    let plain = connection(stream).into_plain();
    assert!(plain.is_plain() && plain.plain_fd().is_some());
    assert_eq!(plain.encryption(), Encryption::Off);
}

#[test]
fn a_peer_with_another_certificate_is_refused_by_either_end() {
    let stranger = Identity::generate().unwrap();
    let (streams, (client, server)) = (sockets(), ends());
    let false_server = Tls::new(&stranger, client.own()).unwrap();
    let (near, far) = shake(streams.0, streams.1, client.clone(), false_server);
    let refused = near.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    assert!(far.unwrap_err().to_string().contains("alert"));

    let streams = sockets();
    let false_client = Tls::new(&stranger, server.own()).unwrap();
    let (near, far) = shake(streams.0, streams.1, false_client, server);
    let refused = far.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    // In TLS 1.3 a client has done its part before the server judges it.
    assert!(near.unwrap().receive(&mut [0; 1]).is_err());
}

/// A client that trusts the server, and shows `certificate` with the key of `key`, or nothing.
fn client_with(server: &Tls, shown: Option<(&Identity, &Identity)>) -> Tls {
    let own = Identity::generate().unwrap();
    let mut tls = Tls::new(&own, server.own()).unwrap();
    let provider = Arc::new(provider(true));
    let pinned = Pinned::new(server.own(), provider.clone());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned));
    let mut config = match shown {
        Some((certificate, key)) => {
            let key = provider.key_provider.load_private_key(key.key()).unwrap();
            let pair = CertifiedKey::new(vec![certificate.certificate.clone()], key);
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols.clone_from(&tls.client.alpn_protocols);
    tls.client = Arc::new(config);
    tls
}

#[test]
fn the_certificate_alone_is_not_enough_without_its_key() {
    let (real, own) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let server = Tls::new(&own, real.fingerprint()).unwrap();
    for (key, taken) in [(&real, true), (&own, false)] {
        let client = client_with(&server, Some((&real, key)));
        let streams = sockets();
        let (near, far) = shake(streams.0, streams.1, client, server.clone());
        assert_eq!(far.is_ok(), taken, "{far:?}");
        assert!(taken || near.unwrap().receive(&mut [0; 1]).is_err());
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let (streams, (_, server)) = (sockets(), ends());
    let client = client_with(&server, None);
    let (near, far) = shake(streams.0, streams.1, client, server);
    let refused = far.unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    assert!(near.unwrap().receive(&mut [0; 1]).is_err());
}

#[test]
fn keys_change_while_bytes_go_both_ways() {
    let (streams, (client, server)) = (sockets(), ends());
    let (near, far) = (
        Socket::new(streams.0).unwrap(),
        Socket::new(streams.1).unwrap(),
    );
    thread::scope(|scope| {
        let far_end = scope.spawn(|| Session::handshake(&far, Role::Server, &server).unwrap());
        let near_end = Session::handshake(&near, Role::Client, &client).unwrap();
        let far_end = far_end.join().unwrap();
        let bytes = content(50_000);
        let carry = |from: (&Session, &Socket), to: (&Session, &Socket)| {
            from.0.send(from.1, b"header", &bytes).unwrap();
            let mut got = vec![0; 6 + bytes.len()];
            to.0.receive(to.1, &mut got).unwrap();
            assert!(got.starts_with(b"header") && got[6..] == bytes);
        };
        for _ in 0..3 {
            for changes in [&near_end, &far_end] {
                lock(&changes.crypto).change_keys();
                carry((&near_end, &near), (&far_end, &far));
                carry((&far_end, &far), (&near_end, &near));
            }
        }
    });
}

/// A record with these bytes of a handshake message, under the keys of an end.
fn handshake_record(secrets: rustls::ExtractedSecrets, bytes: &[u8]) -> Vec<u8> {
    let (sequence, secrets) = secrets.tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
        panic!("another cipher");
    };
    let mut nonce = [0; 12];
    nonce.copy_from_slice(iv.as_ref());
    for (byte, count) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= count;
    }
    let mut sealed = [bytes, &[22]].concat();
    let length = u16::try_from(sealed.len() + 16).unwrap();
    let header = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut sealed)
        .unwrap();
    [header, sealed].concat()
}

#[test]
fn a_peer_that_cuts_tls_own_messages_in_two_is_refused_and_nothing_panics() {
    let own = Identity::generate().unwrap();
    let peer = Identity::generate().unwrap();
    let mut client = Tls::with_aes(&own, peer.fingerprint(), true).unwrap();
    let server = Tls::with_aes(&peer, own.fingerprint(), true).unwrap();
    Arc::get_mut(&mut client.client)
        .unwrap()
        .enable_secret_extraction = true;
    // A change of keys that is cut; one with a second behind it; one that is none.
    for message in [
        &[24, 0, 0, 1][..],
        &[24, 0, 0, 1, 0, 24, 0],
        &[24, 0, 0, 1, 7],
    ] {
        let (near, far) = sockets();
        let (near, far) = (Socket::new(near).unwrap(), Socket::new(far).unwrap());
        thread::scope(|scope| {
            let far_end = scope.spawn(|| Session::handshake(&far, Role::Server, &server).unwrap());
            let near_end = Session::handshake(&near, Role::Client, &client).unwrap();
            let far_end = far_end.join().unwrap();
            let secrets = near_end.crypto.into_inner().unwrap().into_secrets();
            near.send(&handshake_record(secrets, message), b"").unwrap();
            let refused = far_end.receive(&far, &mut [0; 1]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
            assert!(far_end.send(&far, b"header", b"payload").is_err());
            far_end.say_goodbye(&far);
        });
    }
}

/// Between two ends: passes the first `untouched` bytes from near to far, then does `then` to the
/// far socket, or changes the byte that follows.
fn meddle(untouched: usize, then: fn(&mut [u8], &TcpStream)) -> (Arc<Lane>, Arc<Lane>) {
    let ((near, middle), (other, far)) = (sockets(), sockets());
    let back = (other.try_clone().unwrap(), middle.try_clone().unwrap());
    thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
    thread::spawn(move || {
        let mut passed = 0;
        let mut bytes = [0; 1];
        while let Ok(1) = (&middle).read(&mut bytes) {
            passed += 1;
            if passed == untouched {
                then(&mut bytes, &other);
            }
            if (&other).write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let (client, server) = ends();
    let (near, far) = shake(near, far, client, server);
    (Arc::new(near.unwrap()), Arc::new(far.unwrap()))
}

/// Behind every handshake, within the bytes that follow it.
const LATE: usize = 20_000;

#[test]
fn a_byte_that_was_changed_on_its_way_is_never_delivered() {
    let (near, far) = meddle(LATE, |bytes, _| bytes[0] ^= 1);
    let sent = content(100_000);
    let sender = {
        let sent = sent.clone();
        thread::spawn(move || drop(near.send(b"", &sent)))
    };
    let mut got = vec![0; sent.len()];
    let refused = far.receive(&mut got).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    far.shut_down();
    sender.join().unwrap();
    let intact = got.iter().zip(&sent).take_while(|(a, b)| a == b).count();
    assert!(got[intact..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_connection_that_is_cut_off_is_not_taken_for_one_that_ended() {
    let (near, far) = meddle(LATE, |_, other| other.shutdown(Shutdown::Write).unwrap());
    let sender = thread::spawn(move || drop(near.send(b"", &content(100_000))));
    let cut = far.receive(&mut vec![0; 100_000]).unwrap_err();
    assert_eq!(cut.kind(), io::ErrorKind::ConnectionAborted, "{cut}");
    far.shut_down();
    sender.join().unwrap();
}

#[test]
fn an_end_that_finishes_is_heard_and_can_still_be_answered() {
    let (near, far) = lanes();
    near.send(b"last", b"").unwrap();
    near.finish_sending();
    let mut bytes = [0; 4];
    far.receive(&mut bytes).unwrap();
    let ended = far.receive(&mut [0; 1]).unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof, "{ended}");
    far.send(b"and ", b"back").unwrap();
    let mut bytes = [0; 8];
    near.receive(&mut bytes).unwrap();
    assert_eq!(&bytes, b"and back");
}

#[test]
fn shutting_a_lane_down_ends_what_is_under_way_at_both_ends() {
    let (near, far) = lanes();
    let receiver = {
        let near = near.clone();
        thread::spawn(move || near.receive(&mut [0; 1]).is_err())
    };
    near.shut_down();
    assert!(receiver.join().unwrap());
    assert!(far.receive(&mut [0; 1]).is_err());
}

#[test]
fn finishing_does_not_wait_for_a_send_that_is_stuck() {
    let (near, far) = lanes();
    let sender = {
        let near = near.clone();
        thread::spawn(move || while near.send(b"", &[0; 100_000]).is_ok() {})
    };
    let mut bytes = [0; 1];
    far.receive(&mut bytes).unwrap();
    near.finish_sending();
    sender.join().unwrap();
}

/// What a server says to these bytes.
fn refused_by_server(bytes: &[u8], deadline: Duration) -> String {
    let ((mut near, far), (_, server)) = (sockets(), ends());
    let far = Connection::adopt(far).unwrap();
    far.set_deadline(Instant::now() + deadline).unwrap();
    let far = thread::spawn(move || far.into_tls(Role::Server, &server).map(drop));
    // It may have been refused in the middle.
    let _ = near.write_all(bytes);
    far.join().unwrap().unwrap_err().to_string()
}

#[test]
fn what_is_no_tls_is_refused() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0x16, 3, 1, 0, 4, 1, 0, 0, 0],
    ] {
        let refused = refused_by_server(bytes, PATIENCE);
        assert!(!refused.contains("timed out"), "{refused}");
    }
}

#[test]
fn a_handshake_without_end_is_refused_at_the_limit() {
    // A client's hello of 65,535 bytes, in records of 1,000.
    let mut bytes = vec![0x16, 3, 1, 3, 0xec, 1, 0, 0xff, 0xff];
    bytes.resize(5 + 1004, 0);
    for _ in 0..60 {
        bytes.extend([0x16, 3, 1, 3, 0xe8]);
        bytes.extend([0; 1000]);
    }
    let refused = refused_by_server(&bytes, PATIENCE);
    assert!(refused.contains("more than 16384 bytes"), "{refused}");
}

#[test]
fn a_peer_that_sends_a_byte_now_and_then_is_given_up_in_time() {
    let ((near, far), (_, server)) = (sockets(), ends());
    let far = Connection::adopt(far).unwrap();
    let began = Instant::now();
    far.set_deadline(began + Duration::from_millis(300))
        .unwrap();
    let slow = thread::spawn(move || {
        // A record of 512 bytes that never ends, until it is refused.
        let beginning = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        for byte in beginning.iter().chain(std::iter::repeat(&0)) {
            if (&near).write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20)); // what is tested is slowness
        }
    });
    let refused = far.into_tls(Role::Server, &server).unwrap_err();
    assert!(
        matches!(&refused, TlsError::Io(error) if error.kind() == io::ErrorKind::TimedOut),
        "{refused}"
    );
    assert!(began.elapsed() < PATIENCE);
    slow.join().unwrap();
}

#[test]
fn a_lane_may_be_silent_once_it_is_established() {
    let ((near, far), (client, server)) = (sockets(), ends());
    let near = thread::spawn(move || connection(near).into_tls(Role::Client, &client));
    let far = Connection::adopt(far).unwrap();
    far.set_deadline(Instant::now() + Duration::from_millis(500))
        .unwrap();
    let far = far.into_tls(Role::Server, &server).unwrap();
    let near = near.join().unwrap().unwrap();
    let late = far.receive(&mut [0; 1]).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    far.established().unwrap();
    let waiting = thread::spawn(move || far.receive(&mut [0; 1]));
    near.send(b"!", b"").unwrap();
    waiting.join().unwrap().unwrap();
}
