//! What people ask of rollouts under way: pause, resume, abort.

use plimsoll_model::rollout::{RolloutHalt, RolloutPhase};
use plimsoll_model::{Change, DeploymentName, Guarded, ServiceKey, State};

use super::{Caller, Error, current, find_deployment, find_service};
use crate::context::NodeContext;
use plimsoll_api::view::{ChangeRollout, RolloutAction, RolloutChanged};

pub async fn change_rollout(
    cell: &NodeContext,
    caller: &Caller,
    name: &str,
    asked: &ChangeRollout,
) -> Result<RolloutChanged, Error> {
    let meant = cell.engine.machine().read(|state| meant(state, name, asked))?;
    let services = meant.iter().map(|key| key.service.to_string()).collect();
    let change = |service: ServiceKey| match asked.action {
        RolloutAction::Pause => Change::PauseRollout { service, why: RolloutHalt::Operator },
        RolloutAction::Resume => Change::ResumeRollout { service },
        RolloutAction::Abort => Change::AbortRollout { service, why: RolloutHalt::Operator },
    };
    let batch: Vec<Guarded> = meant.into_iter().map(|key| change(key).free()).collect();
    let index = caller.write(cell, batch).await?;
    Ok(RolloutChanged { services, index })
}

/// The services whose rollout is under way and can be changed in this manner.
fn meant(state: &State, name: &str, asked: &ChangeRollout) -> Result<Vec<ServiceKey>, Error> {
    let deployment = find_deployment(state, name)?;
    let services = current(state, &deployment).unwrap_or_default().1.services;
    if let Some(service) = &asked.service {
        let service = find_service(&deployment, &services, service)?;
        return Ok(vec![ServiceKey::new(deployment, service)]);
    }
    let keys = services.into_keys().map(|name| ServiceKey::new(deployment.clone(), name));
    let under_way: Vec<ServiceKey> =
        keys.filter(|key| can_change(state, key, asked.action)).collect();
    if under_way.is_empty() {
        return Err(none(deployment, asked.action));
    }
    Ok(under_way)
}

fn can_change(state: &State, key: &ServiceKey, action: RolloutAction) -> bool {
    let rollout = state.service(key).and_then(|service| service.row.rollout.as_ref());
    rollout.is_some_and(|rollout| match action {
        RolloutAction::Pause => rollout.phase == RolloutPhase::Rolling,
        RolloutAction::Resume => rollout.phase == RolloutPhase::Paused,
        RolloutAction::Abort => {
            matches!(rollout.phase, RolloutPhase::Rolling | RolloutPhase::Paused)
        }
    })
}

fn none(deployment: DeploymentName, action: RolloutAction) -> Error {
    let what = if action == RolloutAction::Resume { "paused" } else { "in progress" };
    Error::NoRollout { deployment, what }
}
