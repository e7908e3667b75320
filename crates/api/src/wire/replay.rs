//! A replay on the wire.

use flare_core::{
    replay::Replay,
    revision::{JsonScalar, RevisionFormat},
    stream::Stream,
};
use flare_node::ReplayFrom;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{Refusal, document::RevisionValue, life::revision};

const PREFIX_BYTES_MAX: usize = 4096;

/// What is to be told again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "from": "all" }), json!({ "from": { "time": "2026-01-31T12:00:00Z" } })))]
pub(crate) struct NewReplay {
    #[schema(schema_with = from_schema)]
    pub from: Value,
    /// Only documents whose URL starts so.
    #[schema(max_length = 4096)]
    pub prefix: Option<String>,
}

impl NewReplay {
    pub fn into_domain(self, stream: &Stream) -> Result<(ReplayFrom, String), Refusal> {
        let prefix = self.prefix.unwrap_or_default();
        if prefix.len() > PREFIX_BYTES_MAX {
            let bytes = prefix.len();
            return Err(Refusal(format!("prefix has {bytes} bytes, it may have at most {PREFIX_BYTES_MAX}")));
        }
        Ok((read_from(&self.from, stream)?, prefix))
    }
}

fn read_from(from: &Value, stream: &Stream) -> Result<ReplayFrom, Refusal> {
    let allowed = "\"all\", {\"revision\": …} or {\"time\": \"2026-01-31T12:00:00Z\"}";
    let wrong = || Refusal(format!("from is {from}, it must be {allowed}"));
    if from == "all" {
        return Ok(ReplayFrom::Beginning);
    }
    let members = from.as_object().filter(|members| members.len() == 1).ok_or_else(wrong)?;
    if let Some(time) = members.get("time") {
        let time = time.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let time = time.ok_or_else(|| {
            Refusal(format!(
                "from.time is {}, it must be a time such as \
            \"2026-01-31T12:00:00Z\"",
                members["time"]
            ))
        })?;
        return Ok(ReplayFrom::Time(time));
    }
    let value = members.get("revision").ok_or_else(wrong)?;
    let scalar = scalar(value).ok_or_else(wrong)?;
    let format = &stream.change.format;
    // As the documents have it, or as Flare shows it.
    let shown = || RevisionFormat::Rfc3339.read(&scalar).ok().filter(|_| *format != RevisionFormat::Integer);
    match format.read(&scalar) {
        Ok(revision) => Ok(ReplayFrom::Revision(revision)),
        Err(error) => shown().map(ReplayFrom::Revision).ok_or_else(|| Refusal(format!("from.revision: {error}"))),
    }
}

fn scalar(value: &Value) -> Option<JsonScalar<'_>> {
    match value {
        Value::String(text) => Some(JsonScalar::Text(text)),
        Value::Number(number) => match number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)) {
            Some(integer) => Some(JsonScalar::Integer(integer)),
            None => number.as_f64().map(JsonScalar::Float),
        },
        Value::Bool(truth) => Some(JsonScalar::Bool(*truth)),
        Value::Null => Some(JsonScalar::Null),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// A replay under way.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayShown {
    /// Documents that are told again so far.
    pub documents: u64,
    /// How far it is in the changes of the server, and where it ends.
    pub position: u64,
    pub until: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = RevisionValue)]
    pub revision: Option<Box<RawValue>>,
    #[schema(format = "date-time")]
    pub started_at: String,
}

impl ReplayShown {
    pub fn of(replay: &Replay, stream: &Stream) -> Self {
        Self {
            documents: replay.documents,
            position: replay.position.0,
            until: replay.until.0,
            prefix: replay.prefix.clone(),
            revision: replay.revision.map(|least| revision(stream, least)),
            started_at: replay.started_at.to_string(),
        }
    }
}

fn from_schema() -> utoipa::openapi::schema::Schema {
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
    let all = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["all"]));
    let member = |name: &str, description: &str, format: Option<&str>| {
        let mut value = ObjectBuilder::new().description(Some(description));
        if let Some(format) = format {
            value = value
                .schema_type(Type::String)
                .format(Some(utoipa::openapi::schema::SchemaFormat::Custom(format.to_owned())));
        }
        ObjectBuilder::new().property(name, value).required(name)
    };
    Schema::OneOf(
        OneOfBuilder::new()
            .description(Some("Everything, or what has this revision or a newer one, or what changed since."))
            .item(all)
            .item(member("revision", "A revision as the documents have it.", None))
            .item(member("time", "A time.", Some("date-time")))
            .build(),
    )
}
