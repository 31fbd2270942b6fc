//! Tests of finding and cancelling jobs over HTTP: by key, handle, status, step and lane.

use serde_json::json;

use crate::http_client::{Answer, Client, JSON, NDJSON};
use crate::http_source::{SINK, project, started};
use crate::project::Project;

/// Steps that pick: one waits behind a closed gate, in lanes, with an error queue.
const HELD: &str = "[step.work]\nfrom = \"requests\"\nrun = \"builtin:exec\"\nexec = { command = [\"true\"] }\nto = \"out\"\n\
    errors = \"failed\"\ngate = \"shut\"\nqueuer = { strategy = \"fifo\", lane = \"pool\" }\n\
    [gate.shut]\nrun = \"shut.rhai\"\nevery = \"1h\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";

fn held() -> Project {
    project("key = \"id\"", HELD).file("shut.rhai", "fn open(answer) { false }")
}

fn indices(answer: &Answer) -> Vec<&str> {
    let jobs = answer.body["jobs"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    jobs.iter()
        .map(|job| job["job"].as_str().and_then(|job| job.rsplit('/').next()).expect("an index"))
        .collect()
}

#[test]
fn a_job_is_found_by_its_key_and_jobs_by_status_step_and_lane_in_pages() {
    let project = held();
    let (running, place, mut client) = started(&project);
    let lines: Vec<String> = (1..=7)
        .map(|id| {
            json!({ "id": format!("o/{id} ü"), "pool": if id % 2 == 0 { "even" } else { "odd" } }).to_string()
        })
        .collect();
    client.request("POST /sources/p/requests", &[NDJSON], &lines.join("\n"));
    client.push("p/requests", r#"{"id":77,"pool":"even"}"#);
    let mut get = |parameters: &str| client.request(&format!("GET /jobs/p/requests?{parameters}"), &[], "");
    let found = get("key=o%2F3+%C3%BC");
    assert_eq!((found.status, found.job()), (200, "p/requests/3".to_owned()));
    assert_eq!(found.header("location"), Some("/jobs/p/requests/3"));
    assert_eq!(found.body["payload"]["pool"], "odd");
    assert_eq!(get("key=77").job(), "p/requests/8");
    assert_eq!(get("key=78").status, 404);
    assert_eq!(indices(&get("status=waiting&lane=even")), ["2", "4", "6", "8"]);
    let page = get("lane=even&limit=3&payload=true&step=p/work");
    assert_eq!((indices(&page), &page.body["next"]), (vec!["2", "4", "6"], &json!(6)));
    assert_eq!(page.body["jobs"][0]["payload"]["id"], "o/2 ü");
    assert!(page.body["jobs"][0]["time"].is_string(), "{page:?}");
    let none = get(&format!("after={}", u64::MAX));
    assert_eq!((none.status, &none.body["jobs"]), (200, &json!([])), "{none:?}");
    let rest = get("lane=even&limit=3&after=6");
    assert_eq!((indices(&rest), rest.body.get("next")), (vec!["8"], None));
    assert!(rest.body["jobs"][0].get("payload").is_none(), "{rest:?}");
    assert_eq!(indices(&get("status=done")), [""; 0]);
    assert_eq!(indices(&get("limit=2")), ["1", "2"]);
    for (parameters, status, error) in [
        ("status=wating", 400, "`wating` is not a status: use `waiting`"),
        ("step=p/wrk", 404, "step `p/wrk` does not read `p/requests`; did you mean `p/work`?"),
        ("limit=0", 400, "`limit` must be between 1 and 1000"),
        ("lanes=even", 400, "parameter `lanes` is unknown; did you mean `lane`?"),
        ("key=%zz", 400, "is not in percent-encoding"),
        ("key=77&status=done", 400, "parameter `status` has no effect beside `key`: leave out one of them"),
        ("handle=a&lane=even", 400, "parameter `lane` has no effect beside `handle`: leave out one of them"),
    ] {
        // A refusal may close its connection.
        let refused = Client::new(&place).request(&format!("GET /jobs/p/requests?{parameters}"), &[], "");
        assert_eq!(refused.status, status, "{parameters}");
        assert!(refused.error().contains(error), "{parameters}: {refused:?}");
    }
    running.stop().done();
}

#[test]
fn a_delete_cancels_a_job_that_waits() {
    let project = held();
    let (running, place, mut client) = started(&project);
    client.push("p/requests", r#"{"id":1,"pool":"a"}"#);
    client.push("p/requests", r#"{"id":2,"pool":"a"}"#);
    let answer = client.request("DELETE /jobs/p/requests/1", &[], "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["steps"][0]["status"], "failed");
    assert_eq!(answer.body["steps"][0]["reason"], "cancelled");
    assert!(answer.body["steps"][0]["ended"].is_string(), "{answer:?}");
    let again = client.request("DELETE /jobs/p/requests/1", &[], "");
    assert_eq!((again.status, again.error()), (409, "job p/requests/1 is finished: it cannot be cancelled"));
    for (step, error) in [
        ("p/work", "job p/requests/1 is finished at step `p/work`: it cannot be cancelled"),
        ("p/wrk", "step `p/wrk` does not read the queue of job p/requests/1: it cannot be cancelled"),
    ] {
        let again = client.request(&format!("DELETE /jobs/p/requests/1?step={step}"), &[], "");
        assert_eq!((again.status, again.error()), (409, error), "{step}");
    }
    let dropped = client.request("DELETE /jobs/p/requests/2?drop=true&step=p/work", &[], "");
    assert_eq!(
        (dropped.status, &dropped.body["steps"][0]["status"]),
        (200, &json!("cancelled")),
        "{dropped:?}"
    );
    assert_eq!(client.request("DELETE /jobs/p/requests/3", &[], "").status, 404);
    assert_eq!(Client::new(&place).request("GET /jobs/p/requests/2?drop=true", &[], "").status, 400);
    let list = client.request("GET /jobs/p/requests?status=failed", &[], "");
    assert_eq!(indices(&list), ["1"]);
    running.stop().done();
    assert_eq!(project.queue("p/failed").len(), 1);
    project.assert_sound();
}

#[test]
fn jobs_of_a_source_with_a_token_are_found_and_cancelled_with_it_only() {
    let project = project("token = \"open\"", SINK);
    let (running, place, mut client) = started(&project);
    let token = "authorization: Bearer open";
    assert_eq!(client.request("POST /sources/p/requests", &[JSON, token], r#"{"id":1}"#).status, 202);
    for request in ["GET /jobs/p/requests", "GET /jobs/p/requests?key=1", "DELETE /jobs/p/requests/1"] {
        let mut client = Client::new(&place);
        assert_eq!(client.request(request, &[], "").status, 401, "{request}");
    }
    assert_eq!(client.request("GET /jobs/p/requests", &[token], "").status, 200);
    running.stop().done();
}

#[test]
fn a_pending_job_is_found_by_its_handle_and_cancelled() {
    let step = "[step.work]\nfrom = \"requests\"\nrun = \"work.rhai\"\nto = \"out\"\nerrors = \"failed\"\n\
        [step.work.monitor]\nrun = \"status.rhai\"\nevery = \"1h\"\n[sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n";
    let project = project("", step)
        .file("work.rhai", "fn process(job) { pending(`0x${job.id}`) }")
        .file("status.rhai", "fn status(jobs) { jobs.map(|job| \"pending\") }");
    let (mut running, _, mut client) = started(&project);
    for id in 1..=3 {
        client.push("p/requests", &json!({ "id": id }).to_string());
    }
    let mut get = |path: &str| client.request(path, &[], "");
    running.wait_until("all of them", || indices(&get("GET /jobs/p/requests?status=pending")).len() == 3);
    let found = get("GET /jobs/p/requests?handle=0x2&payload=true");
    assert_eq!((indices(&found), &found.body["jobs"][0]["payload"]), (vec!["2"], &json!({ "id": 2 })));
    let step = &found.body["jobs"][0]["steps"][0];
    assert_eq!((&step["status"], &step["attempts"]), (&json!("pending"), &json!(1)), "{found:?}");
    assert!(step["since"].is_string() && step["first_attempt"].is_string(), "{found:?}");
    assert_eq!(step["submitted"], step["since"]);
    let submitted = step["submitted"].clone();
    assert_eq!(indices(&get("GET /jobs/p/requests?handle=0x4")), [""; 0]);
    let cancelled = get("DELETE /jobs/p/requests/2");
    assert_eq!((cancelled.status, &cancelled.body["steps"][0]["status"]), (200, &json!("failed")));
    assert_eq!(indices(&get("GET /jobs/p/requests?handle=0x2")), [""; 0]);
    let list = get("GET /jobs/p/requests?status=failed");
    let step = &list.body["jobs"][0]["steps"][0];
    assert_eq!((&step["submitted"], &step["attempts"]), (&submitted, &json!(1)), "{list:?}");
    assert!(step["first_attempt"].is_string() && step["ended"].is_string(), "{list:?}");
    assert_eq!(indices(&get("GET /jobs/p/requests?status=pending")), ["1", "3"]);
    running.stop().done();
}
