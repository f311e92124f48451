//! The story of a load, from files to a deployment.

use std::rc::Rc;

use plimsoll_model::spec::DeploymentSpec;

use crate::diagnostic::{Diagnostics, Findings};
use crate::fields::{self, Section};
use crate::interpolate::Variables;
use crate::keys::KeyReader;
use crate::service::ServiceContext;
use crate::yaml::YamlNode;
use crate::{
    ComposeSource, Files, LoadOptions, Loaded, check, declared, interpolate, merge, name, routes,
    service, yaml,
};

/// Reads files, the later laid over the earlier, as one deployment.
pub fn load(
    sources: &[ComposeSource],
    options: &LoadOptions,
    files: &dyn Files,
) -> Result<Loaded, Diagnostics> {
    let mut report = Findings::new();
    let deployment = deployment(&mut report, sources, options, files);
    let warnings = report.finish()?;
    let deployment = deployment.expect("a file that gives no deployment has an error");
    Ok(Loaded { deployment, warnings })
}

fn deployment(
    report: &mut Findings,
    sources: &[ComposeSource],
    options: &LoadOptions,
    files: &dyn Files,
) -> Option<DeploymentSpec> {
    let root = tree(report, sources, options)?;
    let top = root.as_mapping()?;
    fields::check(report, Section::Top, top);
    name::check_kind(report, top);
    let name = name::resolve(report, options, top, root.span);
    let declared = declared::read(report, top);
    let routes = routes::read(report, top);

    let services = KeyReader::of(report, top).mapping("services");
    let Some(services) = services.filter(|services| !services.entries().is_empty()) else {
        if report.errors() == 0 {
            report.error(root.span, "the file has no services");
        }
        return None;
    };
    let first = services.entries().first().map_or(root.span, |entry| entry.key_span);
    let mut context = ServiceContext::new(report, options, files, &declared);
    let drafts = service::read_all(&mut context, services);
    let report = context.report;
    check::anything(report, &drafts, first);
    let (services, routes) = check::whole(report, drafts, routes);
    Some(DeploymentSpec { name: name?, services, routes })
}

/// All files as one tree, variables filled in.
fn tree(
    report: &mut Findings,
    sources: &[ComposeSource],
    options: &LoadOptions,
) -> Option<Rc<YamlNode>> {
    if sources.is_empty() {
        report.refuse_file("compose.yaml", "there is no file to read", "name one with `-f`");
        return None;
    }
    let parsed: Vec<_> =
        sources.iter().map(|source| yaml::parse(report, &source.name, &source.text)).collect();
    let parsed = parsed.into_iter().collect::<Option<Vec<_>>>()?;

    let mut env = options.env.clone();
    let early = name::early(options, parsed.iter().map(Rc::as_ref));
    env.insert(name::VARIABLE.to_owned(), early);
    let mut variables = Variables::new(&env);
    let errors = report.errors();
    let filled: Vec<_> =
        parsed.iter().map(|root| interpolate::tree(report, root, &mut variables)).collect();
    // A value that could not be filled in would look wrong to its reader too.
    let all_filled = report.errors() == errors;
    let bounded = filled.iter().all(|root| yaml::within_bounds(report, root));
    if all_filled && bounded { merge::all(report, filled) } else { None }
}
