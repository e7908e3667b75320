//! How an attempt ends, and what follows from it.

use std::time::Duration;

use flare_core::{
    DocumentNumber, Sequence,
    delivery::{DeadLetter, DeathCause},
    document::{Progress, Version},
    outlet::{Mode, Revisions},
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    Ending, Moment, OutletState, UNREAD_DELAY,
    active::{Flight, Waiting},
};
use crate::delivery::attempt::{Failed, Outcome, Sent};

impl OutletState {
    /// The attempt at a document has ended.
    pub fn finish(
        &mut self,
        number: DocumentNumber,
        outcome: Outcome,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) -> Ending {
        let landed = self.active.as_mut().and_then(|active| active.land(number));
        let Some(mut flight) = landed else { return Ending::Usual };
        match outcome {
            Outcome::Delivered(version) => {
                self.succeeded(moment.now, record);
                self.pass(number, flight, version, moment, record);
                Ending::Usual
            }
            Outcome::Discarded(version) => {
                self.pass(number, flight, version, moment, record);
                Ending::Usual
            }
            Outcome::UpToDate => {
                self.give_back_turn(&flight, record);
                self.settle(number, flight, None, moment, record);
                Ending::Usual
            }
            Outcome::Unread(_) => {
                let failed = flight.failed;
                self.put_off(number, flight, failed, UNREAD_DELAY, moment, record);
                Ending::Usual
            }
            Outcome::Returned { delay, shown } => {
                flight.saw(shown);
                let failed = flight.failed.saturating_add(1);
                self.put_off(number, flight, failed, delay, moment, record);
                Ending::Usual
            }
            Outcome::Expired(sent) => {
                self.give_back_turn(&flight, record);
                let failed = flight.failed;
                self.bury(number, &flight, failed, sent, DeathCause::Expired, "", moment, record);
                self.give_up(number, flight, sent, moment, record);
                Ending::GaveUp
            }
            Outcome::Failed(failure) => self.failed(number, flight, &failure, moment, record),
        }
    }

    /// The outlet is done with this version of the document. With every revision there may be a newer one to go on with.
    fn pass(
        &mut self,
        number: DocumentNumber,
        mut flight: Flight,
        version: Version,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        record(Progress::Version { outlet: self.outlet.id, number, version });
        if self.outlet.revisions == Revisions::All && flight.sequence.is_none_or(|newest| version.sequence < newest) {
            (flight.hinted, flight.noted) = (true, true);
            record(self.retry(number, &flight.url, 0, moment.clock));
        }
        self.settle(number, flight, Some(version), moment, record);
    }

    /// The revision is not tried any more. With every revision the outlet goes on with the next.
    fn give_up(
        &mut self,
        number: DocumentNumber,
        flight: Flight,
        sent: Option<Sent>,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        match sent.filter(|_| self.outlet.revisions == Revisions::All) {
            Some(sent) => self.pass(number, flight, sent.passed(), moment, record),
            None => self.settle(number, flight, None, moment, record),
        }
    }

    /// Nothing was sent: it does not count against the pace or the demand.
    fn give_back_turn(&mut self, flight: &Flight, record: &mut impl FnMut(Progress)) {
        if flight.leased {
            return;
        }
        if let Some(pace) = &mut self.pace {
            pace.give_back();
        }
        if self.outlet.mode == Mode::Passive {
            self.credit = self.credit.saturating_add(1);
            record(Progress::Demand { outlet: self.outlet.id, left: self.credit });
        }
    }

    fn succeeded(&mut self, now: Instant, record: &mut impl FnMut(Progress)) {
        if self.is_down() {
            self.active().make_all_due(now);
        }
        self.failures_in_a_row = 0;
        if self.failing_since.take().is_some() {
            record(Progress::Failing { outlet: self.outlet.id, since: None });
        }
    }

    /// The document needs no more attempts for the change that was sent.
    fn settle(
        &mut self,
        number: DocumentNumber,
        flight: Flight,
        version: Option<Version>,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        let outlet = self.outlet.id;
        let active = self.active();
        active.handled_flight(flight.sequence, flight.receipt);
        match flight.next {
            Some(next) if version.is_none_or(|version| version.sequence < next.sequence()) => {
                active.go_on_with(next, flight.noted, flight.shown, moment.now);
            }
            next => {
                if let Some(known) = next {
                    active.handled(known);
                }
                if flight.hinted {
                    active.wait(number, Waiting { url: flight.url, due: moment.now, failed: 0, shown: flight.shown });
                } else if flight.noted {
                    record(Progress::Settled { outlet, number });
                }
            }
        }
        self.rest_if_idle();
    }

    fn failed(
        &mut self,
        number: DocumentNumber,
        mut flight: Flight,
        failure: &Failed,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) -> Ending {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let failing_since = self.failing_since.unwrap_or(moment.clock);
        if self.failing_since.replace(failing_since).is_none() {
            record(Progress::Failing { outlet: self.outlet.id, since: Some(failing_since) });
        }
        let disable = self.reason_to_disable(failure, failing_since, moment.clock);
        let failed = flight.failed.saturating_add(1);
        flight.saw(failure.sent.map_or(Sequence::START, |sent| sent.sequence));
        if let Some(older) = flight.next.take_if(|next| next.sequence() <= flight.shown) {
            self.active().handled(older);
        }
        if !self.is_down()
            && self.outlet.revisions == Revisions::Last
            && disable.is_none()
            && failure.retry_after.is_none()
            && let Some(next) = flight.next.take()
        {
            // The newer change is a message of its own, with all its attempts.
            let active = self.active();
            active.handled_flight(flight.sequence, flight.receipt);
            if !flight.noted {
                active.tried.insert(number);
            }
            active.go_on_with(next, flight.noted, flight.shown, moment.now);
            return Ending::Usual;
        }
        match self.outlet.delivery.retry.delay(flight.failed, moment.jitter) {
            Some(delay) => {
                let delay = delay.max(failure.retry_after.unwrap_or_default());
                self.put_off(number, flight, failed, delay, moment, record);
            }
            // One that is disabled gets its chance when it is resumed.
            None if disable.is_some() => self.put_off(number, flight, failed, Duration::ZERO, moment, record),
            None => {
                self.bury(
                    number,
                    &flight,
                    failed,
                    failure.sent,
                    DeathCause::Exhausted,
                    &failure.reason,
                    moment,
                    record,
                );
                self.give_up(number, flight, failure.sent, moment, record);
                return Ending::GaveUp;
            }
        }
        disable.map_or(Ending::Usual, Ending::Disable)
    }

    fn reason_to_disable(&self, failure: &Failed, failing_since: Timestamp, clock: Timestamp) -> Option<String> {
        if failure.gone {
            return Some("the endpoint answered 410 Gone".into());
        }
        let longest = self.disable_after?;
        let failing = Duration::try_from(clock.duration_since(failing_since)).unwrap_or_default();
        (failing >= longest).then(|| format!("no delivery has succeeded since {failing_since}: {}", failure.reason))
    }

    /// Puts a revision among the dead letters.
    #[allow(clippy::too_many_arguments, reason = "they are the letter")]
    fn bury(
        &self,
        number: DocumentNumber,
        flight: &Flight,
        attempts: u32,
        sent: Option<Sent>,
        cause: DeathCause,
        detail: &str,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        let outlet = self.outlet.id;
        tracing::warn!(
            subscription = %outlet, document = %flight.url, attempts, cause = cause.as_str(), reason = detail,
            "gave up on a revision"
        );
        // Without it the document could not even be looked up: there is nothing to name.
        let Some(sent) = sent else { return };
        record(Progress::DeadLetter(DeadLetter {
            outlet,
            number,
            url: flight.url.clone(),
            sequence: sent.sequence,
            revision: sent.revision,
            attempts,
            cause,
            detail: detail.to_owned(),
            at: moment.clock,
        }));
    }

    /// Notes the document for another attempt; its changes count as handled from here on.
    fn put_off(
        &mut self,
        number: DocumentNumber,
        flight: Flight,
        failed: u32,
        delay: Duration,
        moment: Moment,
        record: &mut impl FnMut(Progress),
    ) {
        let due = moment.clock.checked_add(delay).unwrap_or(Timestamp::MAX);
        record(self.retry(number, &flight.url, failed, due));
        let active = self.active();
        active.handled_flight(flight.sequence, flight.receipt);
        if let Some(next) = flight.next {
            active.handled(next);
        }
        active.wait(number, Waiting { url: flight.url, due: moment.now + delay, failed, shown: flight.shown });
    }
}
