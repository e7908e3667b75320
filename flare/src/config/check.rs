//! Checks that concern several keys at once, and warnings about choices that are allowed but surprising.

use std::fmt::Display;
use std::path::Path;

use super::document::Settings;
use super::host::WebOrigin;
use super::problem::{Origin, Problem};
use super::{Config, RepositoryEngine, Role, TaskEngine};

/// Everything that is wrong between keys, each told where the key was set.
pub fn problems(config: &Config, settings: &Settings) -> Vec<Problem> {
    let mut check = Check { settings, problems: Vec::new() };
    let Config { http, delivery, repository, task, .. } = config;
    check.at_most("http.default-limit", http.default_limit, "http.limit-max", http.limit_max);
    check.at_most("delivery.timeout", delivery.timeout, "delivery.timeout-max", delivery.timeout_max);
    check.at_most("delivery.concurrency", delivery.concurrency, "delivery.concurrency-max", delivery.concurrency_max);
    check.at_most("delivery.ttl", delivery.ttl, "delivery.ttl-max", delivery.ttl_max);
    let is_given = |file: &Path| !file.as_os_str().is_empty();
    if is_given(&delivery.certificate) != is_given(&delivery.key) {
        check.refuse(
            &["delivery.certificate", "delivery.key"],
            "`delivery.certificate` and `delivery.key` go together; set both or none".to_owned(),
        );
    }
    if task.engine == TaskEngine::Memory && repository.engine != RepositoryEngine::Memory {
        check.refuse(
            &["task.engine", "repository.engine"],
            "`task.engine` \"memory\" would lose what the repository keeps; it goes only with `repository.engine` \
             \"memory\", otherwise choose \"repository\""
                .to_owned(),
        );
    }
    check.node(config);
    check.problems
}

/// What is allowed but may surprise.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if !config.http.addr.is_loopback() && config.security.tokens.is_empty() {
        warnings.push(format!(
            "http.addr {} can be reached from other machines but security.tokens is empty: requests from elsewhere than \
             this machine will be refused, unless they have a token of `flare token create`",
            config.http.addr
        ));
    }
    if config.repository.engine == RepositoryEngine::Memory {
        warnings.push("repository.engine is \"memory\": nothing survives a restart".to_owned());
    }
    let node = &config.node;
    if config.repository.engine.is_shared() && node.address.is_empty() && !config.http.addr.is_one() {
        warnings.push(format!(
            "node.address is empty and cannot be told from http.addr {}: other nodes on the same data could not send \
             requests on to this one",
            config.http.addr
        ));
    }
    warnings
}

struct Check<'a> {
    settings: &'a Settings,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn at_most<T: PartialOrd + Display + Copy>(&mut self, key: &str, value: T, max_key: &str, max: T) {
        if value > max {
            let (value_from, max_from) = (self.from(key), self.from(max_key));
            self.refuse(
                &[key, max_key],
                format!("`{key}` is {value}{value_from}, more than `{max_key}`, which is {max}{max_from}"),
            );
        }
    }

    fn node(&mut self, config: &Config) {
        let (node, engine) = (&config.node, config.repository.engine);
        let has = |role| node.roles.contains(&role);
        let has_both = has(Role::Api) && has(Role::Worker);
        if node.roles.is_empty() {
            self.refuse(
                &["node.roles"],
                "`node.roles` is empty; write [\"api\", \"worker\"], or one of them".to_owned(),
            );
        } else if !engine.is_shared() && !has_both {
            self.refuse(
                &["node.roles", "repository.engine"],
                "`node.roles` must be [\"api\", \"worker\"] with this `repository.engine`, whose data one process has \
                 to itself; roles are divided among processes with \"postgres\", \"mongodb\" or \"cassandra\""
                    .to_owned(),
            );
        } else if !has(Role::Api) && node.address.is_empty() && !config.http.addr.is_one() {
            self.refuse(
                &["node.roles", "http.addr"],
                format!(
                    "`node.address` is missing: a node with only the role \"worker\" must be reached by others, and \
                     `http.addr` {} does not say where; set it to a URL such as \"http://10.0.0.7:8080\"",
                    config.http.addr
                ),
            );
        }
        if !node.address.is_empty()
            && let Err(reason) = node.address.parse::<WebOrigin>()
        {
            let reason =
                reason.replace("a web origin", "the URL of a node").replace("console.company.com", "10.0.0.7:8080");
            self.refuse(&["node.address"], format!("`node.address` has a wrong value: {reason}"));
        }
    }

    /// " (the default)" for a key that nobody set, so that the reader does not look for it.
    fn from(&self, key: &str) -> &'static str {
        if self.settings.contains_key(key) { "" } else { " (the default)" }
    }

    /// A problem at the place of the first of the keys that someone set.
    fn refuse(&mut self, keys: &[&str], message: String) {
        let origin = keys.iter().find_map(|key| self.settings.get(*key)).map(|setting| setting.origin.clone());
        self.problems.push(Problem { origin: origin.unwrap_or(Origin::Default), message });
    }
}
