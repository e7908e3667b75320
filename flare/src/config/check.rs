//! Checks that concern several keys at once, and warnings about choices that are allowed but surprising.

use std::fmt::Display;
use std::path::Path;

use super::document::Settings;
use super::problem::{Origin, Problem};
use super::{Config, RepositoryEngine, TaskEngine};

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
