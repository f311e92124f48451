//! The story of a load, from files to a deployment.

use plimsoll_model::spec::DeploymentSpec;

use crate::diagnostic::{Diagnostics, Findings};
use crate::fields::{self, Section};
use crate::keys::KeyReader;
use crate::service::ServiceContext;
use crate::{
    ComposeSource, Files, LoadOptions, Loaded, assemble, check, declared, name, routes, service,
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
    let root = assemble::tree(report, sources, options, files)?;
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
