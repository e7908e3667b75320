//! A network that fails on request: a proxy between an engine and its server.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};

const CHUNK_BYTES: usize = 64 << 10;

/// What the network does with what passes through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    Passes,
    /// Each piece takes so long, in each direction.
    Delays(Duration),
    /// Nothing arrives, and nobody is told.
    Stalls,
    /// Requests arrive, answers do not: nobody knows what became of them.
    LosesAnswers,
    /// No connection can be made.
    Refuses,
}

/// Ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    /// Connections of an older generation are cut.
    generation: Arc<watch::Sender<u64>>,
}

impl Proxy {
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let network = watch::Sender::new(Network::Passes);
        let generation = Arc::new(watch::Sender::new(0));
        spawn(serve(listener, server.to_owned(), network.subscribe(), generation.clone()));
        Self { address, network, generation }
    }

    /// Where to connect to instead of to the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the network for all connections. Answers that were lost do not come back: cut the connections before it
    /// passes again.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

async fn serve(
    listener: TcpListener,
    server: String,
    mut network: watch::Receiver<Network>,
    generation: Arc<watch::Sender<u64>>,
) {
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => continue,
            },
            gone = network.changed() => match gone {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        if *network.borrow() == Network::Refuses {
            continue;
        }
        let Ok(server) = TcpStream::connect(&server).await else { continue };
        let (network, mut generation) = (network.clone(), generation.subscribe());
        spawn(async move {
            generation.mark_unchanged();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::select! {
                () = pass(from_client, to_server, network.clone(), Direction::Request) => {}
                () = pass(from_server, to_client, network, Direction::Answer) => {}
                _ = generation.changed() => {}
            }
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// Passes on until one side ends.
async fn pass(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
    direction: Direction,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let Ok(length @ 1..) = from.read(&mut chunk).await else { return };
        if network.wait_for(|network| *network != Network::Stalls).await.is_err() {
            return;
        }
        let now = *network.borrow();
        match now {
            Network::LosesAnswers if direction == Direction::Answer => continue,
            Network::Refuses => return,
            Network::Delays(time) => tokio::time::sleep(time).await,
            _ => {}
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's network needs no supervisor")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every byte with the next one.
    async fn server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                spawn(async move {
                    while let Ok(byte) = connection.read_u8().await {
                        let _gone = connection.write_u8(byte + 1).await;
                    }
                });
            }
        });
        address
    }

    async fn ask(connection: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
        connection.write_u8(byte).await?;
        let answer = tokio::time::timeout(Duration::from_millis(200), connection.read_u8());
        answer.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }

    #[tokio::test]
    async fn the_network_fails_as_it_is_told_to() {
        let proxy = Proxy::start(&server().await).await;
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut connection, 1).await.unwrap(), 2);
        proxy.set(Network::Stalls);
        assert_eq!(ask(&mut connection, 3).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        proxy.set(Network::Passes);
        assert_eq!(connection.read_u8().await.unwrap(), 4);
        proxy.set(Network::LosesAnswers);
        assert_eq!(ask(&mut connection, 5).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        proxy.set(Network::Passes);
        proxy.cut();
        assert!(connection.read_u8().await.is_err());
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut connection, 7).await.unwrap(), 8);
        proxy.set(Network::Refuses);
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(ask(&mut refused, 9).await.is_err());
        assert!(ask(&mut connection, 9).await.is_err());
    }
}
