//! Whether the ports that a deployment publishes are to be had: every node listens on them, so a port is one service's
//! in the whole cell.

use std::net::IpAddr;

use super::deployments::Services;
use crate::command::Refusal;
use crate::ids::{DeploymentName, ServiceKey, ServiceName};
use crate::spec::{HostPort, Port, PortMode};
use crate::state::State;

/// Refuses ports that a service of another deployment has, or another of this one. What the deployment had before stays
/// as it is: a change of something else is not the time to take it away.
pub(super) fn check(
    state: &State,
    deployment: &DeploymentName,
    before: Option<&Services>,
    services: &Services,
) -> Result<(), Refusal> {
    for (name, port) in ports(services) {
        let had = before.into_iter().flat_map(ports).any(|it| it == (name, port));
        let holder = if had { None } else { holder(state, deployment, services, name, port) };
        if let (Some(by), Some(number)) = (holder, port.published) {
            let port = HostPort { number, protocol: port.protocol };
            return Err(Refusal::PortTaken { service: name.clone(), port, by });
        }
    }
    Ok(())
}

/// The service that has the port already.
fn holder(
    state: &State,
    deployment: &DeploymentName,
    services: &Services,
    name: &ServiceName,
    port: &Port,
) -> Option<ServiceKey> {
    let beside = ports(services).find(|(other, its)| *other < name && clash(its, port));
    let beside = beside.map(|(other, _)| ServiceKey::new(deployment.clone(), other.clone()));
    let others = state.services().iter().filter(|(key, _)| key.deployment != *deployment);
    let elsewhere = others.filter(|(_, service)| {
        let spec = service.desired();
        spec.is_some_and(|spec| spec.container.ports.iter().any(|its| clash(its, port)))
    });
    beside.or_else(|| elsewhere.map(|(key, _)| key.clone()).next())
}

fn ports(services: &Services) -> impl Iterator<Item = (&ServiceName, &Port)> {
    services.iter().flat_map(|(name, spec)| spec.container.ports.iter().map(move |it| (name, it)))
}

/// Whether two services cannot both have their port. Two that are bound beside a replica can: placement keeps them apart.
fn clash(one: &Port, other: &Port) -> bool {
    let is_routed = one.mode == PortMode::Routed || other.mode == PortMode::Routed;
    let is_same = one.published.is_some() && one.published == other.published;
    let meet = match (host(one), host(other)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    };
    is_routed && is_same && one.protocol == other.protocol && meet
}

/// The one address a port is bound to; none for all.
fn host(port: &Port) -> Option<IpAddr> {
    let address: Option<IpAddr> = port.host_ip.as_ref().and_then(|ip| ip.parse().ok());
    address.filter(|address| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spec::ServiceSpec;
    use crate::testkit::{cell, spread};

    fn at(mut spec: ServiceSpec, host: &str) -> ServiceSpec {
        spec.container.ports[0].host_ip = Some(host.to_owned());
        spec
    }

    fn services<const N: usize>(services: [(&str, ServiceSpec); N]) -> Services {
        services.map(|(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec))).into()
    }

    #[test]
    fn a_published_port_is_one_services_in_the_whole_cell() {
        let web = || spread(1).published(8080, 80);
        let taken =
            |by: &str| format!("service \"api\" publishes 8080/tcp, which {by} has already");
        let cases = vec![
            ("another's", web(), web(), Some(taken("shop/web"))),
            ("another number", web(), spread(1).published(8081, 80), None),
            (
                "beside a replica of another",
                spread(1).host_port(8080),
                web(),
                Some(taken("shop/web")),
            ),
            ("both beside replicas", spread(1).host_port(8080), spread(1).host_port(8080), None),
            ("on two addresses", at(web(), "10.0.0.1"), at(web(), "10.0.0.2"), None),
            (
                "on one of all addresses",
                at(web(), "0.0.0.0"),
                at(web(), "10.0.0.2"),
                Some(taken("shop/web")),
            ),
        ];
        for (case, other, asked, expected) in cases.into_boxed_slice() {
            let cell = cell().deploy("shop", [("web", other)]);
            let blog = DeploymentName::new("blog").unwrap();
            let asked = services([("api", asked)]);
            let refused = check(&cell.state, &blog, None, &asked).err();
            assert_eq!(refused.map(|error| error.to_string()), expected, "{case}");
        }
    }

    #[test]
    fn a_deployment_keeps_its_ports_and_gives_each_to_one_service() {
        let web = || spread(1).published(8080, 80);
        let cell = cell().deploy("blog", [("web", web())]);
        let shop = DeploymentName::new("shop").unwrap();
        let (one, two) = (services([("web", web())]), services([("api", web()), ("web", web())]));
        assert!(check(&cell.state, &shop, Some(&one), &one).is_ok(), "it had it before");
        assert!(check(&cell.state, &shop, None, &one).is_err(), "another has it by now");
        let alone = crate::testkit::cell();
        let refused = check(&alone.state, &shop, None, &two).unwrap_err().to_string();
        assert_eq!(refused, "service \"web\" publishes 8080/tcp, which shop/api has already");
        let gone = cell.undeploy("blog");
        assert!(check(&gone.state, &shop, None, &one).is_ok(), "what is deleted has none");
    }
}
