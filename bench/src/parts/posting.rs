//! Posting what comes over a channel, with so many requests in flight.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use tokio::sync::{Mutex, mpsc};

use crate::parts::raw_client::{Client, client};

/// What is posted, and where it goes when it was taken.
pub struct Posting<T> {
    pub items: mpsc::Receiver<T>,
    pub content: fn(&T) -> Bytes,
    pub posted: Option<mpsc::Sender<T>>,
}

impl<T: Send + 'static> Posting<T> {
    pub fn start(self, target: &Uri, in_flight: usize) {
        let Self { items, content, posted } = self;
        let (items, client) = (Arc::new(Mutex::new(items)), client(in_flight));
        for _ in 0..in_flight {
            tokio::spawn(post_items(client.clone(), target.clone(), items.clone(), content, posted.clone()));
        }
    }
}

/// A document that cannot be posted is missed at the end of the run.
async fn post_items<T>(
    client: Client,
    target: Uri,
    items: Arc<Mutex<mpsc::Receiver<T>>>,
    content: fn(&T) -> Bytes,
    posted: Option<mpsc::Sender<T>>,
) {
    loop {
        let item = items.lock().await.recv().await;
        let Some(item) = item else { return };
        match (post(&client, target.clone(), content(&item)).await, &posted) {
            (Err(error), _) => eprintln!("post: {error:#}"),
            (Ok(_), Some(posted)) if posted.send(item).await.is_err() => return,
            (Ok(_), _) => {}
        }
    }
}

pub async fn post(client: &Client, target: Uri, body: Bytes) -> Result<StatusCode> {
    let request = Request::post(target).header(header::CONTENT_TYPE, "application/json").body(Full::new(body))?;
    let answer = client.request(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}
