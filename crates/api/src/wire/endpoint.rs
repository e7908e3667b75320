//! Where a subscription's pushes go, on the wire.

use flare_core::{
    document::Action,
    outlet::{ActionOverride, Endpoint, Method},
    pattern::Pattern,
    template::Template,
    url::DocumentUrl,
};
use http::{HeaderName, HeaderValue, Uri};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Refusal, json, members::Members};

/// Names of headers, over all values of an endpoint or an action.
const HEADERS_MAX: usize = 64;
const HEADER_VALUES_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 16 << 10;

/// Headers that belong to the connection or that Flare sets itself.
const RESERVED: [&str; 12] = [
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-connection",
    "traceparent",
    "tracestate",
];
const RESERVED_PREFIXES: [&str; 2] = ["webhook-", "flare-"];

const ACTIONS: [Action; 3] = [Action::Create, Action::Update, Action::Delete];

/// Where pushes go.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Endpoint)]
pub(crate) struct NewEndpoint {
    /// An absolute http or https URL. Path and query may use the wildcards of the resource's endpoint.
    #[schema(
        max_length = 4096,
        pattern = "^[hH][tT][tT][pP][sS]?://[^/?#{}]+([/?][^#]*)?$",
        examples("https://api.company.com/wishlist/{id}")
    )]
    pub url: String,
    #[serde(default)]
    #[schema(schema_with = method_schema)]
    pub method: Option<String>,
    /// Headers of every push, each with its values.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Vec<String>>>)]
    pub headers: Option<Members<Vec<String>>>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub actions: Option<NewActions>,
    /// Ask the endpoint for its consent before the first delivery: the webhook handshake of CloudEvents (OPTIONS).
    pub handshake: Option<bool>,
}

/// What is different for an action.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EndpointActions)]
pub(crate) struct NewActions {
    #[serde(default, deserialize_with = "json::optional_object")]
    pub create: Option<NewAction>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub update: Option<NewAction>,
    #[serde(default, deserialize_with = "json::optional_object")]
    pub delete: Option<NewAction>,
}

/// What is different for an action; what is absent is as in the endpoint.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EndpointAction)]
pub(crate) struct NewAction {
    #[schema(max_length = 4096, pattern = "^[hH][tT][tT][pP][sS]?://[^/?#{}]+([/?][^#]*)?$")]
    pub url: Option<String>,
    #[serde(default)]
    #[schema(schema_with = method_schema)]
    pub method: Option<String>,
    /// They replace the common headers of the same name.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Vec<String>>>)]
    pub headers: Option<Members<Vec<String>>>,
}

impl NewEndpoint {
    pub fn into_domain(self, pattern: &Pattern) -> Result<Endpoint, Refusal> {
        let NewEndpoint { url, method, headers, actions, handshake } = self;
        let actions = match actions {
            Some(actions) => actions.into_domain(pattern)?,
            None => Vec::new(),
        };
        Ok(Endpoint {
            url: read_url("endpoint.url", &url, pattern)?,
            method: read_method("endpoint.method", method)?.unwrap_or(Method::Post),
            headers: read_headers("endpoint.headers", headers)?,
            actions,
            handshake: handshake.unwrap_or(false),
        })
    }
}

impl NewActions {
    fn into_domain(self, pattern: &Pattern) -> Result<Vec<(Action, ActionOverride)>, Refusal> {
        let mut overrides = Vec::new();
        for (action, given) in ACTIONS.into_iter().zip([self.create, self.update, self.delete]) {
            let Some(NewAction { url, method, headers }) = given else { continue };
            let place = format!("endpoint.actions.{}", action.as_str());
            let url = url.map(|url| read_url(&format!("{place}.url"), &url, pattern)).transpose()?;
            let method = read_method(&format!("{place}.method"), method)?;
            let headers = read_headers(&format!("{place}.headers"), headers)?;
            overrides.push((action, ActionOverride { url, method, headers }));
        }
        Ok(overrides)
    }
}

fn read_url(field: &str, text: &str, pattern: &Pattern) -> Result<Template, Refusal> {
    let template = Template::parse(text, pattern).map_err(|error| Refusal::because(field, error))?;
    check_origin(field, text)?;
    let sample = expand_sample(&template, pattern);
    let url = DocumentUrl::parse(&sample).map_err(|error| Refusal::because(field, error))?;
    url.as_str()
        .parse::<Uri>()
        .map_err(|error| Refusal::because(field, format_args!("{url} cannot be called: {error}")))?;
    Ok(template)
}

/// Where a push goes is fixed; wildcards only choose among the pages of one server.
fn check_origin(field: &str, text: &str) -> Result<(), Refusal> {
    let scheme = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"));
    let Some((_, rest)) = scheme else {
        return Err(Refusal::of(field, text, "an absolute URL that starts with http:// or https://"));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        // It may be a password, so the message leaves it out.
        return Err(Refusal(format!(
            "{field} has user information before the host: use an Authorization header instead"
        )));
    }
    if authority.contains(['{', '}']) {
        let allowed = "a URL whose host and port are literal: wildcards may stand in path and query only";
        return Err(Refusal::of(field, text, allowed));
    }
    Ok(())
}

/// The template as it would be for a document whose wildcards stand for something plain.
fn expand_sample(template: &Template, pattern: &Pattern) -> String {
    let segments = pattern.as_str().split('/').map(|segment| if segment.starts_with('{') { "x" } else { segment });
    let sample = segments.collect::<Vec<_>>().join("/");
    let url = DocumentUrl::parse(&sample).ok();
    let captures = url.as_ref().and_then(|url| pattern.capture(url));
    captures.map_or_else(|| template.as_str().to_owned(), |captures| template.expand(&captures).into_owned())
}

fn read_method(field: &str, text: Option<String>) -> Result<Option<Method>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    Method::parse(&text).map(Some).ok_or_else(|| Refusal::of(field, text, "get, post, put, patch or delete"))
}

fn read_headers(field: &str, headers: Option<Members<Vec<String>>>) -> Result<Vec<(String, Vec<String>)>, Refusal> {
    let Some(Members(headers)) = headers else { return Ok(Vec::new()) };
    if headers.len() > HEADERS_MAX {
        return Err(Refusal(format!("{field} has {} names, it may have at most {HEADERS_MAX}", headers.len())));
    }
    let mut bytes = 0;
    for (index, (name, values)) in headers.iter().enumerate() {
        check_header_name(field, name)?;
        if headers[..index].iter().any(|(before, _)| before.eq_ignore_ascii_case(name)) {
            return Err(Refusal(format!("{field} has {name:?} twice; case does not tell headers apart")));
        }
        check_header_values(&format!("{field}.{name}"), values)?;
        bytes += name.len() + values.iter().map(String::len).sum::<usize>();
    }
    if bytes > HEADERS_BYTES_MAX {
        return Err(Refusal(format!("{field} has {bytes} bytes, it may have at most {HEADERS_BYTES_MAX}")));
    }
    Ok(headers)
}

fn check_header_name(field: &str, name: &str) -> Result<(), Refusal> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| Refusal(format!("{field} has {:?}, which is not a header name", super::excerpt(name))))?;
    let lower = parsed.as_str();
    if RESERVED.contains(&lower) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(Refusal(format!("{field} has {name:?}, which only Flare may set")));
    }
    Ok(())
}

fn check_header_values(field: &str, values: &[String]) -> Result<(), Refusal> {
    if !(1..=HEADER_VALUES_MAX).contains(&values.len()) {
        let allowed = format!("an array of 1 to {HEADER_VALUES_MAX} strings");
        return Err(Refusal(format!("{field} has {} values, it must be {allowed}", values.len())));
    }
    // The value may be a password, so the message leaves it out.
    match values.iter().position(|value| HeaderValue::from_str(value).is_err()) {
        Some(index) => Err(Refusal(format!("{field}[{index}] has a character that cannot stand in a header"))),
        None => Ok(()),
    }
}

/// Where pushes go.
#[derive(Serialize, ToSchema)]
#[schema(as = EndpointShown)]
pub(crate) struct EndpointShown {
    pub url: String,
    #[schema(schema_with = method_shown_schema)]
    pub method: &'static str,
    #[schema(value_type = std::collections::BTreeMap<String, Vec<String>>)]
    pub headers: Members<Vec<String>>,
    /// What is different for an action.
    #[schema(value_type = std::collections::BTreeMap<String, ActionShown>)]
    pub actions: Members<ActionShown>,
    pub handshake: bool,
}

/// What is different for an action.
#[derive(Serialize, ToSchema)]
#[schema(as = EndpointActionShown)]
pub(crate) struct ActionShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = method_shown_schema)]
    pub method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = std::collections::BTreeMap<String, Vec<String>>)]
    pub headers: Option<Members<Vec<String>>>,
}

impl From<&Endpoint> for EndpointShown {
    fn from(endpoint: &Endpoint) -> Self {
        let actions = endpoint.actions.iter().map(|(action, different)| {
            let headers = (!different.headers.is_empty()).then(|| Members(different.headers.clone()));
            let shown = ActionShown {
                url: different.url.as_ref().map(|url| url.as_str().to_owned()),
                method: different.method.map(Method::as_str),
                headers,
            };
            (action.as_str().to_owned(), shown)
        });
        Self {
            url: endpoint.url.as_str().to_owned(),
            method: endpoint.method.as_str(),
            headers: Members(endpoint.headers.clone()),
            actions: Members(actions.collect()),
            handshake: endpoint.handshake,
        }
    }
}

fn method_schema() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("The method of a push; post if it is absent. Case does not matter."))
        .enum_values(Some(Method::ALL.map(|method| Some(method.as_str())).into_iter().chain([None])))
        .build()
}

fn method_shown_schema() -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Method::ALL.map(Method::as_str))).build()
}
