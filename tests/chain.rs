//! Demonstration of a chain: each block costs once, in the order of the blocks, across kills of the runner and of its
//! command.

use serde_json::{Value, json};

use crate::outward::service::{Act, Service, answer};
use crate::project::Project;

/// A node with the blocks up to `head`, each in an answer as the toy node gives it.
fn node(head: u64) -> Service {
    Service::start(move |asked, _| {
        let path = asked.line.split(' ').nth(1).expect("it has a path");
        let height: u64 = path.rsplit('/').next().and_then(|number| number.parse().ok()).expect("a number");
        if height > head {
            return Act::Say(answer("404 Not Found", "", "not yet"));
        }
        let block = json!({ "payload": { "height": height, "gas": [height, 1] } });
        Act::Say(answer("200 OK", "content-type: application/json\r\n", &block.to_string()))
    })
}

fn costs(project: &Project) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).ok();
    project.read_if_there("out/costs.ndjson").lines().filter_map(parse).collect()
}

#[test]
fn the_toy_node_and_its_follower_go_together() {
    let project = Project::demonstration("chain");
    project.tidegate(&["test", "."]).done();
    project.tidegate(&["check", "."]).done();
}

#[test]
fn each_block_costs_once_and_a_kill_continues_the_prices_at_their_cursor() {
    const LAST: u64 = 120;
    let node = node(LAST);
    let project = Project::demonstration("chain");
    std::fs::remove_file(project.path().join("node.toml")).expect("it is there");
    std::fs::remove_file(project.path().join("tidegate.toml")).expect("it is there");
    project.change("chain.toml", "${NODE:-127.0.0.1:8484}", &node.address.to_string());
    project.change("chain.toml", "every = \"500ms\"", "every = \"10ms\"");
    project.change("chain.toml", "initial = \"1s\"", "initial = \"10ms\"");
    project.change("prices.sh", "sleep 1;", "sleep 0.01;");
    for kill in 1..=4 {
        let mut running = project.started();
        let wanted = usize::try_from(LAST * kill / 5).expect("a small number");
        running.wait_until("costs", || costs(&project).len() >= wanted);
        assert!(running.kill(), "it ended by itself");
    }
    let mut running = project.started();
    running.wait_until("all costs", || costs(&project).len() >= usize::try_from(LAST).expect("it is small"));
    running.stop().done();
    let mut found = costs(&project);
    found.sort_by_key(|cost| cost["height"].as_u64());
    let price = |height: u64| 2 + height * 7 % 5;
    let expected: Vec<Value> =
        (1..=LAST).map(|height| json!({ "height": height, "cost": (height + 1) * price(height) })).collect();
    assert_eq!(found, expected);
    assert_eq!(project.status("chain/sum", "chain/blocks")["watermark"], LAST);
    project.assert_sound();
}
