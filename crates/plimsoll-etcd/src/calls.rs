//! Questions about the cluster itself.

use std::time::Instant;

use crate::access::{Effect, EtcdClient, Want};
use crate::error::Error;
use crate::proto::alarm_request::AlarmAction;
use crate::proto::maintenance_client::MaintenanceClient;
use crate::proto::{AlarmRequest, AlarmType, StatusRequest};

/// How one member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberHealth {
    pub member: u64,
    pub version: String,
    /// The member that leads, as this one knows; none while they elect.
    pub leader: Option<u64>,
    pub size_bytes: u64,
    pub problems: Vec<String>,
}

/// Why etcd takes no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    NoSpace,
    Corrupt,
}

impl EtcdClient {
    /// Asks each member how it is.
    pub async fn status(&self) -> Vec<(String, Result<MemberHealth, Error>)> {
        let mut found = Vec::new();
        for (endpoint, channel) in self.members() {
            let want =
                Want { action: "ask for the status", effect: Effect::None, until: Instant::now() };
            let asked = async { MaintenanceClient::new(channel).status(StatusRequest {}).await };
            let health = match tokio::time::timeout(self.limit(), asked).await {
                Ok(Ok(answer)) => Ok(answer.into_inner()),
                Ok(Err(status)) => Err(self.failed(&want, &status).1),
                Err(_) => Err(Error::TimedOut { action: want.action, after: self.limit() }),
            };
            let health = health.map(|status| MemberHealth {
                member: status.header.map_or(0, |header| header.member_id),
                version: status.version,
                leader: (status.leader != 0).then_some(status.leader),
                size_bytes: u64::try_from(status.db_size).unwrap_or(0),
                problems: status.errors,
            });
            found.push((endpoint.to_owned(), health));
        }
        found
    }

    /// The alarms that are raised, each with its member.
    pub async fn alarms(&self) -> Result<Vec<(u64, Alarm)>, Error> {
        let ask = AlarmRequest { action: AlarmAction::Get.into(), ..AlarmRequest::default() };
        let asked = self.call("ask for alarms", Effect::None, ask, |channel, request| {
            Box::pin(async move { MaintenanceClient::new(channel).alarm(request).await })
        });
        let alarms = asked.await?.alarms.into_iter().filter_map(|raised| {
            let alarm = match raised.alarm() {
                AlarmType::Nospace => Alarm::NoSpace,
                AlarmType::Corrupt => Alarm::Corrupt,
                AlarmType::None => return None,
            };
            Some((raised.member_id, alarm))
        });
        Ok(alarms.collect())
    }

    /// Takes an alarm back: etcd writes again, until it finds cause anew.
    pub async fn disarm(&self, member: u64, alarm: Alarm) -> Result<(), Error> {
        let alarm = match alarm {
            Alarm::NoSpace => AlarmType::Nospace,
            Alarm::Corrupt => AlarmType::Corrupt,
        };
        let disarm = AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: member,
            alarm: alarm.into(),
        };
        let asked = self.call("disarm an alarm", Effect::Repeatable, disarm, |channel, request| {
            Box::pin(async move { MaintenanceClient::new(channel).alarm(request).await })
        });
        asked.await.map(drop)
    }
}
