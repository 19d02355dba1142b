//! Leaderships: one row for each name that is or was led.
//!
//! The time is that of [`Clock`](crate::Clock): since the host's start, which nobody sets. A row of an
//! earlier start of the host has lapsed, since its holder did not survive that.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction as Sql, params};
use uuid::Uuid;

use super::commit::advance;
use super::database::{Database, Ends, signed, unsigned};
use crate::clock::Moment;
use crate::error::{Invalid, StoreError, Successor};
use crate::key::Name;
use crate::leadership::{Campaign, Generation, Holding, Leadership};
use crate::transaction::Fence;

/// A row as it is stored.
struct Lease {
    generation: Generation,
    holder: String,
    since: String,
    ttl: Duration,
    boot: String,
    until: Duration,
}

impl Lease {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            generation: Generation(unsigned(row.get(0)?)),
            holder: row.get(1)?,
            since: row.get(2)?,
            ttl: Duration::from_millis(unsigned(row.get(3)?)),
            boot: row.get(4)?,
            until: Duration::from_millis(unsigned(row.get(5)?)),
        })
    }

    fn holding(self, name: &Name, now: Moment) -> Result<Option<Holding>, StoreError> {
        let unreadable = |problem: String| StoreError::Unreadable {
            what: format!("the leadership of {name}"),
            problem: drover_types::in_short(problem),
        };
        let boot: Uuid = self
            .boot
            .parse()
            .map_err(|error: uuid::Error| unreadable(error.to_string()))?;
        let until = Moment {
            boot,
            up: self.until,
        };
        let Some(left) = now.until(until).filter(|left| !left.is_zero()) else {
            return Ok(None);
        };
        Ok(Some(Holding {
            name: name.clone(),
            holder: self
                .holder
                .parse()
                .map_err(|error: Invalid| unreadable(error.to_string()))?,
            generation: self.generation,
            since: self
                .since
                .parse()
                .map_err(|error: jiff::Error| unreadable(error.to_string()))?,
            ttl: self.ttl,
            renewed_ago: self.ttl.saturating_sub(left),
            left,
        }))
    }
}

fn holding(sql: &Sql<'_>, name: &Name, now: Moment) -> Result<Option<Holding>, Ends> {
    let lease = sql
        .prepare_cached(
            "SELECT generation, holder, since, ttl_ms, boot, until_ms FROM leadership WHERE name = ?1",
        )?
        .query_row([name.as_str()], Lease::from_row)
        .optional()?;
    match lease {
        Some(lease) => Ok(lease.holding(name, now)?),
        None => Ok(None),
    }
}

/// Refuses what carries another generation than the one that leads.
pub(super) fn check(sql: &Sql<'_>, fence: &Fence, now: Moment) -> Result<(), Ends> {
    let leads = holding(sql, &fence.name, now)?;
    if leads
        .as_ref()
        .is_some_and(|leads| leads.generation == fence.generation)
    {
        return Ok(());
    }
    Err(Ends::Refused(StoreError::Fenced {
        name: fence.name.clone(),
        generation: fence.generation,
        by: leads.map(|leads| Successor {
            generation: leads.generation,
            holder: leads.holder,
        }),
    }))
}

fn in_milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Database {
    pub fn campaign(
        &mut self,
        name: Name,
        holder: Name,
        ttl: Duration,
    ) -> Result<Campaign, StoreError> {
        self.write(|sql, clock| {
            let now = clock.now();
            if let Some(holding) = holding(sql, &name, now)? {
                return Ok(Campaign::Held(holding));
            }
            let generation = advance(sql)?.0;
            let until = Moment {
                boot: now.boot,
                up: now.up + ttl,
            };
            sql.prepare_cached(
                "INSERT OR REPLACE INTO leadership
                 (name, generation, holder, since, ttl_ms, boot, until_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                name.as_str(),
                signed(generation),
                holder.as_str(),
                Timestamp::now().to_string(),
                in_milliseconds(ttl),
                until.boot.to_string(),
                in_milliseconds(until.up),
            ])?;
            Ok(Campaign::Won(Leadership {
                name,
                holder,
                generation: Generation(generation),
                ttl,
                until,
                lease: 0,
            }))
        })
    }

    /// Gives until when it runs now.
    pub fn renew(&mut self, leadership: &Leadership) -> Result<Moment, StoreError> {
        self.write(|sql, clock| {
            let now = clock.now();
            check(sql, &leadership.fence(), now)?;
            let until = Moment {
                boot: now.boot,
                up: now.up + leadership.ttl,
            };
            sql.prepare_cached("UPDATE leadership SET until_ms = ?1 WHERE name = ?2")?
                .execute(params![in_milliseconds(until.up), leadership.name.as_str()])?;
            Ok(until)
        })
    }

    pub fn holding(&mut self, name: &Name) -> Result<Option<Holding>, StoreError> {
        let now = self.now();
        self.read(|sql| holding(sql, name, now))
    }

    /// Whether that generation still led.
    pub fn break_leadership(
        &mut self,
        name: &Name,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        self.write(|sql, clock| {
            let leads = holding(sql, name, clock.now())?;
            if leads.is_none_or(|leads| leads.generation != generation) {
                return Ok(false);
            }
            sql.prepare_cached("DELETE FROM leadership WHERE name = ?1")?
                .execute([name.as_str()])?;
            Ok(true)
        })
    }
}
