//! From the configuration to the settings of node and API.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};

use flare_api::{ApiSettings, DeliveryBounds};
use flare_core::egress::Egress;
use flare_node::{Membership, Roles, Settings};

use super::{tls, whole};
use crate::{
    config::{Config, DeliveryTarget, Role},
    version::VERSION,
};

/// `listening` is the address that was bound. An error is a file that cannot be used.
pub fn node(config: &Config, listening: SocketAddr) -> anyhow::Result<Settings> {
    let delivery = &config.delivery;
    Ok(Settings {
        membership: membership(config, listening)?,
        follow_interval: config.repository.follow_interval.get(),
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
        egress: egress(config),
        tls: tls::client(delivery)?,
        grace: config.node.grace.get(),
        retention: config.domain.retention.get(),
        attempts_retention: delivery.attempts_retention.get(),
        dead_letters_retention: delivery.dead_letters_retention.get(),
        keep_bodies: delivery.keep_bodies,
        disable_after: delivery.disable_after.get(),
        sweep_interval: config.domain.sweep_interval.get(),
        resync_interval: config.domain.resync_interval.get(),
        tasks: super::queue::settings(config)?,
    })
}

fn membership(config: &Config, listening: SocketAddr) -> anyhow::Result<Membership> {
    let node = &config.node;
    let roles = Roles { api: node.roles.contains(&Role::Api), worker: node.roles.contains(&Role::Worker) };
    let address = match &*node.address {
        "" if config.http.addr.is_one() => format!("http://{listening}"),
        given => given.to_ascii_lowercase(),
    };
    Membership::new(roles, address, node.lease.get()).map_err(whole)
}

/// Who can call a server on loopback can call the rest of loopback too, so such a server may deliver there.
fn egress(config: &Config) -> Arc<Egress> {
    let targets = |entries: &[DeliveryTarget]| entries.iter().map(|entry| entry.get().clone()).collect();
    let (allow, deny) = (targets(&config.delivery.allow), targets(&config.delivery.deny));
    Arc::new(Egress::new(allow, deny, config.http.addr.is_loopback()))
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
        egress: egress(config),
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
