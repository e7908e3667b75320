//! From the configuration to the settings of node and API.

use std::num::NonZeroU32;

use flare_api::{ApiSettings, DeliveryBounds};
use flare_node::Settings;

use crate::{config::Config, version::VERSION};

pub fn node(config: &Config) -> Settings {
    let delivery = &config.delivery;
    Settings {
        json_depth_max: config.http.json_depth_max,
        slots: config.domain.slots,
        requests_max: delivery.node_concurrency,
        slow_after: delivery.slow_after.get(),
        slow_requests_max: delivery.slow_max,
        connect_timeout: delivery.connect_timeout.get(),
        idle_timeout: delivery.idle_timeout.get(),
        response_bytes_max: delivery.response_body_max.as_usize(),
        retry_after_max: delivery.retry_after_max.get(),
        origin: delivery.origin.as_str().to_owned(),
        record_delay: delivery.record_delay.get(),
        retries_max: delivery.retries_max,
        tail_bytes_max: delivery.tail_max.as_usize(),
        grace: config.node.grace.get(),
        retention: config.domain.retention.get(),
        sweep_interval: config.domain.sweep_interval.get(),
    }
}

pub fn api(config: &Config) -> ApiSettings {
    let (http, security) = (&config.http, &config.security);
    ApiSettings {
        default_limit: http.default_limit,
        limit_max: http.limit_max,
        timeout: http.timeout.get(),
        read_timeout: http.read_timeout.get(),
        body_timeout: http.body_timeout.get(),
        body_bytes_max: http.body_max.as_usize(),
        batch_max: http.batch_max,
        batch_bytes_max: http.batch_body_max.as_usize(),
        header_bytes_max: http.header_max.as_usize(),
        url_bytes_max: http.url_max,
        json_depth_max: http.json_depth_max,
        connections_max: http.connections_max,
        idle_timeout: http.idle_timeout.get(),
        grace: config.node.grace.get(),
        tokens: security.tokens.iter().map(|token| *token.digest()).collect(),
        hosts: security.hosts.iter().map(|host| host.as_str().to_ascii_lowercase()).collect(),
        origins: security.origins.iter().map(|origin| origin.as_str().to_ascii_lowercase()).collect(),
        delivery: DeliveryBounds {
            timeout: config.delivery.timeout.get(),
            timeout_max: config.delivery.timeout_max.get(),
            concurrency: small(config.delivery.concurrency),
            concurrency_max: small(config.delivery.concurrency_max),
            rate_max: NonZeroU32::new(config.delivery.rate_max).unwrap_or(NonZeroU32::MIN),
            ttl: Some(config.delivery.ttl.get()).filter(|ttl| !ttl.is_zero()),
            ttl_max: config.delivery.ttl_max.get(),
        },
        version: VERSION.to_owned(),
        ..ApiSettings::default()
    }
}

/// More requests in flight than fit are as good as no limit.
fn small(concurrency: usize) -> u16 {
    u16::try_from(concurrency).unwrap_or(u16::MAX)
}
