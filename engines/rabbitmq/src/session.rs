//! One connection to one broker.

use std::{io, net::Shutdown, sync::Arc};

use async_compat::CompatExt;
use flare_core::{Error, Result};
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties,
    uri::{AMQPScheme, AMQPUri},
};
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::{
    address::{self, Address},
    failure,
};

pub(crate) struct Session {
    pub connection: Connection,
    /// The broker, for people.
    pub server: String,
    breaker: Breaker,
}

/// Ends the connection for certain: the driver waits without end for a broker that says nothing, or has blocked it.
struct Breaker(std::net::TcpStream);

impl Drop for Breaker {
    fn drop(&mut self) {
        let _may_have_ended = self.0.shutdown(Shutdown::Both);
    }
}

impl Session {
    /// Connects to the broker; `purpose` tells its connections apart where people see them.
    pub async fn open(address: &Address, server: &AMQPUri, purpose: &str) -> Result<Self> {
        let name = address::name(server);
        match tokio::time::timeout(address.timeout, connect(address, server, purpose)).await {
            Ok(Ok((connection, breaker))) => Ok(Self { connection, server: name, breaker }),
            Ok(Err(error)) => Err(refused(&name, server, &error)),
            Err(_) => Err(Error::unavailable(format!("RabbitMQ at {name} does not answer"))),
        }
    }

    pub fn is_up(&self) -> bool {
        self.connection.status().connected()
    }

    /// Channels that the broker allows.
    pub fn channels_max(&self) -> usize {
        self.connection.configuration().channel_max().into()
    }

    pub async fn channel(&self) -> Result<Channel> {
        self.connection.create_channel().await.map_err(|error| {
            if error.is_amqp_error() {
                // The driver has run out of channels: the number of one that the broker has closed stays closed.
                self.cut();
            }
            failure::refusal(&self.server, &error)
        })
    }

    /// What was not acknowledged goes to others.
    pub async fn close(&self) {
        let _may_be_gone = self.connection.close(200, "closed".into()).await;
    }

    /// Ends it without a word.
    pub fn cut(&self) {
        let _may_have_ended = self.breaker.0.shutdown(Shutdown::Both);
    }
}

async fn connect(address: &Address, server: &AMQPUri, purpose: &str) -> lapin::Result<(Connection, Breaker)> {
    let host = server.authority.host.as_str();
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), server.authority.port)).await?;
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let breaker = Breaker(stream.try_clone()?);
    let stream = AsyncTcpStream::Plain(TcpStream::from_std(stream)?.compat());
    let stream = match server.scheme {
        AMQPScheme::AMQP => stream,
        AMQPScheme::AMQPS => stream.into_rustls(&address.tls, host).await?,
    };
    // The driver gets it once, and does not connect by itself.
    let handed_over = Arc::new(Mutex::new(Some(stream)));
    let hand_over = async move |_, _| {
        let stream = handed_over.lock().take();
        stream.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted).into())
    };
    let properties = ConnectionProperties::default()
        .with_client_property("product".into(), "Flare".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
        .with_connection_name(format!("flare {purpose}").into());
    let runtime = lapin::runtime::default_runtime()?;
    let connection = Connection::connector(server.clone(), runtime, hand_over, properties).await?;
    Ok((connection, breaker))
}

fn refused(name: &str, server: &AMQPUri, error: &lapin::Error) -> Error {
    let reason = failure::reason(error);
    let user = &server.authority.userinfo.username;
    let message = match error.kind() {
        lapin::ErrorKind::ProtocolError(_) => format!("RabbitMQ at {name} refuses the user {user}: {reason}"),
        _ => format!("RabbitMQ at {name} cannot be reached: {reason}"),
    };
    Error::unavailable(message)
}
