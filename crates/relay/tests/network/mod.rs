//! A network between two relays that loses connections.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each of the tests' programs uses its part"
)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards TCP connections; can cut them all, and turn new ones away.
pub struct Network {
    pub port: u16,
    connections: Arc<Mutex<Vec<[TcpStream; 2]>>>,
    pub down: Arc<AtomicBool>,
    /// One bit of what is forwarded next is to be flipped.
    pub damage: Arc<AtomicBool>,
}

impl Network {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let network = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            down: Arc::default(),
            damage: Arc::default(),
        };
        let (held, down) = (network.connections.clone(), network.down.clone());
        let damage = network.damage.clone();
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if down.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else {
                    return;
                };
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                for end in &both {
                    end.set_nodelay(true).unwrap();
                }
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                held.lock().unwrap().push(both);
                let (there, here) = (damage.clone(), Arc::default());
                thread::spawn(move || forward(&near, &far, &there));
                thread::spawn(move || forward(&back.0, &back.1, &here));
            }
        });
        network
    }

    fn cut(&self, connections: impl Iterator<Item = [TcpStream; 2]>) {
        for end in connections.flatten() {
            let _ = end.shutdown(Shutdown::Both); // it may be closed already
        }
    }

    pub fn cut_all(&self) {
        self.cut(self.connections.lock().unwrap().drain(..));
    }

    pub fn cut_one(&self, which: usize) {
        let mut held = self.connections.lock().unwrap();
        if !held.is_empty() {
            let index = which % held.len();
            self.cut(std::iter::once(held.remove(index)));
        }
    }
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, damage: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // Small ones may be headers alone, which have no checksum.
        if count > 8000 && damage.swap(false, Ordering::AcqRel) {
            bytes[count / 2] ^= 1;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
