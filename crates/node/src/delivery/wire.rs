//! What is kept between the pushes to one outlet: keys that are costly to set up, and who agreed to a handshake.
//!
//! Most outlets need neither, and have none of this. A change of the outlet starts anew.

use std::sync::{Arc, OnceLock};

use flare_core::outlet::{Outlet, Scheme};
use http::{Request, Uri};
use http_body_util::Full;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    client::Client,
    handshake,
    signature::{Message, Signers},
};

#[derive(Default)]
pub(crate) struct Wire {
    signers: OnceLock<Signers>,
    asks: bool,
    /// Servers that agreed to deliveries: as many as the endpoint and its actions name.
    agreed: Mutex<Vec<String>>,
    /// One question at a time; whoever waits finds the answer.
    asking: tokio::sync::Mutex<()>,
}

impl Wire {
    /// None if nothing is worth keeping.
    pub fn of(outlet: &Outlet) -> Option<Arc<Self>> {
        let previous = outlet.signing.previous.as_ref().map(|(secret, _)| secret);
        let has_pair =
            [Some(&outlet.signing.secret), previous].into_iter().flatten().any(|secret| secret.scheme() == Scheme::V1a);
        let asks = outlet.endpoint.handshake;
        (has_pair || asks).then(|| Arc::new(Self { asks, ..Self::default() }))
    }

    /// Signs with the keys of the outlet that this belongs to.
    pub fn sign(&self, outlet: &Outlet, message: &Message<'_>, now: Timestamp) -> Result<String, String> {
        if let Some(signers) = self.signers.get() {
            return Ok(signers.sign(message, now));
        }
        let made = Signers::of(&outlet.signing)?;
        Ok(self.signers.get_or_init(|| made).sign(message, now))
    }

    /// Whether the server of this URL has yet to be asked.
    pub fn must_ask(&self, url: &Uri) -> bool {
        self.asks && !self.agreed.lock().contains(&server(url))
    }

    /// Asks the server for its consent, unless it gave it meanwhile.
    pub async fn ask(
        &self,
        client: &Client,
        question: Request<Full<bytes::Bytes>>,
        origin: &str,
    ) -> Result<(), String> {
        let _one_at_a_time = self.asking.lock().await;
        let url = question.uri().clone();
        if !self.must_ask(&url) {
            return Ok(());
        }
        let answer = client.send(question).await.map_err(|reason| format!("the handshake failed: {reason}"))?;
        handshake::read_answer(answer.status, &answer.headers, origin)?;
        self.agreed.lock().push(server(&url));
        Ok(())
    }
}

/// Scheme, host and port.
fn server(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", url.scheme_str().unwrap_or_default()).to_ascii_lowercase()
}
