//! A port of one's own, also while nobody listens on it: a killed server gets its port back, and two runs of the
//! scenarios at once do not meet.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Outside of the ports that the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

pub(crate) struct Port {
    addr: SocketAddr,
    /// Locked as long as it is open.
    _lock: File,
}

impl Port {
    /// The first port that no other scenario has, and on which nobody listens.
    pub fn free() -> Self {
        let folder = std::env::temp_dir().join("flare-test-ports");
        fs::create_dir_all(&folder).unwrap();
        for port in PORTS {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let lock = File::create(folder.join(port.to_string())).unwrap();
            if lock.try_lock().is_ok() && TcpListener::bind(addr).is_ok() {
                return Self { addr, _lock: lock };
            }
        }
        panic!("no port of {PORTS:?} is free");
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}
