use expect_test::expect;

use super::*;
use crate::{ComposeSource, Disk, LoadOptions, load};

fn loaded(text: &str) -> crate::Loaded {
    let source = ComposeSource { name: "compose.yaml".to_owned(), text: text.as_bytes().to_vec() };
    let options = LoadOptions { default_name: "shop".to_owned(), ..LoadOptions::default() };
    load(&[source], &options, &Disk { root: ".".into() }).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn shown(text: &str) -> String {
    let found = routes_from_labels(&loaded(text).deployment);
    format!("{}{}", found.yaml(), found.unread.join("\n"))
}

#[test]
fn labels_of_containers_and_of_services_mean_routes() {
    let text = "\
services:
  web:
    image: nginx
    labels:
      - traefik.enable=true
      - traefik.http.routers.web.rule=Host(`shop.example`) || Host(`www.shop.example`)
      - traefik.http.routers.web.entrypoints=web
      - traefik.http.routers.web-secure.rule=Host(`shop.example`)
      - traefik.http.routers.web-secure.tls.certresolver=le
      - traefik.http.services.web.loadbalancer.server.port=8080
  api:
    image: api
    ports: ['9000:9000']
    deploy:
      labels:
        traefik.http.routers.api.rule: \"Host(`shop.example`) && (PathPrefix(`/api`) || PathPrefix(`/v2/`))\"
        traefik.http.routers.api.middlewares: strip@docker, other
        traefik.http.middlewares.strip.stripprefix.prefixes: /api
  off:
    image: x
    labels: {traefik.enable: 'false', traefik.http.routers.off.rule: 'Host(`off.example`)'}
";
    expect![[r"
        x-plimsoll:
          routes:
            - host: shop.example
              path: /api
              strip_path: true
              service: api
              port: 9000
            - host: shop.example
              path: /v2
              service: api
              port: 9000
            - host: shop.example
              service: web
              port: 8080
              tls: auto
            - host: www.shop.example
              service: web
              port: 8080
    "]]
    .assert_eq(&shown(text));
}

#[test]
fn what_has_no_equal_is_named() {
    let text = "\
services:
  web:
    image: nginx
    labels:
      traefik.http.routers.a.rule: 'Host(`a`) && Headers(`X`, `y`)'
      traefik.http.routers.b.rule: '!Host(`a`)'
      traefik.http.routers.c.rule: 'HostRegexp(`.+`)'
      traefik.http.routers.d.rule: 'Host(`a`'
      traefik.http.routers.e.rule: 'Host(`e`)'
";
    expect![[r"
        x-plimsoll:
          routes:
        web: router a: Headers has no equal in a route, in Host(`a`) && Headers(`X`, `y`)
        web: router b: `!` has no equal in a route, in !Host(`a`)
        web: router c: HostRegexp has no equal in a route, in HostRegexp(`.+`)
        web: router d: a parenthesis stays open, in Host(`a`
        web: router e: no port is named; set traefik.http.services.<name>.loadbalancer.server.port"]]
    .assert_eq(&shown(text));
}

#[test]
fn rules_read_as_they_are_written() {
    for (rule, ways) in [
        ("Host(`a`)", "a/"),
        ("Host(\"a\", `b`)", "a/ b/"),
        ("Host(`a`) && PathPrefix(`/x/`)", "a/x"),
        ("PathPrefix(`/`)", "*/"),
        ("(Host(`a`) || Host(`b`)) && (PathPrefix(`/x`)||PathPrefix(`/y`))", "a/x a/y b/x b/y"),
        ("Host(`a`) && Host(`b`)", "two hosts at once match nothing"),
        ("Host(`a`) Host(`b`)", "cannot read \"Host(`b`)\""),
        ("Host()", "expected a quote before \")\""),
        ("", "cannot read \"\""),
    ] {
        let shown = match rule::read(rule) {
            Ok(found) => {
                let way = |it: &Matched| {
                    let host = it.host.clone().unwrap_or_else(|| "*".to_owned());
                    format!("{host}{}", it.path.as_deref().unwrap_or("/"))
                };
                found.iter().map(way).collect::<Vec<_>>().join(" ")
            }
            Err(why) => why,
        };
        assert_eq!(shown, ways, "{rule}");
    }
}

#[test]
fn rules_that_multiply_or_nest_are_refused() {
    let many = "(Host(`a`)||Host(`b`)||Host(`c`))".to_owned()
        + &"&&(PathPrefix(`/a`)||PathPrefix(`/a`)||PathPrefix(`/a`))".repeat(5);
    assert_eq!(rule::read(&many), Err("it has too many alternatives".to_owned()));
    let deep = "(".repeat(10_000);
    assert_eq!(rule::read(&deep), Err("parentheses are nested too deeply".to_owned()));
}
