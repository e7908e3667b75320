//! The API as OpenAPI 3.1: collected from the routes and the wire shapes.
//!
//! What any request can be answered with is said here once, in sets that the operations name.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::{
    IntoResponses, Modify, OpenApi, ToSchema,
    openapi::{
        ContentBuilder, Ref, RefOr, Response, ResponseBuilder,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use crate::{
    error::ErrorAnswer,
    routes::{bulk, documents, life, overview, passive, replay, resources, secret, subscriptions, tokens},
    settings::ApiSettings,
    wire::duration,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Flare",
        description = "Services publish documents that change; Flare brings every subscriber up to date.\n\nErrors have \
                       one shape: `{\"error\": {\"code\", \"title\", \"detail\", \"requestId\"}}`. From the server's own \
                       machine no token is needed; from elsewhere, send `Authorization: Bearer <token>`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "resources", description = "Sets of documents that services publish."),
        (name = "subscriptions", description = "Clients of a resource: where, when and how they are told."),
        (name = "documents", description = "JSON documents, named by their URLs."),
        (name = "tokens", description = "Who may call from elsewhere, and what they may do. Needs the scope `admin`."),
        (name = "node", description = "What the node says about itself."),
    ),
    paths(
        resources::create, resources::list, resources::show, resources::delete,
        subscriptions::create, subscriptions::list, subscriptions::show, subscriptions::update, subscriptions::delete,
        life::pause, life::resume, life::test, life::lag, life::lag_documents, life::resync, life::attempts,
        life::dead_letters, life::replay_dead_letters, life::discard_dead_letters,
        replay::start, replay::show, replay::cancel,
        passive::demand, passive::add_demand, passive::pull, passive::ack, passive::nack, passive::extend,
        secret::rotate,
        documents::put, documents::show, documents::delete, documents::list, bulk::write,
        tokens::create, tokens::list, tokens::show, tokens::revoke,
        overview::root, overview::status, overview::health, overview::ready, overview::openapi, overview::docs,
    ),
    components(schemas(ErrorAnswer)),
    modifiers(&Finish),
)]
struct Page;

/// The page as it is served at `/openapi.json`, with the maxima of these settings.
pub fn openapi_json(settings: &ApiSettings) -> String {
    let mut page = serde_json::to_value(Page::openapi()).expect("the page is made of plain values");
    let paths = page["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(Value::as_object_mut).flat_map(|operations| operations.values_mut());
    let parameters = operations.filter_map(|operation| operation.get_mut("parameters")?.as_array_mut()).flatten();
    for parameter in parameters {
        // A parameter that need not be there is not one that may be null.
        if let Some(types) = parameter["schema"]["type"].as_array() {
            parameter["schema"]["type"] = types.first().cloned().unwrap_or_default();
        }
        // A pull has a limit of its own.
        if parameter["name"] == "limit" && parameter["schema"]["maximum"].is_null() {
            parameter["schema"]["maximum"] = settings.limit_max.into();
            parameter["schema"]["default"] = settings.default_limit.into();
        }
    }
    let delivery = &mut page["components"]["schemas"]["Delivery"]["properties"];
    delivery["concurrency"]["maximum"] = settings.delivery.concurrency_max.into();
    delivery["concurrency"]["default"] = settings.delivery.concurrency.into();
    delivery["timeout"]["default"] = duration::format(settings.delivery.timeout).into();
    let mut json = serde_json::to_string_pretty(&page).expect("a value can be written");
    json.push('\n');
    json
}

struct Finish;

impl Modify for Finish {
    fn modify(&self, page: &mut utoipa::openapi::OpenApi) {
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        page.components.get_or_insert_default().add_security_scheme("bearer", bearer);
        // Either nothing, from the server's own machine, or a token.
        let no_scopes: [&str; 0] = [];
        page.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("bearer", no_scopes)]);
    }
}

type Responses = BTreeMap<String, RefOr<Response>>;

/// What any request can be answered with.
pub(crate) struct Always;

impl IntoResponses for Always {
    fn responses() -> Responses {
        errors(&[
            (414, "The URL is too long"),
            (431, "The headers are too large"),
            (500, "A fault of Flare"),
            (503, "It cannot be done now; the detail says why"),
        ])
    }
}

/// What a request can be answered with when not everyone may make it.
pub(crate) struct Asked;

impl IntoResponses for Asked {
    fn responses() -> Responses {
        let own = errors(&[
            (401, "A token is needed"),
            (403, "The Host or the Origin is refused, or the token may not do this"),
            (421, "The node does not have the role `api`"),
        ]);
        with(own, Always::responses())
    }
}

/// What a request for one thing can be answered with.
pub(crate) struct Identified;

impl IntoResponses for Identified {
    fn responses() -> Responses {
        with(errors(&[(404, "It does not exist")]), Asked::responses())
    }
}

/// What the removal of a thing that others depend on can be answered with.
pub(crate) struct Removable;

impl IntoResponses for Removable {
    fn responses() -> Responses {
        with(errors(&[(409, "It still has subscriptions")]), Identified::responses())
    }
}

/// What a request for the list of a thing can be answered with.
pub(crate) struct Listed;

impl IntoResponses for Listed {
    fn responses() -> Responses {
        with(errors(&[(400, "A parameter is wrong")]), Identified::responses())
    }
}

/// What a request about a document can be answered with.
pub(crate) struct Named;

impl IntoResponses for Named {
    fn responses() -> Responses {
        let own = errors(&[
            (400, "The URL, a header or the body is wrong"),
            (404, "No resource matches the URL, or the document does not exist"),
        ]);
        with(own, Asked::responses())
    }
}

/// What a request whose body describes something can be answered with.
pub(crate) struct Described;

impl IntoResponses for Described {
    fn responses() -> Responses {
        let own = errors(&[
            (400, "The body is not JSON of the right shape, or a header is wrong"),
            (408, "The body came too slowly"),
            (413, "The body is too large"),
            (415, "The body has the wrong Content-Type"),
        ]);
        with(own, Asked::responses())
    }
}

fn errors(rows: &[(u16, &str)]) -> Responses {
    let row = |(status, description): &(u16, &str)| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorAnswer::name()))).build();
        let response = ResponseBuilder::new().description(*description).content("application/json", content).build();
        (status.to_string(), RefOr::T(response))
    };
    rows.iter().map(row).collect()
}

fn with(mut own: Responses, common: Responses) -> Responses {
    own.extend(common);
    own
}
