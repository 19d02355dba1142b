use std::cell::{Cell, RefCell};

use drover_tune::facts::Interrupt;
use drover_types::MigrationId;

use super::*;

/// A kernel and a disk that outlive agents. An agent that is dead does nothing any more.
#[derive(Default)]
struct World {
    kernel: RefCell<BTreeMap<u32, CpuSet>>,
    /// Those that the kernel spreads by itself.
    managed: BTreeSet<u32>,
    disk: RefCell<Option<Ledger>>,
    disk_fails: Cell<bool>,
    steps: Cell<usize>,
    dies_after: Cell<usize>,
}

impl World {
    /// Two devices near processors 4 to 7, with interrupts far from them but for one.
    fn new() -> Self {
        let kernel = [(10, "0-3"), (11, "0-7"), (12, "4-7"), (20, "1")];
        let kernel = kernel.map(|(number, list)| (number, cpus(list)));
        let world = Self::default();
        world.kernel.borrow_mut().extend(kernel);
        world.dies_after.set(usize::MAX);
        world
    }

    fn adapter(&self, device: &str) -> Adapter {
        let kernel = self.kernel.borrow();
        let own = kernel
            .iter()
            .filter(|(number, _)| device.starts_with(if **number < 20 { 'a' } else { 'b' }));
        let interrupts = own.map(|(number, cpus)| Interrupt {
            fixed: false,
            number: *number,
            cpus: cpus.clone(),
            effective: CpuSet::default(),
        });
        Adapter {
            device: device.into(),
            near: cpus("4-7"),
            interrupts: interrupts.collect(),
        }
    }

    fn is(&self, number: u32) -> String {
        self.kernel.borrow()[&number].to_string()
    }

    fn move_to(&self, number: u32, list: &str) {
        self.kernel.borrow_mut().insert(number, cpus(list));
    }

    /// Whether the agent lives to do one more thing.
    fn lives(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get() <= self.dies_after.get()
    }

    /// An agent that is started, and takes these up again.
    fn restart(&self, under_way: &[Holder]) -> Ledger {
        self.dies_after.set(usize::MAX);
        let mut ledger = self.disk.borrow().clone().unwrap_or_default();
        take_up(&mut ledger, self, &under_way.iter().copied().collect());
        ledger
    }
}

impl Hands for World {
    fn keep(&self, ledger: &Ledger) -> io::Result<()> {
        if !self.lives() || self.disk_fails.get() {
            return Err(io::Error::other("disk full"));
        }
        *self.disk.borrow_mut() = Some(ledger.clone());
        Ok(())
    }

    fn now(&self, device: &str, number: u32) -> Option<CpuSet> {
        let mut known = self.adapter(device).interrupts.into_iter();
        let own = known.find(|interrupt| interrupt.number == number)?;
        Some(own.cpus)
    }

    fn set(&self, number: u32, cpus: &CpuSet) -> Result<(), AffinityError> {
        if self.managed.contains(&number) {
            return Err(AffinityError::Managed);
        }
        if !self.lives() {
            let source = io::Error::other("dead");
            return Err(AffinityError::Refused { number, source });
        }
        self.kernel.borrow_mut().insert(number, cpus.clone());
        Ok(())
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn holder(number: u8) -> Holder {
    Holder {
        migration: MigrationId::from_bytes([number; 16]),
        leaves: true,
    }
}

fn begin(world: &World, ledger: &mut Ledger, number: u8, devices: &[&str]) {
    let adapters: Vec<_> = devices.iter().map(|name| world.adapter(name)).collect();
    let adapters: Vec<_> = adapters.iter().collect();
    // What fails, as its agent is dead, fails silently.
    let _ = hold(ledger, world, holder(number), &adapters);
}

fn end(world: &World, ledger: &mut Ledger, number: u8) -> GivenBack {
    if ledger.release(holder(number)) {
        return give_back(ledger, world);
    }
    GivenBack::default()
}

#[test]
fn only_interrupts_that_are_taken_far_away_are_moved_and_all_of_them_come_back() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    let before = world.kernel.borrow().clone();
    begin(&world, &mut ledger, 1, &["a"]);
    assert_eq!(
        ["10", "11", "12"].map(|n| world.is(n.parse().unwrap())),
        ["4-7"; 3]
    );
    assert_eq!(world.is(20), "1");
    assert_eq!(ledger.moved("a"), Some((&cpus("4-7"), 2)));
    let given = end(&world, &mut ledger, 1);
    assert_eq!((given.count, given.left), (2, vec![]));
    assert_eq!(*world.kernel.borrow(), before);
    assert_eq!(ledger, Ledger::default());
    assert_eq!(world.disk.borrow().clone(), Some(ledger));
}

#[test]
fn an_interrupt_that_may_be_taken_anywhere_and_is_taken_near_stays_as_it_is() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    let mut adapter = world.adapter("b");
    adapter.interrupts[0].cpus = cpus("0-7");
    adapter.interrupts[0].effective = cpus("5");
    hold(&mut ledger, &world, holder(1), &[&adapter]).unwrap();
    // And nothing is written down.
    assert_eq!((world.steps.get(), ledger), (0, Ledger::default()));
}

#[test]
fn of_several_migrations_over_a_device_the_last_gives_back() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    let before = world.kernel.borrow().clone();
    begin(&world, &mut ledger, 1, &["a"]);
    begin(&world, &mut ledger, 2, &["a", "b"]);
    assert_eq!(end(&world, &mut ledger, 1), GivenBack::default());
    assert_eq!((world.is(10), world.is(20)), ("4-7".into(), "4-7".into()));
    // One that has ended, or held nothing, ends nothing.
    assert_eq!(end(&world, &mut ledger, 1), GivenBack::default());
    assert_eq!(end(&world, &mut ledger, 2).count, 3);
    assert_eq!(*world.kernel.borrow(), before);
}

#[test]
fn a_migration_for_which_nothing_more_can_be_moved_holds_what_others_have_moved() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    let before = world.kernel.borrow().clone();
    begin(&world, &mut ledger, 1, &["a"]);
    world.disk_fails.set(true);
    let adapters = [world.adapter("a"), world.adapter("b")];
    let adapters: Vec<_> = adapters.iter().collect();
    hold(&mut ledger, &world, holder(2), &adapters).unwrap_err();
    join(&mut ledger, &world, holder(2), &adapters);
    assert_eq!(end(&world, &mut ledger, 1), GivenBack::default());
    assert_eq!((world.is(10), world.is(20)), ("4-7".into(), "1".into()));
    assert_eq!(end(&world, &mut ledger, 2).count, 2);
    assert_eq!(*world.kernel.borrow(), before);
}

#[test]
fn whenever_an_agent_dies_the_next_one_gives_back_what_no_migration_goes_on_with() {
    let script = |world: &World, ledger: &mut Ledger| {
        begin(world, ledger, 1, &["a"]);
        begin(world, ledger, 2, &["a", "b"]);
        end(world, ledger, 1);
        end(world, ledger, 2);
    };
    let whole = World::new();
    script(&whole, &mut Ledger::default());
    let (steps, before) = (whole.steps.get(), whole.kernel.borrow().clone());
    assert_eq!((steps, &before), (10, &*World::new().kernel.borrow()));
    for dies_after in 0..=steps {
        for goes_on in [&[][..], &[holder(2)]] {
            let world = World::new();
            world.dies_after.set(dies_after);
            script(&world, &mut Ledger::default());
            let mut ledger = world.restart(goes_on);
            for (number, now) in &*world.kernel.borrow() {
                let was = &before[number];
                let is_held = !goes_on.is_empty() && *now == cpus("4-7");
                assert!(now == was || is_held, "{dies_after}: {number} on {now}");
            }
            // It holds again what it is carried over.
            begin(&world, &mut ledger, 2, &["a", "b"]);
            assert_eq!(world.is(20), "4-7", "{dies_after}");
            end(&world, &mut ledger, 2);
            assert_eq!(*world.kernel.borrow(), before, "{dies_after}");
            assert_eq!(ledger, Ledger::default(), "{dies_after}");
        }
    }
}

#[test]
fn what_somebody_else_has_moved_meanwhile_stays_there_and_is_told() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    begin(&world, &mut ledger, 1, &["a"]);
    world.move_to(11, "2");
    // Another migration does not move it away from there.
    begin(&world, &mut ledger, 2, &["a"]);
    end(&world, &mut ledger, 1);
    let given = end(&world, &mut ledger, 2);
    let told = "interrupt 11 stays on CPUs 2, where somebody else has moved it";
    assert_eq!((given.count, given.left), (1, vec![told.to_owned()]));
    assert_eq!((world.is(10), world.is(11)), ("0-3".into(), "2".into()));
    assert_eq!(ledger, Ledger::default());
}

#[test]
fn an_interrupt_that_is_gone_is_not_given_back_to_whoever_has_its_number() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    begin(&world, &mut ledger, 1, &["b"]);
    world.kernel.borrow_mut().remove(&20);
    assert_eq!(end(&world, &mut ledger, 1), GivenBack::default());
    assert_eq!(ledger, Ledger::default());
}

#[test]
fn interrupts_that_the_kernel_spreads_by_itself_are_counted_and_no_error() {
    let mut world = World::new();
    world.managed.extend([10, 11]);
    let (world, mut ledger) = (world, Ledger::default());
    let (a, b) = (world.adapter("a"), world.adapter("b"));
    let not_moved = hold(&mut ledger, &world, holder(1), &[&a, &b]).unwrap();
    let managed = NotMoved {
        managed: 2,
        refused: vec![],
    };
    assert_eq!(not_moved, BTreeMap::from([("a".to_owned(), managed)]));
    assert_eq!((ledger.moved("a"), world.is(20)), (None, "4-7".into()));
    assert_eq!(end(&world, &mut ledger, 1).count, 1);
}

#[test]
fn nothing_is_moved_that_cannot_be_written_down_first() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    world.disk_fails.set(true);
    let before = world.kernel.borrow().clone();
    let refused = hold(&mut ledger, &world, holder(1), &[&world.adapter("a")]);
    assert_eq!(
        refused.unwrap_err(),
        "what was there cannot be written down: disk full"
    );
    assert_eq!(
        (&*world.kernel.borrow(), ledger),
        (&before, Ledger::default())
    );
}

#[test]
fn what_the_kernel_does_not_take_back_is_tried_again_with_the_next_end() {
    let (world, mut ledger) = (World::new(), Ledger::default());
    begin(&world, &mut ledger, 1, &["b"]);
    world.dies_after.set(world.steps.get());
    let given = end(&world, &mut ledger, 1);
    assert_eq!(given.count, 0);
    assert!(given.left[0].starts_with("interrupt 20 is not given back for now: "));
    world.dies_after.set(usize::MAX);
    begin(&world, &mut ledger, 2, &["a"]);
    assert_eq!(end(&world, &mut ledger, 2).count, 3);
    assert_eq!(world.is(20), "1");
}
