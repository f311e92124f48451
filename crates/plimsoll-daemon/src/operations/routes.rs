//! Whether routes can be honoured at all, and how they differ from those before. Where a route leads and whose it is, the
//! state itself checks.

use std::net::IpAddr;

use plimsoll_model::spec::{RouteSpec, Tls};

use super::{Error, Services};
use plimsoll_peer::pki;

/// The longest name that the name system has.
const MAX_HOST: usize = 253;

/// The longest prefix: what a request for it has at least as its first line.
const MAX_PATH: usize = 4_096;

/// A compose file was checked by its reader already; whoever speaks to the API by other means gets the same answers here.
pub(super) fn check(routes: &[RouteSpec], services: &Services) -> Result<(), Error> {
    for route in routes {
        let of_port = || {
            let spec = services.get(&route.service)?;
            spec.container.route_mistake(route).map(|mistake| mistake.to_string())
        };
        if let Some(why) = fault(route).map(str::to_owned).or_else(of_port) {
            return Err(Error::BadRoute { route: route.to_string(), why });
        }
    }
    Ok(())
}

fn fault(route: &RouteSpec) -> Option<&'static str> {
    let path = &route.path;
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    if !path.starts_with('/') || path.len() > MAX_PATH || !path.bytes().all(fits) {
        return Some("a path begins with / and has neither spaces nor ? nor #");
    }
    if route.port == 0 {
        return Some("no container listens on port 0");
    }
    let Some(host) = &route.host else {
        return (route.tls != Tls::Off).then_some("a certificate is for a host; name one");
    };
    if !is_host(host) {
        return Some("its host is not a name; write shop.example.org or *.example.org");
    }
    if pki::is_reserved(host) {
        return Some("names that end so are those of nodes");
    }
    let is_address = host.parse::<IpAddr>().is_ok();
    if route.tls == Tls::Auto && host.starts_with("*.") {
        return Some(
            "no ACME authority proves a wildcard over HTTP; name each host, or use tls: files",
        );
    }
    let is_issued = matches!(route.tls, Tls::Internal | Tls::Auto);
    (is_issued && is_address).then_some("a certificate is for a name")
}

/// Letters, digits, `-`, `_` and single dots; an asterisk only in place of the first word.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_word = |word: &str| !word.is_empty() && word.len() < 64 && word.bytes().all(fits);
    host.len() <= MAX_HOST && name.split('.').all(is_word)
}

/// A line for each route that came, went or leads elsewhere.
pub(super) fn changes(old: &[RouteSpec], new: &[RouteSpec]) -> Vec<String> {
    let gone = old.iter().filter(|it| !new.iter().any(|other| other.is_same_claim(it)));
    let gone = gone.map(|route| format!("- {}", line(route)));
    let came =
        new.iter().filter_map(|route| match old.iter().find(|other| other.is_same_claim(route)) {
            None => Some(format!("+ {}", line(route))),
            Some(before) if before != route => Some(format!("~ {}", line(route))),
            Some(_) => None,
        });
    gone.chain(came).collect()
}

fn line(route: &RouteSpec) -> String {
    let stripped = if route.strip_path { ", path stripped" } else { "" };
    let tls = match route.tls {
        Tls::Off => "",
        Tls::Internal => ", tls internal",
        Tls::Files => ", tls files",
        Tls::Auto => ", tls auto",
    };
    format!("{route} → {} port {}{stripped}{tls}", route.service, route.port)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_model::testkit::spread;
    use plimsoll_model::{ServiceName, ServiceSpec};

    use super::*;

    fn route(host: Option<&str>, path: &str, tls: Tls) -> RouteSpec {
        let (host, path) = (host.map(str::to_owned), path.to_owned());
        let service = ServiceName::new("web").unwrap();
        RouteSpec { host, path, strip_path: false, service, port: 80, tls }
    }

    #[test]
    fn a_route_that_could_never_be_served_is_refused_with_the_reason() {
        let off = Tls::Off;
        for (host, path, tls, is_fine) in [
            (None, "/", off, true),
            (Some("shop.example"), "/api/v1", Tls::Internal, true),
            (Some("*.shop.example."), "/", Tls::Files, true),
            (Some("10.0.0.1"), "/", off, true),
            (None, "api", off, false),
            (None, "/a b", off, false),
            (None, "/a?b", off, false),
            (None, "/", Tls::Internal, false),
            (Some("10.0.0.1"), "/", Tls::Internal, false),
            (Some("shop.example"), "/", Tls::Auto, true),
            (Some("*.shop.example"), "/", Tls::Auto, false),
            (Some("10.0.0.1"), "/", Tls::Auto, false),
            (None, "/", Tls::Auto, false),
            (Some("shop..example"), "/", off, false),
            (Some("*"), "/", off, false),
            (Some("a.*.example"), "/", off, false),
            (Some("http://shop.example"), "/", off, false),
            (Some("ash.blue.plimsoll.internal"), "/", off, false),
            (Some("*.Plimsoll.Internal"), "/", Tls::Internal, false),
        ] {
            let route = route(host, path, tls);
            assert_eq!(
                check(std::slice::from_ref(&route), &Services::new()).is_ok(),
                is_fine,
                "{route:?}"
            );
        }
        let refused =
            check(&[route(None, "/", Tls::Files)], &Services::new()).unwrap_err().to_string();
        assert_eq!(refused, "the route */ cannot be: a certificate is for a host; name one");
    }

    #[test]
    fn a_route_to_a_port_that_begins_with_an_address_is_refused() {
        let web = |spec: ServiceSpec| {
            Services::from([(ServiceName::new("web").unwrap(), Arc::new(spec))])
        };
        let to_80 = [route(None, "/", Tls::Off)];
        let other = web(spread(1).published(8080, 81).proxied());
        assert!(check(&to_80, &other).is_ok(), "another port");
        let refused = check(&to_80, &web(spread(1).published(8080, 80).proxied())).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the route */ cannot be: a route leads to port 80, which is published with proxy_protocol"
        );
    }

    #[test]
    fn routes_that_came_went_or_changed_are_said() {
        let old =
            [route(Some("a.example"), "/", Tls::Off), route(Some("b.example"), "/", Tls::Off)];
        let new = [route(Some("A.example"), "/", Tls::Internal), route(None, "/c", Tls::Off)];
        assert_eq!(
            changes(&old, &new),
            [
                "- b.example/ → web port 80",
                "~ a.example/ → web port 80, tls internal",
                "+ */c → web port 80"
            ]
        );
        assert_eq!(changes(&new, &new), [""; 0]);
    }
}
