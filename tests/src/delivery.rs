//! What a receiver got.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value as Json;

/// One request, as it arrived.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub at: Instant,
    /// Requests of one connection have the same number.
    pub connection: u64,
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The body, if it is an envelope.
    pub envelope: Option<Envelope>,
}

/// The body of a delivery.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The URL of the document.
    pub id: String,
    pub action: String,
    pub updated_at: String,
    pub revision: Json,
    #[serde(default)]
    pub data: Json,
    #[serde(default)]
    pub document: Json,
}

impl Delivery {
    #[track_caller]
    pub fn envelope(&self) -> &Envelope {
        self.envelope.as_ref().unwrap_or_else(|| panic!("not an envelope: {}", String::from_utf8_lossy(&self.body)))
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().unwrap()
    }
}

/// Everything that a receiver got, in the order of arrival.
#[derive(Default)]
pub struct Records {
    pub deliveries: Vec<Delivery>,
    /// The revisions of each document that arrived at each path.
    traces: HashMap<String, HashMap<String, Vec<i64>>>,
}

impl Records {
    pub(crate) fn add(&mut self, delivery: Delivery) {
        if let Some(envelope) = &delivery.envelope {
            let path = self.traces.entry(delivery.path.clone()).or_default();
            path.entry(envelope.id.clone()).or_default().push(revision(envelope));
        }
        self.deliveries.push(delivery);
    }

    /// What arrived at a path.
    pub fn at<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Delivery> {
        self.deliveries.iter().filter(move |delivery| delivery.path == path)
    }

    /// How many requests arrived at a path.
    pub fn count(&self, path: &str) -> usize {
        self.at(path).count()
    }

    /// How many documents arrived at a path.
    pub fn documents(&self, path: &str) -> usize {
        self.traces.get(path).map_or(0, HashMap::len)
    }

    /// The revisions of a document that arrived at a path, in order.
    pub fn revisions(&self, path: &str, url: &str) -> &[i64] {
        self.traces.get(path).and_then(|documents| documents.get(url)).map_or(&[], Vec::as_slice)
    }

    /// The newest revision of a document that arrived at a path.
    pub fn newest(&self, path: &str, url: &str) -> Option<i64> {
        self.revisions(path, url).last().copied()
    }

    /// The actions and revisions of a document that arrived at a path, in order.
    pub fn story(&self, path: &str, url: &str) -> Vec<(String, i64)> {
        let envelopes = self.at(path).filter_map(|delivery| delivery.envelope.as_ref());
        let own = envelopes.filter(|envelope| envelope.id == url);
        own.map(|envelope| (envelope.action.clone(), revision(envelope))).collect()
    }

    /// The documents of which an older revision arrived after a newer one.
    pub fn backwards(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (path, documents) in &self.traces {
            for (url, revisions) in documents {
                if let Some(step) = revisions.windows(2).find(|step| step[1] < step[0]) {
                    found.push(format!("{path}: {url} went from {} to {}", step[0], step[1]));
                }
            }
        }
        found
    }

    /// A few lines for the failure of a scenario.
    pub fn summary(&self) -> String {
        const PATHS_SHOWN: usize = 10;
        const DELIVERIES_SHOWN: usize = 20;
        let mut per_path = BTreeMap::<&str, usize>::new();
        for delivery in &self.deliveries {
            *per_path.entry(&delivery.path).or_default() += 1;
        }
        let mut text = format!("{} requests at {} paths\n", self.deliveries.len(), per_path.len());
        for (path, count) in per_path.iter().take(PATHS_SHOWN) {
            let _ = writeln!(text, "  {count:6} × {path} ({} documents)", self.documents(path));
        }
        let last = self.deliveries.len().saturating_sub(DELIVERIES_SHOWN);
        for delivery in &self.deliveries[last..] {
            let story = delivery.envelope.as_ref().map_or_else(String::new, |envelope| {
                format!("{} {} revision {}", envelope.action, envelope.id, envelope.revision)
            });
            let _ = writeln!(text, "  {} {} {story}", delivery.method, delivery.path);
        }
        text
    }
}

/// Scenarios use integer revisions.
fn revision(envelope: &Envelope) -> i64 {
    envelope.revision.as_i64().unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(revisions: &[i64]) -> Records {
        let mut records = Records::default();
        for revision in revisions {
            let body = format!(
                r#"{{"id":"http://api.test/1","action":"update","updatedAt":"2026-01-01T00:00:00Z","revision":{revision}}}"#
            );
            records.add(Delivery {
                at: Instant::now(),
                connection: 0,
                method: Method::POST,
                path: "/a".to_owned(),
                headers: HeaderMap::new(),
                envelope: serde_json::from_str(&body).ok(),
                body: body.into(),
            });
        }
        records
    }

    #[test]
    fn an_older_revision_after_a_newer_one_is_found_and_a_repeat_is_allowed() {
        assert!(records(&[1, 2, 2, 3, 7]).backwards().is_empty());
        assert_eq!(records(&[1, 3, 2, 4]).backwards(), ["/a: http://api.test/1 went from 3 to 2"]);
    }
}
