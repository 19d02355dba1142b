//! Orders to migrate with an id of whoever gives them: carried out once, however often they are given.
//!
//! An order that began a migration is known by that one. What is kept here is what nothing else tells:
//! the orders that are being carried out, so that the same one waits for what comes of it, and those
//! that were refused or called back before there was a migration. None of that outlives the agent, and neither does a
//! request that it had not answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal};
use drover_types::{HostName, MigrationId, VmName};

use crate::limits;

/// Orders of which there is no migration, or not yet.
#[derive(Debug, Default)]
pub struct Orders(Mutex<VecDeque<Arc<Order>>>);

#[derive(Debug)]
struct Order {
    id: MigrationId,
    /// The guest and its destination; nothing of one that was called back before it was heard.
    what: Option<(VmName, HostName)>,
    /// Why it was refused. Held while it is carried out.
    refused: tokio::sync::Mutex<Option<Refusal>>,
}

impl Orders {
    /// Carries an order out, or tells again why it was refused. Of one id one is carried out at a time:
    /// `carry_out` looks itself for what one before it has begun.
    ///
    /// # Errors
    /// It is refused, or the id is that of another order.
    pub async fn once<T>(
        &self,
        id: MigrationId,
        (vm, to): (&VmName, &HostName),
        carry_out: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let order = self.reserve(id, vm, to)?;
        let mut refused = order.refused.lock().await;
        if let Some(refusal) = &*refused {
            return Err(refusal.clone());
        }
        let done = carry_out.await;
        match &done {
            Ok(_) => self.all().retain(|known| !Arc::ptr_eq(known, &order)),
            Err(refusal) => *refused = Some(refusal.clone()),
        }
        done
    }

    /// Has an order not be carried out, whenever it is heard. One that is being carried out is waited for:
    /// what it has begun, which `begun` finds, is given back, and is to be cancelled.
    pub async fn call_back<T>(
        &self,
        id: MigrationId,
        begun: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let order = {
            let mut all = self.all();
            let known = all.iter().find(|known| known.id == id).map(Arc::clone);
            known.unwrap_or_else(|| keep(&mut all, id, None))
        };
        let mut refused = order.refused.lock().await;
        let begun = begun();
        if begun.is_none() {
            refused.get_or_insert_with(|| called_back(id));
        }
        begun
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Arc<Order>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, id: MigrationId, vm: &VmName, to: &HostName) -> Result<Arc<Order>, Refusal> {
        let mut all = self.all();
        if let Some(known) = all.iter().find(|known| known.id == id) {
            return match &known.what {
                Some((its, there)) if its != vm || there != to => Err(of_another(id, its, there)),
                _ => Ok(Arc::clone(known)),
            };
        }
        Ok(keep(&mut all, id, Some((vm.clone(), to.clone()))))
    }
}

/// Adds an order, in the place of the oldest one that is over.
fn keep(
    all: &mut VecDeque<Arc<Order>>,
    id: MigrationId,
    what: Option<(VmName, HostName)>,
) -> Arc<Order> {
    let order = Arc::new(Order {
        id,
        what,
        refused: tokio::sync::Mutex::default(),
    });
    all.push_back(Arc::clone(&order));
    // Those that are being carried out stay: there are no more of them than connections.
    let over = |order: &Arc<Order>| Arc::strong_count(order) == 1;
    if all.len() > limits::ORDERS
        && let Some(oldest) = all.iter().position(over)
    {
        all.remove(oldest);
    }
    order
}

fn called_back(id: MigrationId) -> Refusal {
    let message = format!("migration {id} was called back before its order was heard");
    Refusal::new(ErrorCode::MigrationEnded, message).next("order it anew, with another id")
}

/// An id stands for one guest and one destination.
pub fn of_another(id: MigrationId, vm: &VmName, to: &HostName) -> Refusal {
    let message = format!("id {id} is that of another migration: of guest {vm} to {to}");
    Refusal::new(ErrorCode::BadRequest, message).next("give each migration an id of its own")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;
    use uuid::Uuid;

    use super::*;

    fn id(number: usize) -> MigrationId {
        MigrationId(Uuid::from_u128(number as u128))
    }

    fn web_to_b() -> (VmName, HostName) {
        ("web".parse().unwrap(), "b".parse().unwrap())
    }

    fn busy() -> Refusal {
        Refusal::new(ErrorCode::VmBusy, "web is being stopped")
    }

    #[tokio::test]
    async fn an_order_that_is_given_again_meanwhile_waits_and_hears_what_the_first_one_does() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        let (refuse, refused) = oneshot::channel();
        let mut first = pin!(orders.once::<()>(id(1), (&vm, &to), async {
            refused.await.unwrap();
            Err(busy())
        }));
        assert_eq!(first.as_mut().now_or_never(), None);
        let carried_out = Cell::new(false);
        let mut again = pin!(orders.once(id(1), (&vm, &to), async {
            carried_out.set(true);
            Ok(())
        }));
        assert_eq!(again.as_mut().now_or_never(), None);
        refuse.send(()).unwrap();
        assert_eq!(first.await, Err(busy()));
        assert_eq!(again.await, Err(busy()));
        assert!(!carried_out.get());
        let later = orders.once(id(1), (&vm, &to), async { Ok(()) }).await;
        assert_eq!(later, Err(busy()));
        let other = orders.once(id(2), (&vm, &to), async { Ok(()) }).await;
        assert_eq!(other, Ok(()), "another order is another matter");
    }

    #[tokio::test]
    async fn what_began_is_looked_for_by_the_next_one_and_not_kept() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        let (begin, begun) = oneshot::channel();
        let mut first = pin!(orders.once(id(1), (&vm, &to), async { Ok(begun.await.unwrap()) }));
        assert_eq!(first.as_mut().now_or_never(), None);
        let mut again = pin!(orders.once(id(1), (&vm, &to), async { Ok("found") }));
        assert_eq!(again.as_mut().now_or_never(), None);
        begin.send("begun").unwrap();
        assert_eq!(first.await, Ok("begun"));
        assert_eq!(again.await, Ok("found"));
        assert!(orders.all().is_empty());
    }

    #[tokio::test]
    async fn an_id_stands_for_one_guest_and_one_destination() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        let refused = orders.once::<()>(id(1), (&vm, &to), async { Err(busy()) });
        assert_eq!(refused.await, Err(busy()));
        let (db, c) = ("db".parse().unwrap(), "c".parse().unwrap());
        for what in [(&db, &to), (&vm, &c)] {
            let refused = orders.once(id(1), what, async { Ok(()) }).await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.code, ErrorCode::BadRequest);
            assert!(refused.message.contains("of guest web to b"), "{refused}");
        }
    }

    #[tokio::test]
    async fn an_order_that_was_called_back_is_not_carried_out_when_it_is_heard_later() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        assert_eq!(orders.call_back(id(1), || None::<()>).await, None);
        let late = orders.once(id(1), (&vm, &to), async { Ok(()) }).await;
        assert_eq!(late.unwrap_err().code, ErrorCode::MigrationEnded);
    }

    #[tokio::test]
    async fn an_order_that_is_called_back_while_it_is_carried_out_gives_back_what_it_began() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        let (begin, begun) = oneshot::channel();
        let mut order = pin!(orders.once(id(1), (&vm, &to), async { Ok(begun.await.unwrap()) }));
        assert_eq!(order.as_mut().now_or_never(), None);
        let mut back = pin!(orders.call_back(id(1), || Some("cancel this")));
        assert_eq!(back.as_mut().now_or_never(), None);
        begin.send("begun").unwrap();
        assert_eq!(order.await, Ok("begun"));
        assert_eq!(back.await, Some("cancel this"));
    }

    #[tokio::test]
    async fn refused_orders_are_kept_up_to_a_bound_and_one_that_is_carried_out_stays() {
        let (orders, (vm, to)) = (Orders::default(), web_to_b());
        let (_never, waiting) = oneshot::channel::<()>();
        let mut first = pin!(orders.once(id(0), (&vm, &to), async {
            waiting.await.unwrap();
            Ok(())
        }));
        assert_eq!(first.as_mut().now_or_never(), None);
        for number in 1..=2 * limits::ORDERS {
            let refused = orders.once::<()>(id(number), (&vm, &to), async { Err(busy()) });
            assert_eq!(refused.await, Err(busy()));
        }
        let kept: Vec<_> = orders.all().iter().map(|order| order.id).collect();
        assert_eq!(kept.len(), limits::ORDERS);
        assert_eq!(kept[0], id(0));
        assert_eq!(kept.last(), Some(&id(2 * limits::ORDERS)));
    }
}
