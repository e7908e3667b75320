//! Pushing messages: all that is pushed goes out at once, and each caller waits for the confirms of its own messages.
//!
//! A message to a queue that is not there comes back before it is confirmed. The driver hands what came back to
//! whichever confirm is next, also to one of another caller. So one task reads the confirms of a channel: when it has
//! read all that are ready, it knows of all that came back before them, and only then it answers.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use flare_core::{Error, Result, queue::QueueName};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, try_join_all},
    stream::FuturesUnordered,
};
use lapin::{
    BasicProperties, Channel, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{failure, link::Link, session::Session, spawn};

/// Channels; each is a process of the broker.
const CHANNELS: usize = 4;
/// Messages of one job.
const JOB_MESSAGES_MAX: usize = 512;
/// Jobs that wait for a channel; further callers wait for a place.
const JOBS_MAX: usize = 16;
/// Messages on their way on one channel.
const UNCONFIRMED_MAX: usize = 4096;
/// Messages on one channel that nobody waits for any more; past that, a new channel is opened.
const FORSAKEN_MAX: usize = UNCONFIRMED_MAX / 2;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const OPEN_AGAIN: Duration = Duration::from_millis(100);
/// How often to look again when nothing was ready: a look may end early, to let others work.
const MISSES_MAX: usize = 1;
const PERSISTENT: u8 = 2;

pub(crate) struct Publishers {
    link: Arc<Link>,
    channels: Vec<mpsc::Sender<Job>>,
}

/// Messages for one queue.
struct Job {
    queue: ShortString,
    messages: Vec<Bytes>,
    answer: oneshot::Sender<Result<()>>,
}

impl Publishers {
    pub fn start(link: &Arc<Link>) -> Self {
        let start = |_| {
            let (jobs, waiting) = mpsc::channel(JOBS_MAX);
            spawn(Publisher { link: link.clone(), jobs: waiting, left_over: None }.run());
            jobs
        };
        Self { link: link.clone(), channels: (0..CHANNELS).map(start).collect() }
    }

    pub async fn push(&self, queue: &QueueName, messages: Vec<Bytes>) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        queue.hash(&mut hasher);
        let jobs = &self.channels[hasher.finish() as usize % CHANNELS];
        let deadline = Instant::now() + self.link.timeout();
        let pushing = messages.chunks(JOB_MESSAGES_MAX).map(|part| self.publish(jobs, queue, part.to_vec(), deadline));
        try_join_all(pushing).await.map(drop)
    }

    async fn publish(
        &self,
        jobs: &mpsc::Sender<Job>,
        queue: &QueueName,
        messages: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<()> {
        self.link.session(deadline).await?;
        if !self.link.unblocked(deadline).await {
            return Err(self.link.unconfirmed(queue));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { queue: queue.as_str().into(), messages, answer };
        let late = |_| self.link.unconfirmed(queue);
        timeout_at(deadline, jobs.send(job)).await.map_err(late)?.map_err(|_| crate::closed())?;
        timeout_at(deadline, answered).await.map_err(late)?.map_err(|_| crate::closed())?
    }
}

/// What sends the jobs of one channel.
struct Publisher {
    link: Arc<Link>,
    jobs: mpsc::Receiver<Job>,
    /// A job that found its channel closed.
    left_over: Option<Job>,
}

impl Publisher {
    async fn run(mut self) {
        let ended = self.link.clone();
        let work = async {
            loop {
                let deadline = Instant::now() + self.link.timeout();
                let Ok(session) = self.link.session(deadline).await else { continue };
                match open(&session).await {
                    Ok(channel) => self.serve(&channel, &session.server).await,
                    Err(_) => tokio::time::sleep(OPEN_AGAIN).await,
                }
            }
        };
        // Not before: the driver fails to close a connection while one of its channels is given up.
        tokio::select! {
            () = ended.ended() => {}
            () = work => {}
        }
    }

    /// Publishes on the channel until it ends.
    async fn serve(&mut self, channel: &Channel, server: &str) {
        let mut blocked = self.link.watch_blocked();
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        let mut flight = Flight::new(channel, server);
        if let Some(job) = self.left_over.take() {
            flight.send(job);
        }
        loop {
            let has_room = flight.sent.len() < UNCONFIRMED_MAX && blocked.borrow_and_update().is_none();
            tokio::select! {
                Some(job) = self.jobs.recv(), if has_room => {
                    if !channel.status().connected() {
                        self.left_over = Some(job);
                        return flight.end("the connection was closed");
                    }
                    flight.send(job);
                }
                Some(first) = flight.sent.next() => {
                    if let Err(error) = flight.read(first) {
                        return flight.end(&failure::reason(&error));
                    }
                }
                _ = blocked.changed() => {}
                _ = look.tick() => {
                    if flight.callers.forsaken() > FORSAKEN_MAX {
                        return flight.end("messages are not confirmed");
                    }
                }
            }
        }
    }
}

async fn open(session: &Session) -> Result<Channel> {
    let channel = session.channel().await?;
    let confirming = channel.confirm_select(ConfirmSelectOptions::default()).await;
    confirming.map_err(|error| failure::refusal(&session.server, &error))?;
    Ok(channel)
}

type Confirmed = (u64, lapin::Result<Confirmation>);

/// What is on its way on one channel.
struct Flight<'a> {
    channel: &'a Channel,
    properties: BasicProperties,
    sent: FuturesUnordered<BoxFuture<'static, Confirmed>>,
    callers: Callers<'a>,
}

impl<'a> Flight<'a> {
    fn new(channel: &'a Channel, server: &'a str) -> Self {
        let properties =
            BasicProperties::default().with_content_type("application/json".into()).with_delivery_mode(PERSISTENT);
        let callers = Callers { server, number: 0, waiting: HashMap::new() };
        Self { channel, properties, sent: FuturesUnordered::new(), callers }
    }

    fn send(&mut self, job: Job) {
        if job.answer.is_closed() {
            return;
        }
        let Job { queue, messages, answer } = job;
        let number = self.callers.enter(queue.clone(), messages.len(), answer);
        for message in messages {
            self.sent.push(self.publish(number, queue.clone(), message));
        }
    }

    fn publish(&self, number: u64, queue: ShortString, message: Bytes) -> BoxFuture<'static, Confirmed> {
        let (channel, properties) = (self.channel.clone(), self.properties.clone());
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        async move {
            let published = channel.basic_publish("".into(), queue, options, &message, properties).await;
            match published {
                Ok(confirm) => (number, confirm.await),
                Err(error) => (number, Err(error)),
            }
        }
        .boxed()
    }

    /// Reads all confirms that are ready, then answers the jobs that are done.
    fn read(&mut self, first: Confirmed) -> lapin::Result<()> {
        let (mut next, mut misses) = (Some(first), 0);
        loop {
            match next {
                Some((number, outcome)) => {
                    self.callers.note(number, outcome?);
                    misses = 0;
                }
                None if misses == MISSES_MAX => break,
                None => misses += 1,
            }
            next = self.sent.next().now_or_never().flatten();
        }
        self.callers.answer();
        Ok(())
    }

    /// Nobody knows what became of the messages.
    fn end(self, reason: &str) {
        self.callers.refuse(reason);
    }
}

/// Who waits for confirms, by the number of the job.
struct Callers<'a> {
    server: &'a str,
    number: u64,
    waiting: HashMap<u64, Waiting>,
}

/// A job whose messages are on their way.
struct Waiting {
    queue: ShortString,
    answer: oneshot::Sender<Result<()>>,
    unconfirmed: usize,
    outcome: Result<()>,
}

impl Callers<'_> {
    fn enter(&mut self, queue: ShortString, messages: usize, answer: oneshot::Sender<Result<()>>) -> u64 {
        self.number += 1;
        self.waiting.insert(self.number, Waiting { queue, answer, unconfirmed: messages, outcome: Ok(()) });
        self.number
    }

    fn note(&mut self, number: u64, confirmation: Confirmation) {
        if let Some(waiting) = self.waiting.get_mut(&number) {
            waiting.unconfirmed -= 1;
            if confirmation.is_nack() && waiting.outcome.is_ok() {
                let text = format!("RabbitMQ at {} did not take messages for the queue {}", self.server, waiting.queue);
                waiting.outcome = Err(Error::unavailable(text));
            }
        }
        if let Some(returned) = confirmation.take_message() {
            let queue = &returned.delivery.routing_key;
            for waiting in self.waiting.values_mut().filter(|waiting| waiting.queue == *queue) {
                waiting.outcome = Err(Error::not_found(format!("there is no queue {queue}")));
            }
        }
    }

    /// Answers the jobs whose messages are all confirmed.
    fn answer(&mut self) {
        for (_, done) in self.waiting.extract_if(|_, waiting| waiting.unconfirmed == 0) {
            let _caller_may_be_gone = done.answer.send(done.outcome);
        }
    }

    fn refuse(self, reason: &str) {
        for waiting in self.waiting.into_values() {
            let text = format!("RabbitMQ at {} did not confirm messages: {reason}", self.server);
            let _caller_may_be_gone = waiting.answer.send(Err(Error::unavailable(text)));
        }
    }

    /// Messages that nobody waits for any more.
    fn forsaken(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.answer.is_closed()).map(|waiting| waiting.unconfirmed).sum()
    }
}

#[cfg(test)]
mod tests {
    use flare_core::ErrorKind;
    use lapin::message::{BasicReturnMessage, Delivery};

    use super::*;

    fn returned(queue: &str) -> Option<BasicReturnMessage> {
        let delivery = Delivery::mock(0, "".into(), queue.into(), false, Vec::new());
        Some(BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() })
    }

    fn kind(mut answered: oneshot::Receiver<Result<()>>) -> Option<ErrorKind> {
        answered.try_recv().expect("there is an answer").err().map(|error| error.kind())
    }

    /// Two callers, and what the driver makes of their confirms.
    fn check(confirms: Vec<(u64, Confirmation)>, there: Option<ErrorKind>, missing: Option<ErrorKind>) {
        let mut callers = Callers { server: "mq:5672", number: 0, waiting: HashMap::new() };
        let ((one, one_answered), (two, two_answered)) = (oneshot::channel(), oneshot::channel());
        assert_eq!(callers.enter("there".into(), 1, one), 1);
        assert_eq!(callers.enter("missing".into(), 1, two), 2);
        confirms.into_iter().for_each(|(number, confirmation)| callers.note(number, confirmation));
        callers.answer();
        assert_eq!((kind(one_answered), kind(two_answered)), (there, missing));
        assert!(callers.waiting.is_empty());
    }

    #[test]
    fn what_came_back_is_told_to_the_one_who_pushed_it_whoever_is_handed_it() {
        let not_found = Some(ErrorKind::NotFound);
        check(vec![(1, Confirmation::Ack(returned("missing"))), (2, Confirmation::Ack(None))], None, not_found);
        check(vec![(2, Confirmation::Ack(None)), (1, Confirmation::Ack(returned("missing")))], None, not_found);
        check(vec![(1, Confirmation::Ack(None)), (2, Confirmation::Ack(returned("missing")))], None, not_found);
    }

    #[test]
    fn what_the_broker_does_not_take_can_be_tried_again() {
        let unavailable = Some(ErrorKind::Unavailable);
        check(vec![(1, Confirmation::Nack(None)), (2, Confirmation::Ack(None))], unavailable, None);
    }
}
