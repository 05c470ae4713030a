//! A reading ends with its future. Alone in its process, for it counts the tasks that run there.

mod server;

use std::time::Duration;

use server::{Server, slow, source};
use windlass_addons::catalogue::InUse;
use windlass_addons::helm::{Limits, read};
use windlass_cluster::clock;

#[tokio::test]
async fn a_reading_that_nobody_waits_for_leaves_nothing_behind() {
    let server = Server::start(|_, _| slow()).await;
    let source = source(&server.url, &[], &[]);
    let (in_use, limits) = (InUse::new(), Limits::default());
    let mut pending = Box::pin(read(&source, &in_use, None, &limits));
    // The server and the parser.
    let parsing = async {
        while clock::running_tasks() < 2 {
            clock::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = &mut pending => panic!("the body never ends"),
        () = parsing => {}
    }
    drop(pending);
    let ended = async {
        while clock::running_tasks() > 1 {
            clock::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended)
        .await
        .unwrap();
}
