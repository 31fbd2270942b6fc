//! Demonstration of a job queue over blocks: each block and each chunk of it is processed exactly once, in
//! the background, across kills.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::moment::{Moment, kills};
use crate::project::Project;
use crate::random::Random;

const KILLS: u64 = 20;

fn demonstration() -> Project {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/blocks");
    let project = Project::new();
    for name in ["blocks.toml", "split.rhai", "execute.rhai", "data/blocks.ndjson"] {
        project.write(name, fs::read(original.join(name)).expect("the demonstration is there"));
    }
    project
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// The expected outputs by height and chunk.
fn expected(project: &Project) -> BTreeMap<(u64, u64), Value> {
    let mut all = BTreeMap::new();
    for block in lines(&project.read("data/blocks.ndjson")) {
        for (chunk, collection) in block["collections"].as_array().expect("a list").iter().enumerate() {
            let transactions = collection.as_array().expect("a list");
            let gas: u64 = transactions.iter().map(|one| one["gas"].as_u64().expect("a number")).sum();
            let (height, chunk) = (block["height"].as_u64().expect("a number"), chunk as u64);
            let result =
                json!({ "height": height, "chunk": chunk, "transactions": transactions.len(), "gas": gas });
            all.insert((height, chunk), result);
        }
    }
    all
}

/// Each chunk is delivered once, in any order.
fn assert_delivered(project: &Project) {
    let results = lines(&project.read("out/results.ndjson"));
    let key = |result: &Value| {
        (result["height"].as_u64().expect("a number"), result["chunk"].as_u64().expect("a number"))
    };
    let by_key: BTreeMap<_, _> = results.iter().map(|result| (key(result), result.clone())).collect();
    assert_eq!(by_key.len(), results.len(), "a chunk came twice");
    assert_eq!(by_key, expected(project));
}

#[test]
fn every_block_is_split_and_every_chunk_executed_once() {
    let project = demonstration();
    project.append("blocks.toml", "\n[queue.chunks]\nretain = \"forever\"\n");
    project.run().done().says("done:");
    assert_delivered(&project);
    // The watermark has passed all of them, though late ones were finished out of order.
    assert_eq!(project.status("blocks/split", "blocks/blocks")["watermark"], 120);
    // The results have the order of the chunks.
    let place = |one: &Value| (one["height"].clone(), one["chunk"].clone());
    let chunks: Vec<_> = project.queue("blocks/chunks").iter().map(place).collect();
    let results: Vec<_> = lines(&project.read("out/results.ndjson")).iter().map(place).collect();
    assert_eq!(results, chunks);
    project.run().done().says("nothing to do");
    assert_delivered(&project);
}

#[test]
fn a_block_that_is_tried_again_holds_the_watermark_and_search_ahead() {
    let project = demonstration();
    let split = project.read("split.rhai");
    project.write(
        "split.rhai",
        split.replacen(") {", ") {\n    if block.height == 7 { retry_in(\"1h\", \"late\") }", 1),
    );
    let status = || project.status("blocks/split", "blocks/blocks");
    let is_held =
        |status: &Value| status["watermark"] == 6 && status["delayed"] == 1 && status["taken"] == 15;
    let mut running = project.started();
    // Ten blocks past the watermark is as far as it goes.
    running.wait_until("all that may run", || is_held(&status()));
    let why = project.tidegate(&["job", "show", "blocks/blocks/7"]).done().stdout;
    assert!(why.contains("late"), "{why}");
    assert!(running.kill());
    // A stopped store has the same watermark, and so has the next run.
    assert!(is_held(&status()), "{}", status());
    let mut running = project.started();
    running.wait_until("the next run", || is_held(&status()) && status()["running"] == 0);
    running.stop().done();
    project.assert_sound();
}

#[test]
fn blocks_that_come_while_nobody_is_there_are_made_up_for() {
    let project = demonstration();
    let all = project.read("data/blocks.ndjson");
    let (first, rest) = all.split_at(all.match_indices('\n').nth(40).expect("there are more").0 + 1);
    project.write("data/blocks.ndjson", first);
    project.run().done();
    project.append("data/blocks.ndjson", rest);
    project.run().done().says("done:");
    assert_delivered(&project);
}

#[test]
fn the_executor_begins_at_the_configured_block_once_and_later_at_its_progress() {
    let project = demonstration();
    let all = project.read("data/blocks.ndjson");
    let (first, rest) = all.split_at(all.match_indices('\n').nth(40).expect("there are more").0 + 1);
    project.write("data/blocks.ndjson", first);
    project.change("blocks.toml", "begin_at = 1\n", "begin_at = 31\n");
    project.run().done().says("the step starts at this job");
    project.change("blocks.toml", "begin_at = 31\n", "begin_at = \"newest\"\n");
    project.append("data/blocks.ndjson", rest);
    project.run().done();
    let results = lines(&project.read("out/results.ndjson"));
    let mut heights: Vec<u64> = results.iter().filter_map(|result| result["height"].as_u64()).collect();
    heights.sort_unstable();
    let wanted = expected(&project).into_keys().map(|(height, _)| height).filter(|height| *height > 30);
    assert_eq!(heights, wanted.collect::<Vec<_>>());
    project.assert_sound();
}

#[test]
fn a_chunk_that_cannot_be_executed_stops_the_step_there_and_it_goes_on_when_that_is_mended() {
    let project = demonstration();
    let good = project.read("execute.rhai");
    let bad = good.replace("let gas = 0;", "let gas = 0;\n    if chunk.height == 30 { throw \"no state\"; }");
    project.write("execute.rhai", bad);
    project.run().failed(1).says("no state");
    let left = expected(&project).len() - project.read("out/results.ndjson").lines().count();
    assert!(left > 0, "nothing is left for when it is mended");
    project.write("execute.rhai", good);
    project.run().done();
    assert_delivered(&project);
}

#[test]
fn the_executor_killed_again_and_again_delivers_the_same() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let project = demonstration();
    let bytes: u64 = expected(&project).values().map(|result| result.to_string().len() as u64 + 1).sum();
    let kills = kills(KILLS);
    let mut ended = 0;
    for kill in 0..kills {
        let results = "out/results.ndjson";
        let ahead = project.len(results) > bytes * 3 / 4 * (kill + 5) / (kills + 5);
        let moment = Moment::choose(&mut random, bytes / kills, ahead);
        let mut running = project.start(&["run", "."]);
        moment.wait(&project, results, &mut running);
        let said = running.stderr();
        ended += u64::from(!running.kill());
        assert!(!said.contains("panic"), "kill {kill}, seed {seed}:\n{said}");
    }
    assert!(ended < kills, "there was nothing to kill");
    project.run().done();
    assert_delivered(&project);
    project.assert_sound();
}

#[test]
fn a_chunk_that_cannot_be_executed_ends_a_run_that_follows_the_blocks_if_asked() {
    let project = demonstration();
    project.change("blocks.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    let block = json!({ "height": 121, "collections": [[{ "price": 1 }]] });
    project.append("data/blocks.ndjson", format!("{block}\n"));
    let outcome = project.tidegate(&["run", ".", "--exit-on-halt"]).failed(1);
    outcome.says("blocks/execute stopped at job").says("(`--exit-on-halt`)");
    project.assert_sound();
}
