//! What a caller may ask of containers, by role: an admin anything, anybody else what is on the closed list of
//! [`plimsoll_model::privilege`]. What is applied says who asked for it, so that its node can hold it to that.

use std::sync::Arc;

use plimsoll_model::access::Role;
use plimsoll_model::privilege::Privilege;
use plimsoll_model::{RuntimeFacts, ServiceName, ServiceSpec, SpecHash, State};

use super::{Caller, Error, Services, files};

impl Caller {
    /// The services as they are written for this caller, or every field of them that the role may not set. A service that
    /// is as it was stays in the name of who asked for it: to apply a file again takes no role that others had, and
    /// recreates no container.
    pub(super) fn vouch(
        &self,
        state: &State,
        before: Option<&Services>,
        after: Services,
    ) -> Result<Services, Error> {
        let after = files::resolve(state, after)?;
        self.check_files(before, &after)?;
        let runtimes = runtimes(state);
        let mut fields = Vec::new();
        let mut vouched = Services::new();
        for (service, spec) in after {
            let known = before.and_then(|before| before.get(&service));
            if let Some(known) = known.filter(|known| self.keeps(known, &spec, &runtimes)) {
                vouched.insert(service, Arc::clone(known));
                continue;
            }
            if self.role < Role::Admin {
                let privileges = spec.container.privileges(&runtimes).into_iter();
                fields.extend(privileges.map(|privilege| (service.clone(), privilege)));
            }
            let asked_by = (self.role < Role::Admin).then_some(self.role);
            vouched.insert(service, in_the_name_of(asked_by, spec));
        }
        if fields.is_empty() {
            Ok(vouched)
        } else {
            Err(Error::Privileged { fields, role: self.role })
        }
    }

    /// Whether the service is what runs already. What no node takes any more in the name of somebody else, an admin's
    /// word lets run.
    fn keeps(
        &self,
        known: &ServiceSpec,
        spec: &Arc<ServiceSpec>,
        runtimes: &[&RuntimeFacts],
    ) -> bool {
        let is_same = *in_the_name_of(known.container.asked_by, Arc::clone(spec)) == *known;
        let can_run = || runtimes.iter().any(|runtime| known.container.lacking(runtime).is_none());
        is_same && (self.role < Role::Admin || known.container.asked_by.is_none() || can_run())
    }

    /// Refuses whoever is no admin to get into a container that reaches beyond itself.
    pub fn check_entry(
        &self,
        service: &ServiceName,
        spec: &ServiceSpec,
        state: &State,
    ) -> Result<(), Error> {
        // In the name of somebody else it was judged when it was applied, and its node holds it to that.
        if self.role >= Role::Admin || spec.container.asked_by.is_some() {
            return Ok(());
        }
        // Where an admin's symlinks lead nobody looked: of its binds none counts as below a root.
        let mut runtimes: Vec<RuntimeFacts> = runtimes(state).into_iter().cloned().collect();
        for runtime in &mut runtimes {
            runtime.bind_roots.clear();
        }
        let privileges = spec.container.privileges(&runtimes.iter().collect::<Vec<_>>());
        let fields: Vec<_> = privileges.into_iter().map(|it| (service.clone(), it)).collect();
        if fields.is_empty() { Ok(()) } else { Err(Error::Privileged { fields, role: self.role }) }
    }
}

fn runtimes(state: &State) -> Vec<&RuntimeFacts> {
    state.nodes().values().map(|node| &node.facts.runtime).collect()
}

fn in_the_name_of(asked_by: Option<Role>, mut spec: Arc<ServiceSpec>) -> Arc<ServiceSpec> {
    if spec.container.asked_by != asked_by {
        let changed = Arc::make_mut(&mut spec);
        changed.container.asked_by = asked_by;
        changed.hash = SpecHash::of(&changed.container);
    }
    spec
}

/// A line for each: the service, the field and its value, and what may be there instead.
pub(super) fn list(fields: &[(ServiceName, Privilege)]) -> String {
    let line = |(service, privilege): &(ServiceName, Privilege)| {
        format!("\n  {service}: {privilege} (role deploy: {})", privilege.field.allowed())
    };
    fields.iter().map(line).collect()
}
