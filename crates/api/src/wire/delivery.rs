//! How hard Flare tries, on the wire.

use std::{num::NonZeroU32, time::Duration};

use flare_core::{
    outlet::DeliveryPolicy,
    retry::{BackoffFunction, RetryPolicy, RetrySettings},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Refusal, duration, json};
use crate::settings::DeliveryBounds;

const STATUSES_MAX: usize = 64;

/// How hard Flare tries.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Delivery)]
pub(crate) struct NewDelivery {
    #[schema(schema_with = success_schema)]
    pub success: Option<Vec<u64>>,
    #[schema(schema_with = discard_schema)]
    pub discard: Option<Vec<u64>>,
    /// How long the client has to answer: a whole number with `ms`, `s`, `m` or `h`.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("15s"))]
    pub timeout: Option<String>,
    /// Requests in flight at once.
    #[schema(minimum = 1)]
    pub concurrency: Option<u64>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub rate: Option<NewRate>,
    /// A revision that could not be delivered for so long goes to the dead letters: a whole number with `ms`, `s`, `m`
    /// or `h`.
    #[schema(pattern = "^[0-9]+(ms|s|m|h)$", examples("72h"))]
    pub ttl: Option<String>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub retry: Option<NewRetry>,
}

/// The client's pace.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Rate)]
pub(crate) struct NewRate {
    /// Requests started per second at most.
    #[schema(minimum = 1)]
    pub max_receives_per_second: u64,
}

/// When a failed delivery is tried again: the four phases of AWS SNS. Delays are in seconds.
#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Retry)]
pub(crate) struct NewRetry {
    #[schema(minimum = 1, maximum = 3600)]
    pub min_delay_target: Option<u32>,
    #[schema(minimum = 1, maximum = 3600)]
    pub max_delay_target: Option<u32>,
    /// All retries, those of the three phases below included.
    #[schema(minimum = 0, maximum = 100)]
    pub num_retries: Option<u32>,
    #[schema(minimum = 0, maximum = 100)]
    pub num_no_delay_retries: Option<u32>,
    #[schema(minimum = 0, maximum = 100)]
    pub num_min_delay_retries: Option<u32>,
    #[schema(minimum = 0, maximum = 100)]
    pub num_max_delay_retries: Option<u32>,
    #[serde(default)]
    #[schema(schema_with = backoff_schema)]
    pub backoff_function: Option<String>,
}

impl NewDelivery {
    pub fn into_domain(self, bounds: &DeliveryBounds) -> Result<DeliveryPolicy, Refusal> {
        let success = read_statuses("delivery.success", self.success)?;
        let discard = read_statuses("delivery.discard", self.discard)?;
        if let Some(both) = discard.iter().find(|status| success.contains(status)) {
            return Err(Refusal(format!("delivery.discard has {both}, which delivery.success has too")));
        }
        let timeout = match self.timeout {
            Some(text) => read_duration("delivery.timeout", &text, bounds.timeout_max)?,
            None => bounds.timeout,
        };
        let rate = self.rate.map(|rate| read_rate(rate.max_receives_per_second, bounds)).transpose()?;
        let ttl = match self.ttl {
            Some(text) => Some(read_duration("delivery.ttl", &text, bounds.ttl_max)?),
            None => bounds.ttl,
        };
        let concurrency = match self.concurrency {
            Some(number) => read_concurrency(number, bounds)?,
            None => bounds.concurrency,
        };
        let retry = self.retry.unwrap_or_default().into_domain()?;
        Ok(DeliveryPolicy { success, discard, timeout, concurrency, rate, ttl, retry })
    }
}

impl NewRetry {
    fn into_domain(self) -> Result<RetryPolicy, Refusal> {
        let default = RetrySettings::default();
        let because = |error| Refusal(format!("delivery.retry.{error}"));
        let backoff_function = match self.backoff_function {
            Some(name) => BackoffFunction::parse(&name).map_err(because)?,
            None => default.backoff_function,
        };
        RetryPolicy::new(RetrySettings {
            min_delay_target: self.min_delay_target.unwrap_or(default.min_delay_target),
            max_delay_target: self.max_delay_target.unwrap_or(default.max_delay_target),
            num_retries: self.num_retries.unwrap_or(default.num_retries),
            num_no_delay_retries: self.num_no_delay_retries.unwrap_or(default.num_no_delay_retries),
            num_min_delay_retries: self.num_min_delay_retries.unwrap_or(default.num_min_delay_retries),
            num_max_delay_retries: self.num_max_delay_retries.unwrap_or(default.num_max_delay_retries),
            backoff_function,
        })
        .map_err(because)
    }
}

fn read_statuses(field: &str, statuses: Option<Vec<u64>>) -> Result<Vec<u16>, Refusal> {
    let statuses = statuses.unwrap_or_default();
    if statuses.len() > STATUSES_MAX {
        return Err(Refusal(format!("{field} has {} codes, it may have at most {STATUSES_MAX}", statuses.len())));
    }
    let mut read: Vec<u16> = Vec::with_capacity(statuses.len());
    for (index, status) in statuses.into_iter().enumerate() {
        let status = u16::try_from(status)
            .ok()
            .filter(|status| (100..=599).contains(status))
            .ok_or_else(|| Refusal::of(&format!("{field}[{index}]"), status, "a status code from 100 to 599"))?;
        if !read.contains(&status) {
            read.push(status);
        }
    }
    Ok(read)
}

fn read_duration(field: &str, text: &str, max: Duration) -> Result<Duration, Refusal> {
    duration::parse(text).filter(|read| !read.is_zero() && *read <= max).ok_or_else(|| {
        let allowed = format!("a duration from \"1ms\" to \"{}\", such as \"15s\"", duration::format(max));
        Refusal::of(field, text, allowed)
    })
}

fn read_rate(number: u64, bounds: &DeliveryBounds) -> Result<NonZeroU32, Refusal> {
    let max = bounds.rate_max;
    u32::try_from(number)
        .ok()
        .and_then(NonZeroU32::new)
        .filter(|rate| *rate <= max)
        .ok_or_else(|| Refusal::of("delivery.rate.maxReceivesPerSecond", number, format_args!("from 1 to {max}")))
}

fn read_concurrency(number: u64, bounds: &DeliveryBounds) -> Result<u16, Refusal> {
    let max = bounds.concurrency_max;
    u16::try_from(number)
        .ok()
        .filter(|concurrency| (1..=max).contains(concurrency))
        .ok_or_else(|| Refusal::of("delivery.concurrency", number, format_args!("from 1 to {max}")))
}

/// How hard Flare tries.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryShown)]
pub(crate) struct DeliveryShown {
    /// Status codes that mean delivered; any 2xx if it is empty.
    pub success: Vec<u16>,
    /// Status codes that mean: give up on this revision, quietly.
    pub discard: Vec<u16>,
    #[schema(examples("15s"))]
    pub timeout: String,
    pub concurrency: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rate: Option<RateShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, examples("72h"))]
    pub ttl: Option<String>,
    pub retry: RetryShown,
}

/// The client's pace.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RateShown)]
pub(crate) struct RateShown {
    pub max_receives_per_second: u32,
}

/// When a failed delivery is tried again.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RetryShown)]
pub(crate) struct RetryShown {
    pub min_delay_target: u32,
    pub max_delay_target: u32,
    pub num_retries: u32,
    pub num_no_delay_retries: u32,
    pub num_min_delay_retries: u32,
    pub num_max_delay_retries: u32,
    pub backoff_function: &'static str,
}

impl From<&DeliveryPolicy> for DeliveryShown {
    fn from(policy: &DeliveryPolicy) -> Self {
        let retry = policy.retry.settings();
        Self {
            success: policy.success.clone(),
            discard: policy.discard.clone(),
            timeout: duration::format(policy.timeout),
            concurrency: policy.concurrency,
            rate: policy.rate.map(|rate| RateShown { max_receives_per_second: rate.get() }),
            ttl: policy.ttl.map(duration::format),
            retry: RetryShown {
                min_delay_target: retry.min_delay_target,
                max_delay_target: retry.max_delay_target,
                num_retries: retry.num_retries,
                num_no_delay_retries: retry.num_no_delay_retries,
                num_min_delay_retries: retry.num_min_delay_retries,
                num_max_delay_retries: retry.num_max_delay_retries,
                backoff_function: retry.backoff_function.as_str(),
            },
        }
    }
}

fn success_schema() -> utoipa::openapi::schema::Array {
    statuses_schema("Status codes that mean delivered; any 2xx if it is absent or empty.")
}

fn discard_schema() -> utoipa::openapi::schema::Array {
    statuses_schema("Status codes that mean: give up on this revision, quietly.")
}

fn statuses_schema(description: &str) -> utoipa::openapi::schema::Array {
    use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaType, Type};
    let status = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(100)).maximum(Some(599));
    ArrayBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Array, Type::Null]))
        .description(Some(description))
        .items(status)
        .max_items(Some(STATUSES_MAX))
        .build()
}

fn backoff_schema() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    let names = [
        BackoffFunction::Linear,
        BackoffFunction::Arithmetic,
        BackoffFunction::Geometric,
        BackoffFunction::Exponential,
    ];
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("How the delay grows from the minimum to the maximum."))
        .enum_values(Some(names.map(|function| Some(function.as_str())).into_iter().chain([None])))
        .build()
}
