//! Pulling from one queue.
//!
//! What SQS has handed out is invisible for a time, even if nobody reads the answer. So a call that fetches is never
//! dropped: it belongs to a task, and the pull waits for that. If the pull is dropped, the next one takes what the
//! task got; if there is no next one, it is given back. An idle queue has one long poll. Only when a call comes back
//! full, several fetch at the same time.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use aws_sdk_sqs::config::Config;
use bytes::Bytes;
use flare_core::{
    Error, Result,
    queue::{Message, QueueName, Receipt},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use crate::{
    batches::{self, ENTRIES_MAX},
    failure::Failure,
    service::{POLL_SECONDS_MAX, Service, timeouts},
};

pub(crate) struct Line {
    service: Arc<Service>,
    queue: QueueName,
    receives_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Fetched, and not handed to a pull yet.
    ready: VecDeque<Message>,
    /// Pulls that wait.
    waiting: usize,
    /// The fetch that is under way.
    fetch: Option<watch::Receiver<Option<Result<()>>>>,
    /// The last fetch left more behind.
    is_busy: bool,
}

impl Line {
    pub fn new(service: Arc<Service>, queue: QueueName, receives_max: usize) -> Arc<Self> {
        Arc::new(Self { service, queue, receives_max, state: Mutex::default() })
    }

    pub async fn pull(self: &Arc<Self>, max: usize, wait: Duration) -> Result<Vec<Message>> {
        let until = Instant::now() + wait;
        let _waiting = Waiting::new(self);
        let mut is_first = true;
        loop {
            let messages = self.state.lock().take(max);
            let left = until.saturating_duration_since(Instant::now());
            if !messages.is_empty() || max == 0 || (left.is_zero() && !is_first) {
                return Ok(messages);
            }
            is_first = false;
            let (mut fetch, is_ours) = self.fetch(max, left);
            let fetched = async {
                match fetch.wait_for(Option::is_some).await {
                    Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
                    Err(_) => Err(Error::unavailable("the queue was closed")),
                }
            };
            tokio::select! {
                outcome = fetched => outcome?,
                // Our own ends by itself, at a full second.
                () = tokio::time::sleep_until(until), if !is_ours => {}
                () = self.service.stop.cancelled() => return Err(Error::unavailable("the queue was closed")),
            }
        }
    }

    /// The fetch that is under way, or a new one.
    fn fetch(self: &Arc<Self>, max: usize, wait: Duration) -> (watch::Receiver<Option<Result<()>>>, bool) {
        let mut state = self.state.lock();
        if let Some(fetch) = &state.fetch {
            return (fetch.clone(), false);
        }
        let (done, fetch) = watch::channel(None);
        state.fetch = Some(fetch.clone());
        let (line, is_busy) = (self.clone(), state.is_busy);
        crate::spawn(self.service.calls.track_future(async move {
            let outcome = line.fetch_all(max, wait, is_busy).await;
            line.state.lock().fetch = None;
            done.send_replace(Some(outcome));
            line.give_back_if_nobody_waits().await;
        }));
        (fetch, true)
    }

    async fn fetch_all(&self, max: usize, wait: Duration, is_busy: bool) -> Result<()> {
        let url = self.service.url(&self.queue).await?;
        if is_busy && self.fetch_many(&url, max).await? > 0 {
            return Ok(());
        }
        let seconds = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).min(POLL_SECONDS_MAX);
        let count = self.receive(&url, max, seconds).await?;
        if count == ENTRIES_MAX && count < max {
            // What is there is enough to be content with.
            let _more = self.fetch_many(&url, max - count).await;
        }
        Ok(())
    }

    /// Fetches what is there, by several calls at the same time, until one of them comes back with less than it could
    /// hold.
    async fn fetch_many(&self, url: &str, max: usize) -> Result<usize> {
        let (mut asked, mut count, mut is_over) = (0, 0, false);
        let mut calls = FuturesUnordered::new();
        loop {
            while !is_over && asked < max && calls.len() < self.receives_max {
                let some = ENTRIES_MAX.min(max - asked);
                asked += some;
                calls.push(async move { (some, self.receive(url, some, 0).await) });
            }
            match calls.next().await {
                Some((some, Ok(came))) => {
                    count += came;
                    is_over |= came < some;
                }
                Some((_, Err(error))) if count == 0 && calls.is_empty() => return Err(error),
                Some((_, Err(_))) => is_over = true,
                None => break,
            }
        }
        self.state.lock().is_busy = !is_over;
        Ok(count)
    }

    /// One call. Says how many messages it brought.
    async fn receive(&self, url: &str, max: usize, seconds: u64) -> Result<usize> {
        let service = &self.service;
        let patience = timeouts(service.timeout + Duration::from_secs(seconds));
        let call = service
            .client
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(max.min(ENTRIES_MAX) as i32)
            .wait_time_seconds(seconds as i32)
            .visibility_timeout(i32::try_from(service.visibility.as_secs()).unwrap_or(i32::MAX))
            .customize()
            .config_override(Config::builder().timeout_config(patience));
        let answer = call.send().await.map_err(|error| service.explain(&self.queue, Failure::of(&error)))?;
        let messages: Vec<_> = answer.messages.unwrap_or_default().into_iter().filter_map(message).collect();
        let count = messages.len();
        self.state.lock().ready.extend(messages);
        Ok(count)
    }

    async fn give_back_if_nobody_waits(&self) {
        let receipts: Vec<_> = {
            let mut state = self.state.lock();
            if state.waiting > 0 || state.fetch.is_some() {
                return;
            }
            state.ready.drain(..).map(|message| message.receipt).collect()
        };
        // What SQS does not hear of comes again when its time is over.
        let _may_be_away = batches::hide(&self.service, &self.queue, receipts, Duration::ZERO).await;
    }
}

impl State {
    fn take(&mut self, max: usize) -> Vec<Message> {
        let count = max.min(self.ready.len());
        self.ready.drain(..count).collect()
    }
}

fn message(message: aws_sdk_sqs::types::Message) -> Option<Message> {
    Some(Message {
        body: Bytes::from(message.body.unwrap_or_default()),
        receipt: Receipt(message.receipt_handle?.into()),
    })
}

/// A pull that waits. With the last one, what was fetched for it is given back.
struct Waiting<'l> {
    line: &'l Arc<Line>,
}

impl<'l> Waiting<'l> {
    fn new(line: &'l Arc<Line>) -> Self {
        line.state.lock().waiting += 1;
        Self { line }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let is_left_over = {
            let mut state = self.line.state.lock();
            state.waiting -= 1;
            state.waiting == 0 && !state.ready.is_empty()
        };
        if is_left_over && tokio::runtime::Handle::try_current().is_ok() {
            let line = self.line.clone();
            let giving = async move { line.give_back_if_nobody_waits().await };
            crate::spawn(self.line.service.calls.track_future(giving));
        }
    }
}
