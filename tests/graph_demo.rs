//! Demonstration of graphs: compares its outputs with an independent computation from its data.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::moment::{Moment, kills};
use crate::project::Project;
use crate::random::Random;

const FEEDS: [&str; 2] = ["automatic", "reviewed"];
const SCRIPTS: [&str; 6] = ["merge", "sort", "locate", "measure", "rate", "report"];
const KILLS: u64 = 25;
/// Copies of the data for five kills, so that the run is long enough.
const COPIES: u64 = 2;

/// The demonstration on `copies` copies of its data, in which each quake has a unique `id`.
fn demonstration(copies: usize) -> Project {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/graph");
    let read = |name: &str| fs::read_to_string(original.join(name)).expect("the demonstration is there");
    let project = Project::new().file("reports.toml", read("reports.toml"));
    project.write("networks.csv", read("networks.csv"));
    for script in SCRIPTS.map(|name| format!("{name}.rhai")) {
        project.write(&script, read(&script));
    }
    for feed in FEEDS.map(|name| format!("data/{name}.ndjson")) {
        let (once, mut all) = (read(&feed), String::new());
        for copy in 0..copies {
            for line in once.lines() {
                let numbered = line.replacen("\",", &format!("-{copy}\","), 1);
                all.extend([&numbered, "\n"]);
            }
        }
        project.write(&feed, all);
    }
    project
}

fn lines(project: &Project, path: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    project.read(path).lines().map(parse).collect()
}

fn network(code: &Value) -> Option<&'static str> {
    Some(match code.as_str()? {
        "ak" => "Alaska Earthquake Center",
        "ci" => "Southern California Seismic Network",
        "hv" => "Hawaiian Volcano Observatory",
        "mb" => "Montana Regional Seismic Network",
        "nc" => "Northern California Seismic Network",
        "nm" => "New Madrid Seismic Network",
        "nn" => "Nevada Seismic Network",
        "pr" => "Puerto Rico Seismic Network",
        "us" => "National Earthquake Information Center",
        "uu" => "University of Utah",
        "uw" => "Pacific Northwest Seismic Network",
        _ => return None,
    })
}

/// The expected outputs of a feed: the quakes of known networks, and the `id`s of the others.
fn merged(project: &Project, feed: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for mut quake in lines(project, &format!("data/{feed}.ndjson")) {
        if quake["type"] != "earthquake" {
            continue;
        }
        match network(&quake["net"]) {
            Some(network) => {
                quake["feed"] = feed.into();
                quake["network"] = network.into();
                let (felt, tsunami) = (!quake["felt"].is_null(), quake["tsunami"] == 1);
                quake["topics"] = json!({ "felt": felt, "tsunami": tsunami });
                known.push(quake);
            }
            None => unknown.push(quake["id"].clone()),
        }
    }
    (known, unknown)
}

/// Jobs in the order of their `id`.
fn by_id(mut jobs: Vec<Value>) -> Vec<Value> {
    jobs.sort_by_key(|job| job["id"].to_string());
    jobs
}

fn magnitude(quake: &Value) -> f64 {
    quake["mag"].as_f64().expect("each quake has been measured")
}

fn is_unjudged(quake: &Value) -> bool {
    magnitude(quake) >= 5.0 && !quake["felt"].is_null() && quake["alert"].is_null()
}

fn report(quake: &Value) -> Value {
    let place = quake["place"].as_str().expect("a text");
    let region = place.rsplit(", ").next().expect("there is always a last part");
    let distance = place.split_once("km ").map(|(distance, _)| distance.parse::<u64>().expect("a number"));
    let significance = quake["sig"].as_u64().expect("a number");
    let rating = if significance >= 600 {
        "major"
    } else if significance >= 400 {
        "moderate"
    } else {
        "minor"
    };
    let tons = 10_f64.powf(1.5 * magnitude(quake) + 4.8) / 4.184e9;
    json!({
        "id": quake["id"],
        "title": format!("Magnitude {}, {region}", quake["mag"]),
        "distance_km": distance,
        // Without the `.0` of a whole number.
        "tons_of_tnt": format!("{tons:.0}").parse::<u64>().expect("a number"),
        "rating": rating,
        "network": quake["network"],
        "alert": quake["alert"],
    })
}

/// Asserts that every expected output exists once, and no other.
///
/// The order in which the feeds deliver, and that of the catalogue, is open; all later outputs follow that
/// order, up to the join: its tuples are complete in any order.
fn assert_delivered(project: &Project) {
    let catalogue = lines(project, "out/catalogue.ndjson");
    let mut feeds: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for quake in &catalogue {
        feeds.entry(quake["feed"].as_str().expect("a text")).or_default().push(quake);
    }
    let mut unknown = Vec::new();
    for feed in FEEDS {
        let (known, others) = merged(project, feed);
        assert_eq!(feeds.remove(feed).unwrap_or_default(), known.iter().collect::<Vec<_>>(), "{feed}");
        unknown.extend(others);
    }
    let of = |wanted: fn(&Value) -> bool| catalogue.iter().filter(move |quake| wanted(quake)).cloned();
    let felt = of(|quake| !quake["felt"].is_null());
    assert_eq!(lines(project, "out/felt.ndjson"), felt.collect::<Vec<_>>());
    let light = of(|quake| magnitude(quake) < 4.5)
        .map(|quake| json!({ "id": quake["id"], "mag": quake["mag"], "place": quake["place"] }));
    assert_eq!(lines(project, "out/light.ndjson"), light.collect::<Vec<_>>());

    let judged: Vec<Value> = of(|quake| magnitude(quake) >= 4.5 && !is_unjudged(quake)).collect();
    let reports: Vec<Value> = judged.iter().map(report).collect();
    assert_eq!(by_id(lines(project, "out/reports.ndjson")), by_id(reports.clone()));
    let alarms =
        judged.iter().zip(&reports).filter(|(quake, _)| magnitude(quake) >= 6.0 || quake["tsunami"] == 1);
    let alarms = alarms.map(|(quake, report)| {
        json!({ "id": quake["id"], "title": report["title"], "tsunami": quake["tsunami"] == 1 })
    });
    assert_eq!(by_id(lines(project, "out/alarms.ndjson")), by_id(alarms.collect()));

    let failed = project.queue("reports/failed");
    let failed = failed.iter().map(|record| record["job"]["reviewed"]["id"].clone());
    assert_eq!(failed.collect::<Vec<_>>(), unknown);
    let to_review = project.queue("reports/to_review");
    let of_both = |record: &Value| {
        let job = &record["job"];
        let ids = ["place", "strength", "rating"].map(|part| job[part]["id"].to_string());
        (ids, record["context"].clone())
    };
    let unjudged = of(is_unjudged).map(|quake| {
        let id = &quake["id"];
        ([(); 3].map(|()| id.to_string()), json!({ "id": id, "felt": quake["felt"] }))
    });
    let sorted = |mut found: Vec<([String; 3], Value)>| {
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    };
    assert_eq!(sorted(to_review.iter().map(of_both).collect()), sorted(unjudged.collect()));
}

#[test]
fn the_graph_demo_delivers_what_its_data_add_up_to_and_a_second_run_adds_nothing() {
    let project = demonstration(1);
    project.run().done().says("done: 706 jobs").says("12 failed → reports/to_review");
    assert_delivered(&project);
    let (status, outputs) = (project.json(&["status"]), project.read("out/reports.ndjson"));
    assert_eq!(outputs.lines().count(), 73);

    project.run().done().says("nothing to do");
    assert_eq!(project.json(&["status"]), status);
    assert_eq!(project.read("out/reports.ndjson"), outputs);
    assert_delivered(&project);
}

#[test]
fn an_error_says_which_quake_it_was_and_what_it_has_passed() {
    let project = demonstration(1);
    project.run().done();
    let record = &project.queue("reports/failed")[0];
    assert_eq!(record["context"], json!({ "network": "se", "place": "8km NE of Sweetwater, Tennessee" }));
    assert_eq!(record["inputs"], json!({ "reviewed": { "from": "reports/reviewed", "index": 385 } }));
    assert_eq!(record["meta"]["reports/reviewed"]["line"], record["file"]["line"]);
    let record = &project.queue("reports/to_review")[1];
    assert_eq!(record["input"], "reports/report-joined");
    let [located, measured, rated] = ["located", "measured", "rated"]
        .map(|queue| record["meta"][format!("reports/{queue}")]["index"].as_u64().expect("a number"));
    // Two of the branches keep the order.
    assert_eq!(located, measured);
    assert!(rated > 0);
    let index = record["meta"]["reports/quakes"]["index"].as_u64().expect("a number");
    let place = usize::try_from(index - 1).expect("it is small");
    assert_eq!(lines(&project, "out/catalogue.ndjson")[place]["id"], record["job"]["place"]["id"]);
}

#[test]
fn the_graph_demo_killed_again_and_again_delivers_the_same() {
    let seed = Random::seed();
    println!("again with TIDEGATE_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let kills = kills(KILLS);
    let project = demonstration(usize::try_from(1 + kills * COPIES / 5).expect("it is small"));
    let catalogue = "out/catalogue.ndjson";
    // The approximate size of the outputs: slightly more than the quakes.
    let bytes = FEEDS.map(|feed| project.len(format!("data/{feed}.ndjson"))).iter().sum::<u64>() * 5 / 4;
    let mut cut_back = 0;
    for kill in 0..kills {
        let ahead = project.len(catalogue) > bytes * 3 / 4 * (kill + 10) / (kills + 10);
        let moment = Moment::choose(&mut random, bytes / kills, ahead);
        let mut running = project.start(&["run", "."]);
        moment.wait(&project, catalogue, &mut running);
        let said = running.stderr();
        assert!(running.kill(), "it ended before kill {kill}, {moment:?}, seed {seed}:\n{said}");
        cut_back += u64::from(said.contains("cuts off uncommitted bytes"));
        assert!(!said.contains("error") && !said.contains("panic"), "kill {kill}, seed {seed}:\n{said}");
    }
    println!("{cut_back} times something had to be cut off");
    assert!(cut_back > 0, "no kill came between an output file and the store");
    project.run().done().says("done:");
    assert_delivered(&project);
    project.assert_sound();
}
