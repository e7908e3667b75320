//! Calls for many messages: ten at a time, several at the same time.

use std::time::Duration;

use aws_sdk_sqs::{
    error::BuildError,
    types::{
        BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
        SendMessageBatchRequestEntry,
    },
};
use flare_core::{
    ErrorKind, Result,
    queue::{QueueName, Receipt},
};
use flare_toolkit::health::Backoff;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    MESSAGE_BYTES_MAX,
    failure::{Failure, Reason},
    service::Service,
};

/// Of one call.
pub(crate) const ENTRIES_MAX: usize = 10;
/// Calls at the same time.
const CALLS_MAX: usize = 8;
/// Of entries that SQS could not take for reasons of its own.
const ATTEMPTS_MAX: usize = 4;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Pushes texts.
pub(crate) async fn send(service: &Service, queue: &QueueName, texts: Vec<String>) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let url = &service.url(queue).await?;
    run(by_size(texts), |texts| async move {
        repeat(service, queue, texts, |texts| async move {
            let mut call = service.client.send_message_batch().queue_url(url);
            for (number, text) in texts.iter().enumerate() {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(text);
                call = call.entries(entry.build().map_err(|error| unbuilt(&error))?);
            }
            Ok(call.send().await.map_err(|error| Failure::of(&error))?.failed)
        })
        .await
    })
    .await
}

/// Settles messages: they are gone. A receipt that is not valid any more is no error, and nor is a queue that is gone.
pub(crate) async fn delete(service: &Service, queue: &QueueName, receipts: Vec<Receipt>) -> Result<()> {
    let Some(url) = &url_if_there(service, queue, &receipts).await? else { return Ok(()) };
    let deleted = run(by_count(receipts), |receipts| async move {
        repeat(service, queue, receipts, |receipts| async move {
            let mut call = service.client.delete_message_batch().queue_url(url);
            for (number, receipt) in receipts.iter().enumerate() {
                let entry =
                    DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(&*receipt.0);
                call = call.entries(entry.build().map_err(|error| unbuilt(&error))?);
            }
            let failed = call.send().await.map_err(|error| Failure::of(&error))?.failed;
            Ok(failed.into_iter().filter(|entry| !entry.sender_fault).collect())
        })
        .await
    });
    unless_missing(deleted.await)
}

/// Lets messages be invisible for so long from now on.
pub(crate) async fn hide(service: &Service, queue: &QueueName, receipts: Vec<Receipt>, time: Duration) -> Result<()> {
    let Some(url) = &url_if_there(service, queue, &receipts).await? else { return Ok(()) };
    let seconds = i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
    let hidden = run(by_count(receipts), |receipts| async move {
        repeat(service, queue, receipts, |receipts| async move {
            let mut call = service.client.change_message_visibility_batch().queue_url(url);
            for (number, receipt) in receipts.iter().enumerate() {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(number.to_string())
                    .receipt_handle(&*receipt.0)
                    .visibility_timeout(seconds);
                call = call.entries(entry.build().map_err(|error| unbuilt(&error))?);
            }
            let failed = call.send().await.map_err(|error| Failure::of(&error))?.failed;
            Ok(failed.into_iter().filter(|entry| !entry.sender_fault).collect())
        })
        .await
    });
    unless_missing(hidden.await)
}

async fn url_if_there(service: &Service, queue: &QueueName, receipts: &[Receipt]) -> Result<Option<String>> {
    if receipts.is_empty() {
        return Ok(None);
    }
    match service.url(queue).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn unless_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Makes calls for all batches, some at the same time.
async fn run<T, F: Future<Output = Result<()>>>(batches: Vec<Vec<T>>, call: impl Fn(Vec<T>) -> F) -> Result<()> {
    stream::iter(batches).map(call).buffer_unordered(CALLS_MAX).try_collect().await
}

/// Makes a call, and repeats it for those entries that failed for reasons of the service.
async fn repeat<T, F>(
    service: &Service,
    queue: &QueueName,
    mut entries: Vec<T>,
    call: impl Fn(Vec<T>) -> F,
) -> Result<()>
where
    T: Clone,
    F: Future<Output = Result<Vec<BatchResultErrorEntry>, Failure>>,
{
    let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
    for attempt in 1.. {
        let failed = call(entries.clone()).await.map_err(|failure| service.explain(queue, failure))?;
        let Some(first) = failed.iter().find(|entry| entry.sender_fault).or(failed.first()) else { return Ok(()) };
        if first.sender_fault || attempt == ATTEMPTS_MAX {
            let reason = if first.sender_fault { Reason::Wrong } else { Reason::Away };
            let text = format!("{} of a message: {}", first.code, first.message.as_deref().unwrap_or_default());
            return Err(service.explain(queue, Failure::new(reason, text)));
        }
        let numbers = failed.iter().filter_map(|entry| entry.id.parse::<usize>().ok());
        entries = numbers.filter_map(|number| entries.get(number).cloned()).collect();
        tokio::time::sleep(backoff.next(chance())).await;
    }
    Ok(())
}

fn unbuilt(error: &BuildError) -> Failure {
    Failure::new(Reason::Wrong, error.to_string())
}

fn by_count<T>(entries: Vec<T>) -> Vec<Vec<T>> {
    let mut batches = Vec::with_capacity(entries.len().div_ceil(ENTRIES_MAX));
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        batches.push(entries.by_ref().take(ENTRIES_MAX).collect());
    }
    batches
}

/// Batches that are not too long as a whole either.
fn by_size(texts: Vec<String>) -> Vec<Vec<String>> {
    let mut batches: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for text in texts {
        let fits = bytes + text.len() <= MESSAGE_BYTES_MAX;
        match batches.last_mut() {
            Some(batch) if fits && batch.len() < ENTRIES_MAX => {
                bytes += text.len();
                batch.push(text);
            }
            _ => {
                bytes = text.len();
                batches.push(vec![text]);
            }
        }
    }
    batches
}

/// A number between 0 and 1.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_ten_entries_and_no_more_bytes_than_sqs_takes() {
        let lengths = |texts: Vec<usize>| -> Vec<Vec<usize>> {
            let batches = by_size(texts.into_iter().map(|length| "a".repeat(length)).collect());
            batches.iter().map(|batch| batch.iter().map(String::len).collect()).collect()
        };
        let (max, half) = (MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX / 2);
        assert_eq!(lengths(vec![]), Vec::<Vec<usize>>::new());
        assert_eq!(lengths(vec![1; 23]), [vec![1; 10], vec![1; 10], vec![1; 3]]);
        assert_eq!(lengths(vec![half, half, 1]), [vec![half, half], vec![1]]);
        assert_eq!(lengths(vec![max, max, 1]), [vec![max], vec![max], vec![1]]);
        assert_eq!(by_count(vec![(); 11]).len(), 2);
    }
}
