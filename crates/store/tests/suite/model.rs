//! Random operations on a store and on a model of it in memory, which must agree.

use std::collections::BTreeMap;

use drover_store::{
    Campaign, Changes, Expect, Generation, Journal, Key, Kind, Leadership, Revision, Scope,
    StoreError, Transaction,
};
use proptest::prelude::*;
use tokio::time::timeout;

use super::{Bench, DEADLINE, TTL, host, name, now, number, value, vm};

/// What a write expects, said so that it can be made up before revisions are known.
#[derive(Debug, Clone, Copy)]
pub enum Wants {
    Anything,
    Absent,
    Present,
    Current,
    Outdated,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// Document, delete or put, expectation: several at once, fenced or not.
    Commit(Vec<(u8, bool, Wants)>, Option<u8>),
    Append(u8, u64),
    Campaign(u8),
    Renew(u8),
    Break(u8),
    Lapse,
}

fn wants() -> impl Strategy<Value = Wants> {
    prop_oneof![
        2 => Just(Wants::Anything),
        1 => Just(Wants::Absent),
        1 => Just(Wants::Present),
        4 => Just(Wants::Current),
        1 => Just(Wants::Outdated),
    ]
}

pub fn steps(most: usize, with_time: bool) -> impl Strategy<Value = Vec<Step>> {
    let writes = prop::collection::vec((0..5_u8, any::<bool>(), wants()), 1..4);
    let step = prop_oneof![
        8 => (writes, prop::option::of(0..3_u8)).prop_map(|(writes, by)| Step::Commit(writes, by)),
        2 => (0..3_u8, 0..2_u64).prop_map(|(by, ahead)| Step::Append(by, ahead)),
        3 => (0..3_u8).prop_map(Step::Campaign),
        1 => (0..3_u8).prop_map(Step::Renew),
        1 => (0..3_u8).prop_map(Step::Break),
        u32::from(with_time) => Just(Step::Lapse),
    ];
    prop::collection::vec(step, 1..most)
}

#[derive(Default)]
struct Model {
    documents: BTreeMap<Key, (Revision, u64)>,
    outdated: BTreeMap<Key, Revision>,
    changes: Vec<Changes>,
    leads: Option<Generation>,
    entries: u64,
    /// The last leadership of each holder, whether it still counts or not.
    papers: BTreeMap<u8, Leadership>,
    written: u64,
}

fn key(number: u8) -> Key {
    match number {
        0..=2 => host(&format!("h{number}")),
        _ => vm(&format!("v{number}")),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    Conflict(Key),
    Fenced(Option<Generation>),
}

fn verdict(result: Result<Revision, StoreError>) -> (Verdict, Option<Revision>) {
    match result {
        Ok(revision) => (Verdict::Done, Some(revision)),
        Err(StoreError::Conflict { key, .. }) => (Verdict::Conflict(key), None),
        Err(StoreError::Fenced { by, .. }) => (Verdict::Fenced(by.map(|by| by.generation)), None),
        Err(other) => panic!("{other}"),
    }
}

impl Model {
    fn expect(&self, key: &Key, wants: Wants) -> Expect {
        let current = self.documents.get(key).map(|(revision, _)| *revision);
        match wants {
            Wants::Anything => Expect::Anything,
            Wants::Absent => Expect::Absent,
            Wants::Present => Expect::Present,
            Wants::Current => current.map_or(Expect::Absent, Expect::At),
            Wants::Outdated => self
                .outdated
                .get(key)
                .copied()
                .map_or(Expect::Present, Expect::At),
        }
    }

    fn meets(&self, key: &Key, expect: Expect) -> bool {
        let found = self.documents.get(key).map(|(revision, _)| *revision);
        match expect {
            Expect::Anything => true,
            Expect::Absent => found.is_none(),
            Expect::Present => found.is_some(),
            Expect::At(revision) => found == Some(revision),
        }
    }

    fn judge(&self, by: Option<&Leadership>, conditions: &[(Key, Expect)]) -> Verdict {
        if let Some(paper) = by
            && self.leads != Some(paper.generation())
        {
            return Verdict::Fenced(self.leads);
        }
        let broken = conditions
            .iter()
            .find(|(key, expect)| !self.meets(key, *expect));
        broken.map_or(Verdict::Done, |(key, _)| Verdict::Conflict(key.clone()))
    }

    fn apply(&mut self, at: Revision, writes: &[(Key, Option<u64>)]) {
        let last = self.changes.last().map(|changes| changes.revision);
        let mut changes = Vec::new();
        for (key, what) in writes {
            let before = self.documents.remove(key);
            assert!(before.is_none_or(|(revision, _)| revision < at));
            if let Some((revision, _)) = before {
                self.outdated.insert(key.clone(), revision);
            }
            if let Some(what) = what {
                self.documents.insert(key.clone(), (at, *what));
            }
            if before.is_some() || what.is_some() {
                let value = what.map(value);
                changes.push(drover_store::Change {
                    key: key.clone(),
                    value,
                });
            }
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        if !changes.is_empty() {
            assert!(last.is_none_or(|last| last < at), "revisions go up");
            self.changes.push(Changes {
                revision: at,
                changes,
            });
        }
    }
}

pub async fn agrees_with_the_model(bench: &Bench, steps: Vec<Step>) {
    let from = now(&bench.store).await;
    let mut model = Model::default();
    for step in steps {
        take(bench, &mut model, step).await;
    }
    compare(bench, &model, from).await;
}

async fn take(bench: &Bench, model: &mut Model, step: Step) {
    match step {
        Step::Commit(writes, by) => commit(bench, model, writes, by).await,
        Step::Append(by, ahead) => append(bench, model, by, ahead).await,
        Step::Campaign(holder) => campaign(bench, model, holder).await,
        Step::Renew(holder) => renew(bench, model, holder).await,
        Step::Break(holder) => {
            if let Some(paper) = model.papers.get(&holder) {
                let broken = bench
                    .store
                    .break_leadership(paper.name(), paper.generation())
                    .await;
                let led = model.leads == Some(paper.generation());
                assert_eq!(broken.unwrap(), led);
                model.leads = model.leads.filter(|_| !led);
            }
        }
        Step::Lapse => {
            bench.clock.as_ref().unwrap().0.pass(TTL);
            model.leads = None;
        }
    }
}

async fn commit(bench: &Bench, model: &mut Model, writes: Vec<(u8, bool, Wants)>, by: Option<u8>) {
    let paper = by.and_then(|by| model.papers.get(&by).cloned());
    let mut transaction = Transaction::new();
    if let Some(paper) = &paper {
        transaction = transaction.fenced_by(paper);
    }
    let (mut conditions, mut plain) = (Vec::new(), BTreeMap::new());
    for (which, delete, wants) in writes {
        let key = key(which);
        if plain.contains_key(&key) {
            continue;
        }
        let expect = model.expect(&key, wants);
        conditions.push((key.clone(), expect));
        model.written += 1;
        let what = (!delete).then_some(model.written);
        transaction = match what {
            Some(what) => transaction.put(key.clone(), value(what), expect),
            None => transaction.delete(key.clone(), expect),
        };
        plain.insert(key, what);
    }
    let wanted = model.judge(paper.as_ref(), &conditions);
    let (is, at) = verdict(bench.store.commit(&transaction).await);
    assert_eq!(is, wanted);
    if let Some(at) = at {
        model.apply(at, &plain.into_iter().collect::<Vec<_>>());
    }
}

fn journal() -> Journal {
    Journal::try_from("run").unwrap()
}

async fn append(bench: &Bench, model: &mut Model, by: u8, ahead: u64) {
    let Some(paper) = model.papers.get(&by) else {
        return;
    };
    let entry = model.entries + 1 + ahead;
    let result = bench
        .store
        .append(&journal(), entry, value(entry), paper)
        .await;
    let (is, _) = verdict(result);
    if model.leads != Some(paper.generation()) {
        assert_eq!(is, Verdict::Fenced(model.leads));
    } else if ahead > 0 {
        let missing = Key::Entry {
            journal: name("run"),
            number: entry - 1,
        };
        assert_eq!(is, Verdict::Conflict(missing));
    } else {
        assert_eq!(is, Verdict::Done);
        model.entries = entry;
    }
}

async fn campaign(bench: &Bench, model: &mut Model, holder: u8) {
    let who = name(&format!("c{holder}"));
    // Where time is real, no lease may lapse by itself in the middle of a case.
    let ttl = if bench.clock.is_some() { TTL } else { TTL * 50 };
    match bench
        .store
        .campaign(&name("drain"), &who, ttl)
        .await
        .unwrap()
    {
        Campaign::Won(paper) => {
            assert_eq!(model.leads, None);
            model.leads = Some(paper.generation());
            model.papers.insert(holder, paper);
        }
        Campaign::Held(holding) => assert_eq!(Some(holding.generation), model.leads),
    }
}

async fn renew(bench: &Bench, model: &mut Model, holder: u8) {
    let Some(mut paper) = model.papers.get(&holder).cloned() else {
        return;
    };
    let renewed = bench.store.renew(&mut paper).await;
    if model.leads == Some(paper.generation()) {
        renewed.unwrap();
    } else {
        let (is, _) = verdict(renewed.map(|()| Revision(0)));
        assert_eq!(is, Verdict::Fenced(model.leads));
    }
}

async fn compare(bench: &Bench, model: &Model, from: Revision) {
    let mut there = BTreeMap::new();
    for kind in [Kind::Host, Kind::Vm] {
        let page = bench
            .store
            .list(&Scope::kind(kind), None, 500)
            .await
            .unwrap();
        for document in page.documents {
            there.insert(document.key.clone(), (document.revision, number(&document)));
        }
    }
    assert_eq!(there, model.documents);
    assert_eq!(
        bench.store.next_entry(&journal()).await.unwrap(),
        model.entries + 1
    );
    for kind in [Kind::Host, Kind::Vm] {
        let mut watch = bench.store.watch(&Scope::kind(kind), from);
        for wanted in &model.changes {
            let mut wanted = wanted.clone();
            wanted.changes.retain(
                |change| matches!(change.key, Key::Document { kind: of, .. } if of == kind),
            );
            if !wanted.changes.is_empty() {
                let is = timeout(DEADLINE, watch.next())
                    .await
                    .expect("a change is missing");
                assert_eq!(is.unwrap(), wanted);
            }
        }
    }
}
