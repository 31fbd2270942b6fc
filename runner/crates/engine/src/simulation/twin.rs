//! Twin: implements the simulated scripts in Rhai and, for the model, in Rust.

use serde_json::{Value, json};

use tidegate_config::{InputMode, Step};
use tidegate_model::DeliveryHash;

/// Script of every scripted step. The step's `config` controls its behaviour. Each job that it makes has the version of
/// the script, which replaces `VERSION`.
pub(crate) const WORK: &str = r#"
fn field(job, key, other) {
    if type_of(job) == "map" && key in job { job[key] } else { other }
}

fn make(id, n, salt, hash) {
    let r = (n * 7 + salt) % 23;
    let job = #{ id: id, n: n, version: VERSION };
    job.fail = if r == 0 { 1 } else if r == 1 { 2 } else if r == 2 { 9 } else { 0 };
    job.type = ["x", "y", "z"][n % 3];
    job.topics = if n % 2 == 0 { ["even"] } else { ["odd", "any"] };
    if hash != "" { job.hash = hash; }
    job
}

fn split(id, n, c, hash) {
    let all = [];
    for k in 0..(n % 3) {
        let name = id + "." + k;
        all.push(make(name, n + k, c.salt, hash));
    }
    all
}

fn count(id, n, c, hash) {
    let left = n % 6;
    if left > 0 {
        let job = make(id, left - 1, c.salt, hash);
        return #{ again: job };
    }
    let job = make(id, n + 1, c.salt, hash);
    #{ done: job }
}

fn fork(id, n, c, hash) {
    let outs = #{};
    let at = 0;
    for name in c.outs {
        let way = (n + at * c.salt) % 4;
        let to = id + "." + name;
        let one = make(to, n + at, c.salt, hash);
        to += "2";
        let two = make(to, n + at, c.salt, hash);
        if way == 1 { outs[name] = one; }
        if way == 2 { outs[name] = [one, two]; }
        if way == 3 { emit(name, one); }
        at += 1;
    }
    outs
}

fn fail(id, n, c) {
    if c.mode == "fork" { emit(c.outs[0], "never"); }
    if n % 2 == 0 { throw "no " + id; }
    reject("no " + id, #{ n: n });
}

fn process(job, ctx) {
    let c = ctx.config;
    let id = "";
    let n = 0;
    let fails = 0;
    for part in if c.take == "from" { [job] } else { job.values() } {
        let name = "e";
        name += field(part, "hash", "");
        id += field(part, "id", name);
        n += field(part, "n", 1);
        let f = field(part, "fail", 0);
        if f > fails { fails = f; }
    }
    if c.take == "join" { id = "(" + id + ")"; }
    id += "/" + c.tag;
    if !c.calm && fails >= ctx.attempt { fail(id, n, c); }
    let hash = if c.hash { ctx.hash } else { "" };
    switch c.mode {
        "mark" => make(id, n + 1, c.salt, hash),
        "split" => split(id, n, c, hash),
        "count" => count(id, n, c, hash),
        _ => fork(id, n, c, hash),
    }
}
"#;

/// Script of the steps that look up: the same, and each job has the row that was found for it.
pub(crate) fn looking() -> String {
    WORK.replace(
        "\n    job\n",
        "\n    job.seen = field(lookup(\"rows\", job.type), \"id\", \"\");\n    job\n",
    )
}

/// Second script of a chain.
pub(crate) const AGAIN: &str = "fn process(job) { job.id += \"+\"; job }\n";

/// Input of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Payload of the attempt, with its bindings if the step sees them.
    pub(crate) whole: Vec<u8>,
    /// Whether all its parts are JSON.
    pub(crate) sound: bool,
}

/// Result of an attempt: jobs by output of the step, or the kind of its failure.
pub(crate) type Made = Result<Vec<Vec<Value>>, &'static str>;

/// Result of a job after all its attempts, from the attempt `first` on, with the number of the last one.
pub(crate) fn attempts(step: &Step, given: &Given, first: u32, hash: DeliveryHash) -> (u32, Made) {
    let most = step.retry_policy().map_or(1, |policy| policy.max_attempts);
    let mut number = first;
    loop {
        let made = attempt(step, given, number, hash);
        // A rejected job, or one that is not JSON, is not retried.
        if made != Err("failed") || number >= most {
            return (number, made);
        }
        number += 1;
    }
}

fn attempt(step: &Step, given: &Given, attempt: u32, hash: DeliveryHash) -> Made {
    let nothing = vec![Vec::new(); step.outputs.len()];
    if !given.sound {
        return Err("payload");
    }
    let job: Value = serde_json::from_slice(&given.whole).unwrap();
    if !passes(step, &job)? {
        return Ok(nothing);
    }
    if step.processors.is_empty() {
        let wrapped = step.take == InputMode::Alts && !step.filter.is_empty();
        let job = if wrapped { parts(&job)[0].clone() } else { job };
        return Ok(vec![vec![job]; step.outputs.len()]);
    }
    let config = &step.config;
    let parts = if step.take == InputMode::From { vec![&job] } else { parts(&job) };
    let mut id: String = parts.iter().map(|part| id_of(part)).collect();
    let n: i64 = parts.iter().map(|part| part["n"].as_i64().unwrap_or(1)).sum();
    let fail = parts.iter().map(|part| part["fail"].as_i64().unwrap_or(0)).max().unwrap_or(0);
    if step.take == InputMode::Join {
        id = format!("({id})");
    }
    id = format!("{id}/{}", config["tag"].as_str().unwrap());
    if config["calm"] == false && fail >= i64::from(attempt) {
        return Err(if n % 2 == 0 { "failed" } else { "rejected" });
    }
    let made = work(config, &id, n, hash);
    let chained = step.processors.len() > 1;
    let mut outputs = nothing;
    for (name, mut job) in made {
        if chained {
            job["id"] = format!("{}+", job["id"].as_str().unwrap()).into();
        }
        if let Some(at) = step.outputs.iter().position(|output| output.binding == name) {
            outputs[at].push(job);
        }
    }
    Ok(outputs)
}

/// Jobs that the script makes, each with its binding.
fn work(config: &Value, id: &str, n: i64, hash: DeliveryHash) -> Vec<(String, Value)> {
    let salt = config["salt"].as_i64().unwrap();
    let hash = (config["hash"] == true).then(|| hash.to_string());
    let make = |id: String, n: i64| {
        let fail = match (n * 7 + salt) % 23 {
            0 => 1,
            1 => 2,
            2 => 9,
            _ => 0,
        };
        let topics = if n % 2 == 0 { json!(["even"]) } else { json!(["odd", "any"]) };
        let kind = ["x", "y", "z"][usize::try_from(n % 3).unwrap()];
        let mut job = json!({ "id": id, "n": n, "fail": fail, "type": kind, "topics": topics });
        if let Some(hash) = &hash {
            job["hash"] = hash.as_str().into();
        }
        job
    };
    match config["mode"].as_str().unwrap() {
        "mark" => vec![(String::new(), make(id.to_owned(), n + 1))],
        "split" => (0..n % 3).map(|k| (String::new(), make(format!("{id}.{k}"), n + k))).collect(),
        "count" if n % 6 == 0 => vec![("done".to_owned(), make(id.to_owned(), n + 1))],
        "count" => vec![("again".to_owned(), make(id.to_owned(), n % 6 - 1))],
        _ => {
            let mut all = Vec::new();
            for (at, name) in (0..).zip(config["outs"].as_array().unwrap()) {
                let name = name.as_str().unwrap();
                let way = (n + at * salt) % 4;
                if way > 0 {
                    all.push((name.to_owned(), make(format!("{id}.{name}"), n + at)));
                }
                if way == 2 {
                    all.push((name.to_owned(), make(format!("{id}.{name}2"), n + at)));
                }
            }
            all
        }
    }
}

fn id_of(part: &Value) -> String {
    let of = |key: &str| part[key].as_str().map(str::to_owned);
    of("id").unwrap_or_else(|| format!("e{}", of("hash").unwrap_or_default()))
}

/// Parts of a joined job or of an alternative, in the order of the bindings.
fn parts(job: &Value) -> Vec<&Value> {
    job.as_object().unwrap().values().collect()
}

fn passes(step: &Step, job: &Value) -> Result<bool, &'static str> {
    let filter = &step.filter;
    if filter.is_empty() {
        return Ok(true);
    }
    let inner = if step.take == InputMode::Alts { parts(job)[0] } else { job };
    let has = |field: &str, wanted: &[String]| match &inner[field] {
        Value::String(text) => wanted.contains(text),
        Value::Array(all) => {
            all.iter().filter_map(Value::as_str).any(|text| wanted.iter().any(|w| w == text))
        }
        _ => false,
    };
    if !filter.types.is_empty() && !has("type", &filter.types)
        || !filter.topics.is_empty() && !has("topics", &filter.topics)
    {
        return Ok(false);
    }
    let Some((when, _)) = &filter.when else { return Ok(true) };
    match step.take {
        // Same as `"a" in job`.
        InputMode::Alts => Ok(job.get("a").is_some()),
        // Same as `job.a.n % 2 == 0`, or without the binding.
        InputMode::Join => even(&job["a"]["n"], when),
        InputMode::From => even(&job["n"], when),
    }
}

fn even(n: &Value, when: &str) -> Result<bool, &'static str> {
    debug_assert!(when.ends_with(".n % 2 == 0"));
    n.as_i64().map(|n| n % 2 == 0).ok_or("failed")
}
