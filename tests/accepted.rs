//! Tests of the schema and the `accept` script of an HTTP source: jobs that do not fit are refused, and not taken.

use serde_json::json;

use crate::http_client::{JSON, NDJSON};
use crate::http_source::{SINK, project, started};

const SCHEMA: &str = r#"{
  "type": "object",
  "required": ["id"],
  "properties": { "id": { "type": "integer" }, "amount": { "type": "number", "exclusiveMinimum": 0 } }
}"#;

#[test]
fn what_does_not_match_the_schema_is_refused_with_its_places_and_not_taken() {
    let project =
        project("schema = \"order.schema.json\"\nkey = \"id\"", SINK).file("order.schema.json", SCHEMA);
    let (mut running, _, mut client) = started(&project);
    let post = "POST /sources/p/requests";
    let refused = client.request(post, &[JSON], r#"{"id": "seven", "amount": 0}"#);
    assert_eq!(refused.status, 422, "{refused:?}");
    let mut at: Vec<_> =
        refused.body["places"].as_array().expect("places").iter().map(|one| &one["at"]).collect();
    at.sort_by_key(ToString::to_string);
    assert_eq!(at, ["/amount", "/id"]);
    assert!(refused.body["places"][0].get("line").is_none(), "{refused:?}");
    assert!(
        refused
            .error()
            .starts_with("the body does not match the schema of the source; nothing was accepted: "),
        "{refused:?}"
    );
    // The values of a client are not repeated, since answers may be logged.
    assert!(!refused.body.to_string().contains("seven"), "{refused:?}");
    let lines = "{\"id\":1}\n\n{\"amount\":1}\n[]\n";
    let refused = client.request(post, &[NDJSON], lines);
    assert_eq!(refused.status, 422, "{refused:?}");
    let lines: Vec<_> =
        refused.body["places"].as_array().expect("places").iter().map(|one| &one["line"]).collect();
    assert_eq!(lines, [3, 4]);
    let many = "{}\n".repeat(500);
    let refused = client.request(post, &[NDJSON], &many);
    assert_eq!(refused.body["places"].as_array().expect("places").len(), 100);
    // A body that is no JSON is another mistake.
    assert_eq!(client.request(post, &[JSON], "{").status, 400);
    // A number beyond all floats is JSON.
    let refused = client.request(post, &[NDJSON], "{\"id\":1}\n{\"id\":1,\"more\":1e400}\n");
    let place = json!({ "line": 2, "at": "", "error": "the schema cannot check it: number out of range" });
    assert_eq!((refused.status, &refused.body["places"]), (422, &json!([place])), "{refused:?}");
    assert_eq!(client.request(post, &[JSON], r#"{"id": 1, "amount": 1}"#).status, 202);
    // A changed schema is a reload.
    project.write("order.schema.json", "{\"required\": [\"no\"]}");
    running.wait_until_it_says("the changed configuration is in force");
    assert_eq!(client.request(post, &[JSON], r#"{"id": 2}"#).status, 422);
    assert_eq!(client.request(post, &[JSON], r#"{"id": 2, "no": 1}"#).status, 202);
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 2);
}

#[test]
fn a_job_that_was_accepted_is_known_although_the_schema_and_the_script_are_stricter_now() {
    let settings = "schema = \"order.schema.json\"\naccept = \"accept.rhai\"\nkey = \"id\"";
    let project = project(settings, SINK)
        .file("order.schema.json", "true")
        .file("accept.rhai", "fn accept(job) { true }");
    let (mut running, _, mut client) = started(&project);
    let post = "POST /sources/p/requests";
    let whole = "idempotency-key: batch";
    assert_eq!(client.request(post, &[JSON], r#"{"id":1}"#).status, 202);
    assert_eq!(client.request(post, &[NDJSON, whole], "{\"id\":2}\n{\"id\":3}\n").status, 202);
    project.write("order.schema.json", "{\"required\": [\"strict\"]}");
    running.wait_until_it_says("the changed configuration is in force");
    for round in ["schema", "script"] {
        let known = client.request(post, &[JSON], r#"{ "id": 1 }"#);
        assert_eq!((known.status, known.job()), (200, "p/requests/1".to_owned()), "{round}: {known:?}");
        assert_eq!(known.body["known"], true, "{round}");
        let known = client.request(post, &[NDJSON, whole], "{\"id\":2}\n{\"id\":3}\n");
        assert_eq!((known.status, &known.body["known"]), (200, &json!(true)), "{round}: {known:?}");
        // Another content of the key, another key, a new line among known ones, and another body with the key.
        for (form, header, body) in [
            (JSON, None, r#"{"id":1,"more":2}"#),
            (JSON, None, r#"{"id":4}"#),
            (NDJSON, None, "{\"id\":1}\n{\"id\":4}\n"),
            (NDJSON, Some(whole), "{\"id\":2}\n{\"id\":4}\n"),
        ] {
            let headers: Vec<_> = [form].into_iter().chain(header).collect();
            let refused = client.request(post, &headers, body);
            assert_eq!(refused.status, 422, "{round}: {body}: {refused:?}");
            assert!(refused.body["places"].is_array(), "{round}: {body}: {refused:?}");
        }
        if round == "schema" {
            project.write("accept.rhai", "fn accept(job) { \"nothing is accepted\" }");
            project.write("order.schema.json", "true");
            running.wait_until_it_says("the changed configuration is in force");
        }
    }
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 3);
}

#[test]
fn a_script_refuses_jobs_with_its_reasons_and_nothing_of_their_body_is_taken() {
    let accept = "fn accept(job, ctx) {
        if ctx.step != \"requests\" || ctx.now < 1700000000000 { throw \"no context\"; }
        if job.id == 0 { return \"no id\"; }
        if job.id > 9 { return [#{ path: \"id\", reason: \"is above 9\" }, \"too large\"]; }
        if job.id == 7 { throw \"it fails\"; }
        if job.id == 8 { loop {} }
    }";
    let settings =
        "accept = \"accept.rhai\"\nlimits = { operations = 10000 }\nschema = \"order.schema.json\"";
    let project = project(settings, SINK).file("accept.rhai", accept).file("order.schema.json", SCHEMA);
    let (mut running, _, mut client) = started(&project);
    let post = "POST /sources/p/requests";
    let refused = client.request(post, &[JSON], r#"{"id": 0}"#);
    let error = "the source does not accept the body; nothing was accepted: the job: no id";
    let expected = json!({ "error": error, "places": [{ "at": "", "error": "no id" }] });
    assert_eq!((refused.status, refused.body), (422, expected));
    // The schema goes first.
    let by_schema = client.request(post, &[JSON], r#"{"id": "x"}"#);
    assert!(by_schema.error().starts_with("the body does not match the schema"), "{by_schema:?}");
    let lines = "{\"id\":1}\n{\"id\":10}\n{\"id\":\"x\"}\n{\"id\":7}\n{\"id\":8}\n";
    let refused = client.request(post, &[NDJSON], lines);
    let places = refused.body["places"].as_array().expect("places").iter();
    let places: Vec<_> =
        places.map(|one| format!("{} {} {}", one["line"], one["at"], one["error"])).collect();
    assert_eq!(
        places,
        [
            r#"2 "/id" "is above 9""#,
            r#"2 "" "too large""#,
            r#"3 "/id" "the value is not of type \"integer\"""#,
            r#"4 "" "the source cannot check the job""#,
            r#"5 "" "the source cannot check the job""#,
        ]
    );
    running.wait_until_it_says("the `accept` script of a source has failed source=p/requests error=");
    assert_eq!(client.request(post, &[JSON], "{").status, 400);
    assert_eq!(client.request(post, &[JSON], r#"{"id": 1}"#).status, 202);
    // A changed script is a reload.
    project.write("accept.rhai", "fn accept(job) { job.id == 10 }");
    running.wait_until_it_says("the changed configuration is in force");
    assert_eq!(client.request(post, &[JSON], r#"{"id": 1}"#).status, 422);
    assert_eq!(client.request(post, &[JSON], r#"{"id": 10}"#).status, 202);
    // A script that does not compile leaves the old one in force.
    project.write("accept.rhai", "fn accepts(job) { true }");
    let check = project.tidegate(&["check", "."]).failed(78);
    assert!(check.stderr.contains("must have a function `accept`"), "{}", check.stderr);
    project.write("accept.rhai", "fn accept(job) { lookup(\"rows\", job.id) != () }");
    let check = project.tidegate(&["check", "."]).failed(78);
    assert!(check.stderr.contains("an `accept` script has no tables"), "{}", check.stderr);
    assert_eq!(client.request(post, &[JSON], r#"{"id": 1}"#).status, 422);
    project.write("accept.rhai", "fn accept(job) { true }");
    running.stop().done();
    assert_eq!(project.queue("p/requests").len(), 2);
}
