//! The dashboard: files of this program, for a browser. They hold nothing of the cell; what the page shows it asks the API for, with
//! a token that its user gives it and that it sends in a header, so that no other page can have a browser ask.

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, StatusCode, header::HeaderValue};

use super::answer::with_type;

/// Below which its files are.
pub(super) const PATH: &str = "/dashboard/";

pub(super) const ROUTE: &str = "/dashboard/{file}";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Nothing from elsewhere, nothing written into the page, and no page around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal $kind:expr;)*) => {
        &[$(($name, $kind, include_str!(concat!("../../dashboard/", $name)))),*]
    };
}

const FILES: &[(&str, &str, &str)] = files! {
    "api.js" JAVASCRIPT;
    "app.js" JAVASCRIPT;
    "cell.js" JAVASCRIPT;
    "dom.js" JAVASCRIPT;
    "hull.js" JAVASCRIPT;
    "icon.svg" SVG;
    "live.js" JAVASCRIPT;
    "pages.js" JAVASCRIPT;
    "plot.js" JAVASCRIPT;
    "style.css" CSS;
    "what_if.js" JAVASCRIPT;
};

/// Whether who asks would rather see a page than a text.
pub(super) fn is_browser(headers: &HeaderMap) -> bool {
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accepts.is_some_and(|accept| accept.contains("text/html"))
}

pub(super) fn index() -> Response {
    told(HTML, include_str!("../../dashboard/index.html"))
}

/// One of its files.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => told(kind, content),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn told(kind: &'static str, content: &'static str) -> Response {
    let mut response = with_type(kind, Body::from(content));
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // The next version of this program has other files under the same names.
        (CACHE_CONTROL, "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
