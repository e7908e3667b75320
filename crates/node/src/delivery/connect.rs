//! Connections of deliveries: to addresses that the rule of [`Egress`] allows, and to no others.
//!
//! A name is resolved once per connection. What it resolves to is checked, and the connection is made to the addresses
//! that passed: a name that means something else a moment later (rebinding) gains nothing. An address in the URL itself
//! never comes to the resolver, so it is checked before. The rule does not change while the node runs, so a connection
//! in the pool is as good as when it was made.

use std::{
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    vec,
};

use async_trait::async_trait;
use flare_core::egress::{Egress, Transport};
use http::{Uri, uri::Scheme};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower_service::Service;

use crate::settings::Settings;

type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Where the addresses of a name come from.
#[async_trait]
pub(crate) trait Resolve: Send + Sync {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the system: its hosts file, its DNS.
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Makes TCP connections to what is allowed.
#[derive(Clone)]
pub(crate) struct GuardedConnector {
    egress: Arc<Egress>,
    /// A resolver is told a name only, so there is one for each scheme.
    plain: HttpConnector<GuardedResolver>,
    tls: HttpConnector<GuardedResolver>,
}

impl GuardedConnector {
    pub fn new(settings: &Settings, resolver: &Arc<dyn Resolve>) -> Self {
        let connector = |transport| {
            let (egress, resolver) = (settings.egress.clone(), resolver.clone());
            let mut tcp = HttpConnector::new_with_resolver(GuardedResolver { egress, transport, resolver });
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            tcp.set_connect_timeout(Some(settings.connect_timeout));
            tcp.set_keepalive(Some(settings.idle_timeout));
            tcp
        };
        Self { egress: settings.egress.clone(), plain: connector(Transport::Plain), tls: connector(Transport::Tls) }
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        ready!(self.plain.poll_ready(context))?;
        self.tls.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
        let transport = if is_tls { Transport::Tls } else { Transport::Plain };
        if let Err(refused) = self.egress.check_host(transport, uri.host().unwrap_or_default()) {
            return Box::pin(async { Err(refused.into()) });
        }
        let connecting = if is_tls { self.tls.call(uri) } else { self.plain.call(uri) };
        Box::pin(async { Ok(connecting.await?) })
    }
}

/// Gives only those addresses of a name that are allowed.
#[derive(Clone)]
struct GuardedResolver {
    egress: Arc<Egress>,
    transport: Transport,
    resolver: Arc<dyn Resolve>,
}

impl GuardedResolver {
    async fn resolve(self, host: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let mut allowed = Vec::new();
        let mut first_refused = None;
        for address in self.resolver.resolve(host).await? {
            match self.egress.check(self.transport, host, address) {
                // The connector puts in the port of the URL.
                Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                Err(refused) => first_refused = first_refused.or(Some(refused)),
            }
        }
        match first_refused {
            Some(refused) if allowed.is_empty() => Err(refused.into()),
            None if allowed.is_empty() => Err(format!("{host} has no addresses").into()),
            _ => Ok(allowed),
        }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { Ok(resolver.resolve(name.as_str()).await?.into_iter()) })
    }
}
