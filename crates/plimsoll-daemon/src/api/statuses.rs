//! The statuses that follow from how any request is let in, read and answered. A handler names those of its own subject (404,
//! 409, 422); the rest is added to the description here, so that no path lacks one.

use hyper::Method;
use plimsoll_model::access::Role;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr, Required, Response};

use super::auth::needed_role;
use super::connections::is_open;
use super::forward::RequestKind;

/// The way to say who asks, over the network.
const TOKEN: &str = "token";

/// Adds to each operation what it shares with others.
pub(super) fn describe(document: &mut OpenApi) {
    for (method, path, operation) in operations(document) {
        for status in shared(&method, &path, operation) {
            let responses = &mut operation.responses.responses;
            responses.entry(status.to_string()).or_insert_with(problem);
        }
        for (status, response) in &mut operation.responses.responses {
            if let RefOr::T(response) = response
                && response.description.is_empty()
            {
                let meaning = status.parse().map_or("", meaning);
                meaning.clone_into(&mut response.description);
            }
        }
        if method == Method::GET && is_of_the_cell(&path) {
            operation.parameters.get_or_insert_default().push(RefOr::T(consistent()));
        }
        if !is_open(&path) {
            // On the socket nothing is asked for: the kernel says who calls.
            let token = SecurityRequirement::new(TOKEN, [] as [&str; 0]);
            operation.security = Some(vec![token, SecurityRequirement::default()]);
        }
    }
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme(TOKEN, scheme);
}

/// Every operation with its method and path.
pub(super) fn operations(
    document: &mut OpenApi,
) -> impl Iterator<Item = (Method, String, &mut Operation)> {
    document.paths.paths.iter_mut().flat_map(|(path, item)| {
        let all = [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::DELETE, &mut item.delete),
        ];
        all.into_iter().filter_map(|(method, it)| Some((method, path.clone(), it.as_mut()?)))
    })
}

fn is_of_the_cell(path: &str) -> bool {
    path.starts_with("/v1/")
}

fn shared(method: &Method, path: &str, operation: &Operation) -> Vec<u16> {
    let has_body = operation.request_body.is_some();
    // A command is run also where nothing can be written: it fails with its node and its runtime only.
    let is_logged = is_of_the_cell(path) && RequestKind::of(path) != RequestKind::Exec;
    let statuses = [
        (400, true),
        (401, !is_open(path)),
        (403, needed_role(method, path) > Role::Read),
        (413, has_body && RequestKind::of(path) != RequestKind::Content),
        (426, is_logged),
        (500, is_of_the_cell(path)),
        (503, is_of_the_cell(path)),
        (507, is_logged),
    ];
    statuses.into_iter().filter(|(_, is_possible)| *is_possible).map(|(status, _)| status).collect()
}

fn problem() -> RefOr<Response> {
    let mut response = Response::new("");
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    response.content.insert("application/json".to_owned(), RefOr::T(content));
    RefOr::T(response)
}

/// What a status means wherever it is answered.
fn meaning(status: u16) -> &'static str {
    match status {
        200 => "Done",
        400 => "The path, the query, a header or the body cannot be read",
        401 => "The request has no token, or one that is not valid",
        403 => "The token's role does not allow it",
        404 => "Not found",
        409 => "The present state of the cell does not allow it",
        413 => "The body is too large",
        422 => "What is asked for is not valid",
        426 => "The node is too old for its cell",
        500 => "The node failed: its disk, its runtime, or a bug",
        503 => "Not available now: no leader, no quorum, a node or a runtime that does not answer",
        507 => "The disk is full",
        _ => "",
    }
}

fn consistent() -> Parameter {
    let mut parameter = Parameter::new("consistent");
    parameter.parameter_in = ParameterIn::Query;
    parameter.required = Required::False;
    parameter.description = Some("Answer with all that was written before, or fail".to_owned());
    parameter.schema = Some(RefOr::T(Object::with_type(Type::Boolean).into()));
    parameter
}
