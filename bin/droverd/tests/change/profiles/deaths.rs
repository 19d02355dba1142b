//! Processes that die about a profile: NetworkManager has it as a whole, or as before.

use super::*;

impl Managed {
    /// All is as before, and NetworkManager knows it.
    async fn is_as_before(&self) {
        assert_eq!(self.text(), TEXT);
        assert_eq!(self.knows("802-3-ethernet.mtu"), "1500");
        assert_eq!(self.host.facts().await.nic("nm0").unwrap().mtu, 1500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_about_a_profile_leaves_it_to_network_manager_as_a_whole_or_as_before()
{
    let Some(managed) = Managed::new("nmdies").await else {
        return;
    };
    let host = &managed.host;
    let whole = managed.persist().await;
    let records = host.account(whole.id).records;
    let proved = records.iter().position(|record| *record == Record::Proved);
    let proved = proved.unwrap() + 1;
    host.undo(whole.id).await.unwrap();
    for more in 0..3 {
        let id = managed.order().await;
        host.when_written(id, proved + more).await;
        host.kill_process(id);
        let view = host.ended(id).await;
        println!("killed after {} records: {:?}", proved + more, view.state);
        if view.state == ChangeState::Applied {
            assert_eq!(managed.text(), written());
            assert_eq!(managed.knows("802-3-ethernet.mtu"), "1400");
            host.undo(id).await.unwrap();
        }
        managed.is_as_before().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_dies_at_any_record_is_brought_to_its_end_and_network_manager_knows_it() {
    let Some(managed) = Managed::new("nmback").await else {
        return;
    };
    let host = &managed.host;
    // It is asked for; the file and the MTU are back; NetworkManager was told; it has ended.
    for more in 1..=5 {
        let id = managed.persist().await.id;
        let records = host.account(id).records.len();
        let dies = async {
            host.when_written(id, records + more).await;
            host.kill_process(id)
        };
        let (_, was_there) = tokio::join!(host.undo(id), dies);
        let view = host.ended(id).await;
        println!("{more} records on (killed: {was_there}): {:?}", view.state);
        assert_eq!(view.state, ChangeState::Undone, "{view:#?}");
        managed.is_as_before().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_between_the_new_file_and_its_telling_has_the_old_one_known() {
    let Some(managed) = Managed::new("nmtell").await else {
        return;
    };
    let host = &managed.host;
    let id = managed.order().await;
    // Once it has said which version it is. From then on it is waited for, for 5 s.
    managed.signal("-STOP");
    managed.when(|managed| fs::read_to_string(managed.file()).unwrap() == written());
    host.kill_process(id);
    managed.signal("-CONT");
    let view = host.ended(id).await;
    assert_eq!(view.state, ChangeState::RolledBack, "{view:#?}");
    managed.is_as_before().await;
}
