//! Endpoints that deliveries can never reach, by the rule of the server, are refused when they are named: who makes a
//! subscription learns it at once, and not from failures. What depends on DNS is left to the deliveries.

use flare_core::{
    egress::{Egress, Transport},
    outlet::Endpoint,
    template::Template,
};
use http::uri::Authority;

use super::Refusal;

pub(crate) fn check(endpoint: &Endpoint, egress: &Egress) -> Result<(), Refusal> {
    check_url("endpoint.url", &endpoint.url, egress)?;
    for (action, different) in &endpoint.actions {
        if let Some(url) = &different.url {
            check_url(&format!("endpoint.actions.{}.url", action.as_str()), url, egress)?;
        }
    }
    Ok(())
}

/// Scheme and host of an endpoint have no wildcards, so they can be read from the template.
fn check_url(field: &str, url: &Template, egress: &Egress) -> Result<(), Refusal> {
    let Some((scheme, rest)) = url.as_str().split_once("://") else { return Ok(()) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Ok(authority) = authority.parse::<Authority>() else { return Ok(()) };
    let is_tls = scheme.eq_ignore_ascii_case("https");
    let transport = if is_tls { Transport::Tls } else { Transport::Plain };
    egress.check_host(transport, authority.host()).map_err(|refused| Refusal::because(field, refused))
}
