//! What one measured run says, and the median of several.

use serde::Serialize;

use crate::process::Usage;

#[derive(Debug, Default, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Accepted PUTs, while the generator ran.
    pub documents_per_second: Option<f64>,
    /// Until the last delivery arrived.
    pub deliveries_per_second: Option<f64>,
    /// From sent to received by the subscriber; to 202 where there is none.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// From sent to 202.
    pub accept_p50_ms: Option<f64>,
    pub accept_p99_ms: Option<f64>,
    /// Of the process under test, per delivery; per document where there are no deliveries.
    pub cpu_micros: Option<f64>,
    pub rss_bytes: Option<f64>,
    pub rss_bytes_max: Option<f64>,
    /// Written to disk per document.
    pub written_bytes: Option<f64>,
    pub errors: u64,
    pub coalesced: u64,
    pub repeated: u64,
    /// Share of the machine taken by other programs meanwhile.
    pub elsewhere: f64,
}

impl Sample {
    pub fn of_memory(usage: &Usage) -> Self {
        Self {
            rss_bytes: Some(usage.rss_bytes as f64),
            rss_bytes_max: Some(usage.rss_bytes_max as f64),
            ..Self::default()
        }
    }

    /// The median of each measure; counts of things that should not happen are added up.
    pub fn median(runs: &[Self]) -> Self {
        let of = |measure: fn(&Self) -> Option<f64>| median(runs.iter().filter_map(measure).collect());
        let sum = |count: fn(&Self) -> u64| runs.iter().map(count).sum();
        Self {
            documents_per_second: of(|run| run.documents_per_second),
            deliveries_per_second: of(|run| run.deliveries_per_second),
            p50_ms: of(|run| run.p50_ms),
            p99_ms: of(|run| run.p99_ms),
            max_ms: of(|run| run.max_ms),
            accept_p50_ms: of(|run| run.accept_p50_ms),
            accept_p99_ms: of(|run| run.accept_p99_ms),
            cpu_micros: of(|run| run.cpu_micros),
            rss_bytes: of(|run| run.rss_bytes),
            rss_bytes_max: of(|run| run.rss_bytes_max),
            written_bytes: of(|run| run.written_bytes),
            errors: sum(|run| run.errors),
            coalesced: sum(|run| run.coalesced),
            repeated: sum(|run| run.repeated),
            elsewhere: median(runs.iter().map(|run| run.elsewhere).collect()).unwrap_or(0.0),
        }
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(vec![4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }
}
