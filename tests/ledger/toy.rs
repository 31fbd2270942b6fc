//! Toy ledger: the demonstration in front of it, across kills.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{committed, hasten, invalid, status};
use crate::http_client::{Client, address, own_address};
use crate::moment::Moment;
use crate::project::Project;
use crate::random::Random;
use crate::running::Running;

const KILLS: u64 = 12;
/// The reason with which the toy ledger refuses a batch.
const REFUSED: &str = "a quantity below 0";

/// Every batch of the demonstration is finished, once; the batches of one service in order.
fn assert_settled(project: &Project, blocks: &str) {
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    };
    let all = lines(&project.read("data/batches.ndjson"));
    let id = |batch: &Value| batch["id"].as_u64().expect("a number");
    let is_refused = |batch: &&Value| batch["quantity"].as_i64() < Some(0);
    let (refused, good): (Vec<&Value>, Vec<&Value>) = all.iter().partition(is_refused);
    let mut set_aside = invalid(project);
    set_aside.sort();
    let expected: Vec<_> = refused.iter().map(|batch| (id(batch), REFUSED.to_owned())).collect();
    assert_eq!(set_aside, expected);
    let mut through = committed(project);
    through.sort_unstable();
    assert_eq!(through, good.iter().map(|batch| id(batch)).collect::<Vec<_>>());
    // In both outputs. In the ledger, a batch that was submitted just before a kill may occur twice.
    for there in [lines(&project.read("out/committed.ndjson")), lines(blocks)] {
        let (mut seen, mut by_service) = (BTreeSet::new(), BTreeMap::<String, Vec<u64>>::new());
        for batch in there.iter().filter(|batch| seen.insert(id(batch))) {
            by_service
                .entry(batch["service"].as_str().expect("a name").to_owned())
                .or_default()
                .push(id(batch));
        }
        assert_eq!(seen.len(), good.len());
        assert!(by_service.values().all(|ids| ids.is_sorted()), "{by_service:?}");
    }
}

fn hasten_ledger(project: &Project) {
    project.change("decide.rhai", "\"1s\"", "\"20ms\"");
    project.change("ledger.toml", "rate = \"2/s\"", "rate = \"100/s\"");
}

#[test]
fn the_toy_ledger_takes_its_time_forgets_refuses_and_all_of_it_is_made_good() {
    let project = Project::demonstration("ledger");
    hasten(&project);
    hasten_ledger(&project);
    // A slow ledger is busy for longer than ten attempts take.
    project.change("grid.toml", "max_attempts = 10", "max_attempts = 0");
    // Both use the port before it is bound.
    let port = own_address();
    project.change("tidegate.toml", "127.0.0.1:8484", &port.to_string());
    project.change("grid.toml", "127.0.0.1:8484", &port.to_string());
    let mut running = project.started();
    running.wait_until("half of it", || committed(&project).len() >= 9);
    assert!(running.kill());
    let mut running = project.started();
    running.wait_until("all of it", || status(&project)["taken"] == 20);
    running.stop().done();
    assert_settled(&project, &project.read("out/blocks.ndjson"));
    // Some submissions were forgotten, and repeated.
    assert!(project.status("ledger/decide", "ledger/submissions")["filtered"].as_u64() > Some(0));
    project.assert_sound();
}

#[test]
fn a_refused_transfer_halts_its_account_until_an_operator_has_decided_about_those_behind_it() {
    let project = Project::demonstration("ledger");
    std::fs::remove_file(project.path().join("grid.toml")).expect("it is there");
    hasten_ledger(&project);
    let port = own_address();
    project.change("tidegate.toml", "127.0.0.1:8484", &port.to_string());
    project.change("transfers.toml", "127.0.0.1:8484", &port.to_string());
    project.change("transfers.toml", "every = \"1s\"", "every = \"10ms\"");
    project.change("transfers.toml", "initial = \"1s\"", "initial = \"10ms\"");
    let mut running = project.started();
    let mut client = Client::new(&address(&mut running));
    let transfers = [(1, "a", 5), (2, "a", -1), (3, "a", 7), (4, "b", 1), (5, "a", 2)];
    for (id, account, quantity) in transfers {
        let transfer = json!({ "id": id, "account": account, "quantity": quantity });
        client.push("transfers/transfers", &transfer.to_string());
    }
    let through = |project: &Project| {
        let mut ids = project.ids_so_far("out/transferred.ndjson");
        ids.sort_unstable();
        ids
    };
    running.wait_until("the other account", || through(&project) == [1, 4]);
    running.wait_until("the refusal", || project.queue("transfers/refused").len() == 1);
    let held = project.status("transfers/transfer", "transfers/transfers")["held_lanes"].clone();
    assert_eq!(held[0]["lane"], "a", "{held}");
    assert!(held[0]["halted"].as_str().is_some_and(|why| why.contains(REFUSED)), "{held}");
    // The account stays halted after a kill. The third transfer makes no sense any more, and the fifth goes on.
    assert!(running.kill());
    let mut running = project.started();
    let mut client = Client::new(&address(&mut running));
    client.push("transfers/transfers", &json!({ "id": 6, "account": "b", "quantity": 1 }).to_string());
    running.wait_until("the other account", || through(&project) == [1, 4, 6]);
    project.tidegate(&["job", "cancel", "transfers/transfers/3", "--yes"]).done();
    let resumed = client.request("POST /steps/transfers/transfer/resume?lane=a", &[], "");
    assert_eq!((resumed.status, &resumed.body["changed"]), (200, &Value::Bool(true)));
    running.wait_until("the account", || through(&project) == [1, 4, 5, 6]);
    running.stop().done();
    let refused = project.queue("transfers/refused");
    let refused: Vec<_> =
        refused.iter().map(|record| (&record["job"]["id"], record["message"].as_str())).collect();
    assert_eq!(refused, [(&json!(2), Some(REFUSED)), (&json!(3), Some("cancelled"))]);
    project.assert_sound();
}

/// The two halves of the demonstration, each with a runner of its own.
fn halves() -> (Project, Project) {
    let (grid, ledger) = (Project::demonstration("ledger"), Project::demonstration("ledger"));
    for (project, file) in [
        (&grid, "ledger.toml"),
        (&grid, "transfers.toml"),
        (&grid, "tidegate.toml"),
        (&ledger, "grid.toml"),
        (&ledger, "transfers.toml"),
    ] {
        std::fs::remove_file(project.path().join(file)).expect("it is there");
    }
    ledger.change("tidegate.toml", "127.0.0.1:8484", "127.0.0.1:0");
    hasten(&grid);
    // The number of kills exceeds the number of busy answers.
    grid.change("grid.toml", "max_attempts = 10", "max_attempts = 0");
    grid.change("grid.toml", "queuer = \"services\"", "queuer = \"services\"\ncrash_limit = 100");
    hasten_ledger(&ledger);
    ledger.change("ledger.toml", "errors = \"refused\"", "errors = \"refused\"\ncrash_limit = 100");
    (grid, ledger)
}

fn start_both(grid: &Project, ledger: &Project, toml: &str) -> (Running, Running) {
    let mut answers = ledger.start(&["run", "."]);
    let place = address(&mut answers);
    grid.write("grid.toml", toml.replace("${LEDGER:-127.0.0.1:8484}", &place));
    (grid.start(&["run", "."]), answers)
}

#[test]
fn a_submitter_killed_again_and_again_with_its_ledger_forgets_nothing_and_keeps_the_order() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let (grid, ledger) = halves();
    let toml = grid.read("grid.toml");
    let mut through = 0;
    for kill in 0..KILLS {
        let (mut running, answers) = start_both(&grid, &ledger, &toml);
        let first = Moment::After(Duration::from_micros(random.below(150_000)));
        first.wait(&grid, "out/committed.ndjson", &mut running);
        // Sometimes the ledger is killed first, and does not answer for a while.
        if random.below(3) == 0 {
            answers.kill();
            Moment::After(Duration::from_micros(random.below(30_000))).wait(&grid, "", &mut running);
        }
        assert!(!running.stderr().contains("panic"), "kill {kill}, seed {seed}:\n{}", running.stderr());
        through += u64::from(!running.kill());
    }
    assert!(through < KILLS, "there was nothing to kill");
    let (running, answers) = start_both(&grid, &ledger, &toml);
    // Nothing stays locked: it ends by itself.
    running.outcome().done();
    answers.stop().done();
    assert_settled(&grid, &ledger.read("out/blocks.ndjson"));
    grid.assert_sound();
    ledger.assert_sound();
}
