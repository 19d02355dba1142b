//! What is on disk of the orders to park one guest: `NAME.json` below `parked` in the agent's state directory.

use std::io;
use std::path::Path;
use std::time::Duration;

use drover_api::{ParkHow, ParkRequest};
use drover_types::{ParkId, VmName, in_short};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::registry::files;

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub id: ParkId,
    pub how: ParkHow,
    pub state: State,
    /// Why it is not as wanted.
    pub cause: Option<String>,
    pub since: Timestamp,
}

impl Order {
    /// One that was heard now.
    pub fn new(request: &ParkRequest, state: State, cause: Option<String>) -> Self {
        Self {
            id: request.id,
            how: request.how,
            state,
            cause,
            since: Timestamp::now(),
        }
    }

    /// One that was not heard, and never begins.
    pub fn called_back(id: ParkId) -> Self {
        Self {
            id,
            how: ParkHow::Stop,
            state: State::CalledBack,
            cause: None,
            since: Timestamp::now(),
        }
    }

    /// Whether it may be given to its guest once more. One that is of later than `now` is of a clock that was set
    /// back, and may be of any age.
    pub fn is_young(&self, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(self.since));
        age.is_ok_and(|age| age < limits::PARK_AGAIN)
    }

    /// Why a guest that runs may not be there for long: it was told to shut down. Also where the order is of later
    /// than `now`, as far as is known.
    pub fn may_be_obeyed(&self, now: Timestamp) -> Option<String> {
        let told = self.how == ParkHow::Stop && matches!(self.state, State::Late | State::Ordered);
        let age = Duration::try_from(now.duration_since(self.since));
        let is_past = age.is_ok_and(|age| age >= limits::PARK_OBEYS);
        (told && !is_past).then(|| {
            format!(
                "it runs still, and was told to shut down before {:.0}: it may do so yet, and a later `drover resume` \
                 starts it then",
                self.since
            )
        })
    }
}

/// How far an order is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is carried out. An agent that was started again does not know whether the guest was told.
    Ordered,
    /// The guest is parked.
    Parked,
    /// The guest was told to shut down and did not in time. It may have later.
    Late,
    /// The guest was not touched.
    Kept,
    /// It was called back before it was heard.
    CalledBack,
    /// The guest was run again, or somebody decided what becomes of it.
    Over,
}

impl State {
    /// Whether the guest was told, or may have been.
    fn touches(self) -> bool {
        !matches!(self, Self::Kept | Self::CalledBack)
    }
}

/// The orders that are remembered, the oldest first: one that was given long ago must not begin when it is
/// heard once more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    all: Vec<Order>,
    /// Orders to start it that were called back, and never begin.
    #[serde(default)]
    not_to_start: Vec<ParkId>,
}

impl Orders {
    /// Those of a guest; none where there is no file.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn load(directory: &Path, vm: &VmName) -> io::Result<Self> {
        let Some(text) = files::read(&path(directory, vm))? else {
            return Ok(Self::default());
        };
        serde_json::from_str(&text).map_err(|error| io::Error::other(in_short(error)))
    }

    /// Writes them whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, directory: &Path, vm: &VmName) -> io::Result<()> {
        files::write_whole(&path(directory, vm), &serde_json::to_vec_pretty(self)?)
    }

    pub fn get(&self, id: ParkId) -> Option<&Order> {
        self.all.iter().find(|order| order.id == id)
    }

    /// The newest that has touched the guest, or may have: it decides whether the guest is to run again, whatever
    /// came to nothing after it.
    pub fn in_force(&self) -> Option<&Order> {
        self.all.iter().rev().find(|order| order.state.touches())
    }

    /// Whether none of them has the guest started again.
    pub fn are_settled(&self) -> bool {
        self.in_force()
            .is_none_or(|order| order.state == State::Over)
    }

    /// Whether an order that is known was heard before another one.
    pub fn is_before(&self, id: ParkId, other: ParkId) -> bool {
        let place = |id| self.all.iter().position(|order| order.id == id);
        place(id).is_some_and(|at| place(other).is_some_and(|other| at < other))
    }

    /// Takes in a new one. The one in force is not forgotten for others that came to nothing.
    pub fn add(&mut self, order: Order) {
        self.all.push(order);
        while self.all.len() > limits::PARK_ORDERS {
            let kept = self.in_force().map(|order| order.id);
            let oldest = self.all.iter().position(|order| Some(order.id) != kept);
            self.all.remove(oldest.unwrap_or_default());
        }
    }

    /// Whether an order to start the guest was called back.
    pub fn is_not_to_start(&self, start: ParkId) -> bool {
        self.not_to_start.contains(&start)
    }

    /// Calls an order to start the guest back.
    pub fn call_start_back(&mut self, start: ParkId) {
        self.not_to_start.push(start);
        let excess = self.not_to_start.len().saturating_sub(limits::PARK_ORDERS);
        self.not_to_start.drain(..excess);
    }

    /// What became of one.
    pub fn set(&mut self, id: ParkId, state: State, cause: Option<String>) {
        if let Some(order) = self.all.iter_mut().find(|order| order.id == id) {
            order.state = state;
            order.cause = cause;
            order.since = Timestamp::now();
        }
    }
}

/// The guests that have orders. A file of another name is nobody's.
///
/// # Errors
/// The directory cannot be read.
pub fn guests(directory: &Path) -> io::Result<Vec<VmName>> {
    let mut guests = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let name = name.strip_suffix(".json").map(str::parse);
        guests.extend(name.and_then(Result::ok));
    }
    Ok(guests)
}

/// Forgets the orders of a guest that is not here any more.
pub fn forget(directory: &Path, vm: &VmName) {
    if let Err(error) = files::remove(&path(directory, vm)) {
        tracing::debug!(%vm, %error, "its orders are left");
    }
}

fn path(directory: &Path, vm: &VmName) -> std::path::PathBuf {
    directory.join(format!("{vm}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(number: usize) -> ParkId {
        ParkId(Uuid::from_u128(number as u128))
    }

    #[test]
    fn orders_are_found_again_and_the_oldest_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let web: VmName = "web".parse().unwrap();
        let mut orders = Orders::load(directory.path(), &web).unwrap();
        assert_eq!(orders, Orders::default());
        for number in 0..=limits::PARK_ORDERS {
            let request = ParkRequest {
                id: id(number),
                how: ParkHow::Stop,
                begin: true,
            };
            orders.add(Order::new(&request, State::Ordered, None));
        }
        orders.set(id(3), State::Late, Some("slow".to_owned()));
        orders.save(directory.path(), &web).unwrap();
        let again = Orders::load(directory.path(), &web).unwrap();
        assert_eq!(again, orders);
        assert_eq!(again.get(id(0)), None);
        assert_eq!(again.get(id(3)).unwrap().state, State::Late);
        assert_eq!(again.in_force().unwrap().id, id(limits::PARK_ORDERS));
        assert_eq!(guests(directory.path()).unwrap(), [web]);
    }

    #[test]
    fn what_came_to_nothing_hides_no_earlier_order_that_the_guest_may_yet_obey() {
        let request = |number| ParkRequest {
            id: id(number),
            how: ParkHow::Stop,
            begin: true,
        };
        let mut orders = Orders::default();
        orders.add(Order::new(&request(1), State::Late, None));
        for number in 2..3 * limits::PARK_ORDERS {
            orders.add(Order::new(&request(number), State::CalledBack, None));
        }
        assert_eq!(orders.in_force().unwrap().id, id(1));
        let mut orders = Orders::default();
        orders.add(Order::new(&request(1), State::Late, None));
        orders.add(Order::new(&request(0), State::Parked, None));
        assert_eq!(orders.in_force().unwrap().id, id(0));
        assert!(orders.is_before(id(1), id(0)) && !orders.is_before(id(0), id(1)));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_order_young_and_none_too_old_to_be_obeyed() {
        let request = ParkRequest {
            id: id(1),
            how: ParkHow::Stop,
            begin: true,
        };
        let order = Order::new(&request, State::Late, None);
        let after = |hours| order.since + jiff::SignedDuration::from_hours(hours);
        let young = [-1, 0, 1, 3].map(|hours| order.is_young(after(hours)));
        assert_eq!(young, [false, true, false, false]);
        let obeyed = [-30, -1, 0, 1, 3].map(|hours| order.may_be_obeyed(after(hours)).is_some());
        assert_eq!(obeyed, [true, true, true, true, false]);
        let ended = Order {
            state: State::Parked,
            ..order.clone()
        };
        assert_eq!(ended.may_be_obeyed(after(0)), None);
    }

    #[test]
    fn an_order_to_start_that_was_called_back_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let web: VmName = "web".parse().unwrap();
        let mut orders = Orders::default();
        orders.call_start_back(id(1));
        orders.save(directory.path(), &web).unwrap();
        let again = Orders::load(directory.path(), &web).unwrap();
        assert!(again.is_not_to_start(id(1)) && !again.is_not_to_start(id(2)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_not_taken_for_no_order() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("web.json"), "{").unwrap();
        let web: VmName = "web".parse().unwrap();
        assert!(Orders::load(directory.path(), &web).is_err());
    }
}
