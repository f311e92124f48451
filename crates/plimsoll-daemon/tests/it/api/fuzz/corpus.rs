//! Requests that broke something once, or look as if they could: each is sent before any is made by chance.

/// An operation, the path it is sent to, and its body.
pub(super) const CORPUS: &[(&str, &str, &str)] = &[
    ("PUT /v1/deployments/{name}", "/v1/deployments/a", DEEP),
    ("PUT /v1/deployments/{name}", "/v1/deployments/a", LONG),
    ("PUT /v1/deployments/{name}", "/v1/deployments/a", r#"{"services":{},"services":{}}"#),
    (
        "PUT /v1/deployments/{name}",
        "/v1/deployments/a",
        r#"{"services":null,"revision":4294967296}"#,
    ),
    ("PUT /v1/deployments/{name}", "/v1/deployments/a", "{\"services\":{\"\\ud800\":{}}}"),
    (
        "POST /v1/deployments/{name}/scale",
        "/v1/deployments/shop/scale",
        r#"{"services":{"web":4294967295}}"#,
    ),
    (
        "POST /v1/deployments/{name}/scale",
        "/v1/deployments/shop/scale",
        r#"{"services":{"web":1e2}}"#,
    ),
    ("POST /v1/deployments/{name}/rollback", "/v1/deployments/shop/rollback", r#"{"to":0}"#),
    ("POST /v1/tokens/join", "/v1/tokens/join", r#"{"seconds":18446744073709551615}"#),
    (
        "POST /v1/operators",
        "/v1/operators",
        r#"{"name":"x","role":"admin","seconds":18446744073709551615}"#,
    ),
    (
        "POST /v1/fleet/quota",
        "/v1/fleet/quota",
        r#"{"machine_type":"","zone":"\u0000","shard":"..","slice":4294967295}"#,
    ),
    ("POST /v1/fleet/membership", "/v1/fleet/membership", r#"{"join":"plf_@@[::1]:99999"}"#),
    ("GET /v1/audit", "/v1/audit?limit=18446744073709551615&offset=18446744073709551615", ""),
    (
        "GET /v1/deployments",
        "/v1/deployments?limit=18446744073709551615&offset=18446744073709551615",
        "",
    ),
    ("GET /v1/watch", "/v1/watch?after=18446744073709551615", ""),
    (
        "GET /v1/deployments/{name}/logs",
        "/v1/deployments/shop/logs?since=-9999-01-01T00:00:00Z&tail=18446744073709551615",
        "",
    ),
    ("GET /v1/routes/explain", "/v1/routes/explain?host=%00&path=%2F..%2F", ""),
    (
        "GET /v1/deployments/{name}/revisions/{revision}",
        "/v1/deployments/shop/revisions/18446744073709551615",
        "",
    ),
];

/// Stand for what is too long to write down.
const DEEP: &str = "DEEP";
const LONG: &str = "LONG";

/// The body itself.
pub(super) fn filled(body: &str) -> String {
    match body {
        DEEP => format!("{{\"services\":{}", "[".repeat(100_000)),
        LONG => format!("{{\"services\":{{\"{}\":{{}}}}}}", "x".repeat(1 << 20)),
        body => body.to_owned(),
    }
}
