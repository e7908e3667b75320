//! Where deliveries may go: entries of `delivery.allow` and `delivery.deny`.

use std::fmt;
use std::str::FromStr;

use flare_core::egress::{Target, TargetError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network, an address or a host name: `10.0.0.0/8`, `::1`, `hooks.internal`, `*.company.internal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("format" = "target"))]
pub struct DeliveryTarget(#[schemars(with = "String")] Target);

impl DeliveryTarget {
    /// The entry as the rule of deliveries takes it.
    pub fn get(&self) -> &Target {
        &self.0
    }
}

impl From<DeliveryTarget> for String {
    fn from(target: DeliveryTarget) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for DeliveryTarget {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

impl FromStr for DeliveryTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for DeliveryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
