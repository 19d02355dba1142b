use drover_api::PathLimits;

use super::*;
use crate::config::LimitsConfig;
use crate::sharing::Sharing;
use crate::sharing::tests::moving;

const ID: PathId = PathId(0);

fn shares_of(view: &MigrationView, limit: u64) -> Shares {
    let limits = BTreeMap::from([(Resource::Host { leaves: true }, ByteRate(limit))]);
    Division::default().divide(&limits, &flows(view))
}

#[test]
fn a_path_has_its_share_before_a_lane_is_opened_on_it() {
    let view = moving();
    assert!(view.paths[0].lanes.is_empty());
    let shares = shares_of(&view, 1_000_000);
    let wanted = wanted(&view, None, &[], &shares);
    assert_eq!(wanted[&Some(ID)], Some(ByteRate(1_000_000)));
    assert!(!holds(&view, &wanted));
}

#[test]
fn a_relay_that_holds_what_it_should_is_told_nothing() {
    let mut view = moving();
    let shares = shares_of(&view, 1_000_000);
    let wanted = wanted(&view, "8mbit".parse().ok(), &[], &shares);
    view.paths[0].limit = Some(ByteRate(1_000_000));
    assert!(!holds(&view, &wanted), "all together");
    view.limit = Some(ByteRate(1_000_000));
    assert!(holds(&view, &wanted));
}

#[tokio::test]
async fn what_a_relay_holds_counts_after_a_restart_until_the_destination_tells_anew() {
    let state = tempfile::tempdir().unwrap();
    let sharing = Sharing::open(LimitsConfig::default(), state.path()).unwrap();
    let view = moving();
    let held = |rate| {
        let rate = Some(ByteRate(rate));
        vec![PathLimit { path: ID, rate }]
    };
    let least = |sharing: &Sharing| {
        let told = sharing.told(view.id);
        wanted(&view, None, &told, &Shares::new())[&Some(ID)]
    };
    sharing.take_up(view.id, held(500_000));
    assert_eq!(least(&sharing), Some(ByteRate(500_000)));
    let paths = held(700_000);
    sharing.tell(view.id, PathLimits { paths });
    assert_eq!(least(&sharing), Some(ByteRate(700_000)));
    // It is the destination's word that counts, if that came first.
    sharing.take_up(view.id, held(500_000));
    assert_eq!(least(&sharing), Some(ByteRate(700_000)));
    sharing.tell(view.id, PathLimits::default());
    assert_eq!(least(&sharing), None);
}

#[tokio::test]
async fn whoever_waits_for_a_division_waits_for_one_that_began_after_it_asked() {
    let state = tempfile::tempdir().unwrap();
    let sharing = Sharing::open(LimitsConfig::default(), state.path()).unwrap();
    let step = |begun, done, heard| {
        let now = &sharing.divisions;
        now.send_modify(|d| (d.begun, d.done, d.heard) = (begun, done, heard));
    };
    step(4, 3, 3);
    let (divided, heard) = (sharing.divided(), sharing.heard());
    let (mut divided, mut heard) = (std::pin::pin!(divided), std::pin::pin!(heard));
    assert!(futures_util::poll!(&mut divided).is_pending());
    assert!(futures_util::poll!(&mut heard).is_pending());
    step(4, 4, 4);
    assert!(futures_util::poll!(&mut divided).is_pending());
    step(5, 5, 4);
    assert!(divided.await);
    assert!(futures_util::poll!(&mut heard).is_pending());
    step(6, 6, 6);
    assert!(heard.await);
}
