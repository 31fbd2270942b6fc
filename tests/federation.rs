//! Demonstration of posts for other sites, some of which do not answer: checks its description of the delayed
//! queue sentence by sentence, and that no post is lost across kills.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::moment::Moment;
use crate::project::Project;
use crate::random::Random;
use crate::running::Running;

const KILLS: u64 = 15;
/// A network in which a site answers unless it is in the folder `down`; `log` records every attempt.
const NETWORK: &str = "#!/bin/sh\necho \"$2 $TIDEGATE_ATTEMPT\" >> log\n\
                       if [ -e \"down/$1\" ]; then echo \"$1 does not answer\" >&2; exit 1; fi\n\
                       echo \"{ \\\"id\\\": $2 }\"\n";

/// The demonstration with these posts, and this network; later posts and messages are read too.
fn demonstration(posts: &str, network: &str) -> Project {
    let project = Project::demonstration("federation");
    project.change("federation.toml", "format = \"ndjson\"", "format = \"ndjson\"\nfollow = true");
    project.write("data/posts.ndjson", posts);
    // The old file may be in execution.
    project.write("send.sh", network);
    project.write("down/away", "");
    project
}

/// The first delay after a failure, instead of a second.
fn with_first_delay(project: &Project, initial: &str) {
    project.change("federation.toml", "initial = \"1s\"", &format!("initial = \"{initial}\""));
}

fn posts(ids: impl IntoIterator<Item = u64>, kind: &str, site: &str) -> String {
    let mut posts = String::new();
    for id in ids {
        let _ = writeln!(posts, "{}", json!({ "id": id, "kind": kind, "site": site })); // into a text
    }
    posts
}

fn sent(project: &Project) -> Vec<u64> {
    let sent = project.read_if_there("out/sent.ndjson");
    sent.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_u64()).collect()
}

/// The attempts of a post so far, in order.
fn attempts(project: &Project, id: u64) -> Vec<u64> {
    let log = project.read_if_there("log");
    let numbers = log.lines().filter_map(|line| line.split_once(' '));
    numbers.filter(|(of, _)| *of == id.to_string()).filter_map(|(_, number)| number.parse().ok()).collect()
}

fn delayed(project: &Project) -> Vec<Value> {
    project.json(&["delayed", "list", "--limit", "10000"])["jobs"].as_array().expect("a list").clone()
}

fn wait_for_sent(running: &mut Running, project: &Project, many: usize) {
    running.wait_until("what is sent", || sent(project).len() >= many);
}

#[test]
fn what_does_not_answer_is_tried_again_until_it_does_or_its_time_is_over() {
    let project = Project::demonstration("federation");
    with_first_delay(&project, "20ms");
    project.change("federation.toml", "ttl = \"5s\"", "ttl = \"100ms\"");
    project.change("data/posts.ndjson", "\"3s\"", "\"30ms\"");
    let ran = project.run().done();
    // At 0, 20 and 60 ms; the fourth one, at 140 ms, would be too late.
    assert!(ran.stderr.contains("the next attempt would be past the `ttl` of 100ms"), "{}", ran.stderr);
    let sent = project.read("out/sent.ndjson");
    let mut sent: Vec<Value> = sent.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    sent.sort_by_key(|sent| sent["id"].as_u64());
    let said = |id, site, attempts| json!({ "id": id, "site": site, "attempts": attempts });
    let [near, far, other] = ["near.example", "far.example", "other.example"];
    assert_eq!(
        sent,
        [said(1, near, 1), said(2, near, 1), said(3, far, 4), said(5, near, 1), said(6, other, 1)]
    );
    project.run().done().says("nothing to do");
}

#[test]
fn a_post_follows_a_site_that_has_moved_also_after_a_kill() {
    let project = demonstration("", "#!/bin/sh\necho \"{ \\\"id\\\": $2, \\\"site\\\": \\\"$1\\\" }\"\n");
    let mut running = project.started();
    let rows = |project: &Project| project.json(&["status"])["tables"][0]["rows"].as_u64();
    running.wait_until("the first message", || rows(&project) == Some(1));
    let moves = |to: &str| format!("{}\n", json!({ "type": "moved", "site": "far.example", "to": to }));
    project.append("data/messages.ndjson", [moves("a.example"), moves("b.example")].concat());
    running.wait_until("the messages", || project.queue("federation/moves").len() == 3);
    let push = |id, site| posts([id], "push", site);
    project.append("data/posts.ndjson", [push(1, "old.example"), push(2, "far.example")].concat());
    wait_for_sent(&mut running, &project, 2);
    assert!(running.kill(), "it ended by itself");
    let mut running = project.started();
    project.append("data/posts.ndjson", [push(3, "far.example"), push(4, "other.example")].concat());
    wait_for_sent(&mut running, &project, 4);
    running.stop().done();
    let sent = project.read("out/sent.ndjson");
    let mut sent: Vec<Value> = sent.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    sent.sort_by_key(|sent| sent["id"].as_u64());
    let sites: Vec<_> = sent.iter().map(|sent| sent["site"].as_str().expect("a site")).collect();
    assert_eq!(sites, ["near.example", "b.example", "b.example", "other.example"]);
    project.assert_sound();
}

#[test]
fn an_item_is_put_back_for_a_while_or_until_a_time_and_comes_no_sooner() {
    let project = demonstration("", NETWORK);
    project.change("federation.toml", "[sink.sent]", "[queue.pushes]\nretain = \"forever\"\n[sink.sent]");
    let mut running = project.started();
    // The times count from here: the start of the runner may take as long as it likes.
    let begun = Timestamp::now();
    let at = begun + Duration::from_secs(4);
    let later = format!(
        "{}\n{}\n{}\n",
        json!({ "id": 1, "kind": "push", "site": "a", "after": "5s" }),
        json!({ "id": 2, "kind": "push", "site": "a", "at": at.to_string() }),
        json!({ "id": 3, "kind": "push", "site": "a" }),
    );
    project.append("data/posts.ndjson", later);
    wait_for_sent(&mut running, &project, 3);
    // By due time, not by arrival.
    assert_eq!(sent(&project), [3, 2, 1]);
    running.stop().done();
    let shown = project.json(&["queue", "show", "federation/pushes"]);
    let shown = shown.as_array().expect("a list").iter();
    let times: Vec<Timestamp> = shown.filter_map(|job| job["time"].as_str()?.parse().ok()).collect();
    assert!(times[1] >= at, "{times:?} {at}");
    assert!(times[2].duration_since(begun).as_millis() >= 5000, "{times:?} {begun}");
}

#[test]
fn an_item_holds_its_transport_payload_site_retry_count_and_time() {
    let project = demonstration(&posts(7..=7, "push", "away"), NETWORK);
    with_first_delay(&project, "1h");
    let mut running = project.started();
    running.wait_until("the delay", || delayed(&project).len() == 1);
    running.stop().done();
    let item = &delayed(&project)[0];
    let transport = (&item["step"], &item["jobs"][0]);
    assert_eq!(transport, (&json!("federation/send_push"), &json!("federation/pushes/1")), "{item}");
    assert_eq!(item["attempts"], 1, "{item}");
    assert!(item["last_error"].as_str().is_some_and(|why| why.contains("away does not answer")), "{item}");
    let due: Timestamp = item["due"].as_str().and_then(|due| due.parse().ok()).expect("a time");
    assert!(due > Timestamp::now() + Duration::from_mins(50), "{item}");
    // An export contains the queue.
    let exported = project.tidegate(&["store", "export", "-"]).done().stdout;
    let held = r#""payload":{"json":{"id":7,"kind":"push","site":"away"}}"#;
    assert!(exported.contains(held), "{exported}");
}

#[test]
fn delays_double_and_nothing_is_tried_sooner() {
    let project = demonstration(&posts(1..=1, "push", "away"), NETWORK);
    with_first_delay(&project, "20ms");
    let begun = Instant::now();
    let mut running = project.start(&["run", "."]);
    running.wait_until("the fifth attempt", || attempts(&project, 1).len() >= 5);
    // 20 + 40 + 80 + 160
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(attempts(&project, 1)[..5], [1, 2, 3, 4, 5]);
    running.stop().done();
    // As in the demonstration, up to hours.
    let toml = Project::demonstration("federation").read("federation.toml");
    assert!(toml.contains("initial = \"1s\", max = \"4h\"") && toml.contains("ttl = \"1d\""), "{toml}");
}

#[test]
fn instant_messages_are_dropped_soon_and_pushes_are_tried_on() {
    let both = [posts(1..=1, "instant", "away"), posts(2..=2, "push", "away")].concat();
    let project = demonstration(&both, NETWORK);
    with_first_delay(&project, "10ms");
    project.change("federation.toml", "ttl = \"5s\"", "ttl = \"50ms\"");
    let mut running = project.start(&["run", "."]);
    running.wait_until_it_says("the next attempt would be past the `ttl`");
    let tried = attempts(&project, 1).len();
    running.wait_until("the push", || attempts(&project, 2).len() > tried + 1);
    std::fs::remove_file(project.path().join("down/away")).expect("it is there");
    wait_for_sent(&mut running, &project, 1);
    running.stop().done();
    assert_eq!(sent(&project), [2]);
    assert_eq!(attempts(&project, 1).len(), tried);
    assert!(project.queue("federation/failed").is_empty());
}

#[test]
fn an_item_that_is_due_sooner_is_not_kept_by_many_that_wait_for_long() {
    let mut many = String::new();
    for id in 1..=2000 {
        let post = json!({ "id": id, "kind": "push", "site": format!("site-{id}"), "after": "1h" });
        let _ = writeln!(many, "{post}"); // into a text
    }
    let project = demonstration(&many, NETWORK);
    let mut running = project.started();
    running.wait_until("all of them", || {
        project.status("federation/route", "federation/posts")["delayed"] == 2000
    });
    let sooner = json!({ "id": 2001, "kind": "push", "site": "a", "after": "50ms" });
    project.append("data/posts.ndjson", format!("{sooner}\n"));
    wait_for_sent(&mut running, &project, 1);
    running.stop().done();
    assert_eq!(sent(&project), [2001]);
}

#[test]
fn an_unexpected_failure_loses_nothing() {
    let project = demonstration(&posts(1..=4, "push", "a"), NETWORK);
    with_first_delay(&project, "10ms");
    // An unexpected error, in the script and in the command.
    let good = project.read("route.rhai");
    project.change(
        "route.rhai",
        "fn process(post) {",
        "fn process(post) { if post.id == 2 { post.no.such; }",
    );
    project.write(
        "send.sh",
        NETWORK.replace("echo \"{", "[ \"$TIDEGATE_ATTEMPT\" = 1 ] && kill -9 $$; echo \"{"),
    );
    let mut running = project.start(&["run", "."]);
    wait_for_sent(&mut running, &project, 3);
    running.stop().done();
    let failed = project.queue("federation/failed");
    assert_eq!((failed.len(), &failed[0]["job"]["id"]), (1, &json!(2)), "{failed:?}");
    project.write("route.rhai", good);
    project.tidegate(&["errors", "retry", "federation/failed", "--yes"]).done();
    let mut running = project.start(&["run", "."]);
    wait_for_sent(&mut running, &project, 4);
    running.stop().done();
    assert_eq!(sent(&project).into_iter().collect::<BTreeSet<_>>(), (1..=4).collect());
    assert_eq!(sent(&project).len(), 4);
}

#[test]
fn retries_of_one_site_do_not_keep_the_others_waiting_and_are_not_made_all_the_time() {
    let project =
        demonstration(&[posts(1..=60, "push", "away"), posts(61..=80, "push", "near")].concat(), NETWORK);
    with_first_delay(&project, "1h");
    // The hanging ones must not run into a timeout, which would begin others.
    project.change("federation.toml", "queuer = \"sites\"", "queuer = \"sites\"\ntimeout = \"10m\"");
    let slow = NETWORK.replace("if [", "while [ $1 = away ] && [ ! -e go ]; do sleep 0.01; done\nif [");
    project.write("send.sh", slow);
    let mut running = project.started();
    // Posts of the other site are sent while sixty hang.
    wait_for_sent(&mut running, &project, 20);
    let hang = || (1..=60).filter(|&id| !attempts(&project, id).is_empty()).count();
    // A command that has begun may not have logged it yet.
    running.wait_until("the share of the site", || hang() >= 4);
    assert_eq!(hang(), 4, "a site has no more than its share");
    project.write("go", "");
    running.wait_until("the delays", || delayed(&project).len() == 60);
    running.stop().done();
    for id in 1..=60 {
        assert_eq!(attempts(&project, id), [1], "{id}");
    }
}

#[test]
fn killed_again_and_again_every_post_is_sent_once_and_none_early() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let project =
        demonstration("", &NETWORK.replace("echo \"{", "echo \"$2 $TIDEGATE_HASH\" >> arrived; echo \"{"));
    with_first_delay(&project, "5ms");
    project.change("federation.toml", "max = \"4h\"", "max = \"50ms\"");
    // The test kills the process, not a post.
    project.change("federation.toml", "queuer = \"sites\"", "queuer = \"sites\"\ncrash_limit = 100");
    let (mut next, mut not_before, mut killed) = (1, BTreeMap::new(), 0);
    for kill in 0..=KILLS {
        for id in next..next + 8 {
            let wait = random.below(150);
            let at = Timestamp::now() + Duration::from_millis(wait);
            let site = if random.below(3) == 0 { "away" } else { "near" };
            let mut post = json!({ "id": id, "kind": "push", "site": site });
            if random.below(2) == 0 {
                post["at"] = at.to_string().into();
                not_before.insert(id, at);
            }
            project.append("data/posts.ndjson", format!("{post}\n"));
        }
        next += 8;
        let mut running = project.start(&["run", "."]);
        if kill < KILLS {
            let moment = Moment::After(Duration::from_micros(random.below(120_000)));
            moment.wait(&project, "out/sent.ndjson", &mut running);
            assert!(!running.stderr().contains("panic"), "kill {kill}, seed {seed}:\n{}", running.stderr());
            killed += u64::from(running.kill());
        } else {
            std::fs::remove_file(project.path().join("down/away")).expect("it is there");
            let all = usize::try_from(next - 1).expect("few");
            wait_for_sent(&mut running, &project, all);
            running.stop().done();
        }
    }
    assert_eq!(killed, KILLS);
    project.assert_sound();
    let mut all = sent(&project);
    all.sort_unstable();
    assert_eq!(all, (1..next).collect::<Vec<_>>(), "seed {seed}");
    // A site recognizes a repeated post by its hash.
    let mut hashes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in project.read("arrived").lines() {
        let (id, hash) = line.split_once(' ').expect("two words");
        hashes.entry(id.to_owned()).or_default().insert(hash.to_owned());
    }
    assert!(hashes.values().all(|hashes| hashes.len() == 1), "{hashes:?}");
    assert!(project.queue("federation/failed").is_empty());
}

#[test]
fn the_posts_for_a_site_that_is_back_are_sent_at_once_and_those_for_others_wait() {
    let all = [posts(1..=3, "push", "away"), posts(4..=5, "push", "gone")].concat();
    let project = demonstration(&all, NETWORK);
    project.write("down/gone", "");
    with_first_delay(&project, "1h");
    let mut running = project.started();
    // A post whose attempt runs has a row, too.
    let waiting = || delayed(&project).iter().filter(|job| job["waits_for"] == "time").count();
    running.wait_until("all of them", || waiting() == 5);
    std::fs::remove_file(project.path().join("down/away")).expect("it is there");
    let now = ["delayed", "now", "federation/send_push", "--lane", "away", "--where", "job.id != 2", "--yes"];
    project.tidegate(&now).done();
    running.wait_until("its posts", || sent(&project).len() == 2);
    running.stop().done();
    let mut sent = sent(&project);
    sent.sort_unstable();
    assert_eq!(sent, [1, 3]);
    assert_eq!(waiting(), 3);
}
