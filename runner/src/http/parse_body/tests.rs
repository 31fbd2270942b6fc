//! Tests of `Intake`: bodies become jobs and keys, or errors.
use super::*;
use tidegate_config::HttpSource;

fn source(key: &[&str]) -> HttpSource {
    HttpSource {
        key: FieldPath::parse(&key.join(".")),
        dedupe: None,
        max_body: 1 << 20,
        max_waiting: None,
        token: None,
    }
}

fn read_as(body: &str, form: Form, key: &[&str]) -> Result<Intake, String> {
    let address = Address::parse("p/q").unwrap();
    super::read(body.as_bytes(), form, (&address, &source(key)), None).map_err(|refusal| refusal.to_string())
}

fn jobs(intake: &Intake) -> Vec<&str> {
    intake.jobs.iter().map(|job| std::str::from_utf8(job).unwrap()).collect()
}

#[test]
fn one_job_stands_on_one_line() {
    let body = " {\n  \"a\" : [1, 2.50,\t3],\r\n  \"b c\\\" \\\\\": \"x  y\\n\"\n}\n";
    let intake = read_as(body, Form::Json, &[]).unwrap();
    assert_eq!(jobs(&intake), [r#"{"a":[1,2.50,3],"b c\" \\":"x  y\n"}"#]);
    // A job on one line is kept unchanged.
    assert_eq!(jobs(&read_as(r#" {"a": 1} "#, Form::Json, &[]).unwrap()), [r#"{"a": 1}"#]);
}

#[test]
fn a_key_can_be_an_element_of_a_list() {
    let hash = |body, key: &[&str]| read_as(body, Form::Json, key).unwrap().each[0].hash;
    assert_eq!(hash(r#"{"ids": [7, 8]}"#, &["ids", "1"]), hash(r#"{"id": 8}"#, &["id"]));
    assert_eq!(hash(r#"[{"id": 8}]"#, &["0", "id"]), hash(r#"{"id": 8}"#, &["id"]));
}

#[test]
fn lines_are_jobs_and_know_their_numbers() {
    let intake = read_as("1\n\n  {\"a\": 2}\r\n\"three\"", Form::Ndjson, &[]).unwrap();
    assert_eq!(jobs(&intake), ["1", r#"{"a": 2}"#, r#""three""#]);
    assert_eq!(intake.lines, [1, 3, 4]);
}

#[test]
fn what_is_no_job_is_told_with_its_place() {
    let cases = [
        ("", Form::Json, &[][..]),
        ("{\"a\": tru}", Form::Json, &[]),
        ("{\n\"a\": 1,\n}", Form::Json, &[]),
        ("1 2", Form::Json, &[]),
        ("\n \n", Form::Ndjson, &[]),
        ("1\n2\n{\"a\"\n4", Form::Ndjson, &[]),
        ("{\"a\": 1}", Form::Json, &["id"]),
        ("{\"id\": null}", Form::Json, &["id"]),
        ("{\"id\": {}}", Form::Json, &["id"]),
        ("[1]", Form::Json, &["id"]),
        ("{\"a\": {\"b\": 1}}", Form::Json, &["a", "id"]),
        ("{\"id\": 1}\n{\"id\": true}", Form::Ndjson, &["id"]),
    ];
    let told: Vec<String> =
        cases.iter().map(|(body, form, key)| read_as(body, *form, key).unwrap_err()).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn keys_are_what_they_say_however_they_are_written() {
    let hash = |body: &str| read_as(body, Form::Json, &["a", "id"]).unwrap().each[0].hash;
    let seven = hash(r#"{"a": {"id": "7"}}"#);
    assert_eq!(seven, hash(r#"{"x": 1, "a": {"id": "0", "id": "\u0037"}}"#));
    assert_eq!(seven, hash("{\"\\u0061\":\n{\"id\": \"7\"}}"));
    assert_ne!(seven, hash(r#"{"a": {"id": 7}}"#));
    assert_ne!(seven, hash(r#"{"a": {"id": "8"}}"#));
}

#[test]
fn the_content_of_a_key_is_the_job_as_it_stands_on_the_queue() {
    let content = |body: &str| read_as(body, Form::Json, &["id"]).unwrap().each[0].content;
    assert_eq!(content(r#"{"id":7,"a":1}"#), content("{\n\"id\": 7,\n\"a\": 1}\n"));
    assert_ne!(content(r#"{"id":7,"a":1}"#), content(r#"{"id":7,"a":2}"#));
}

#[test]
fn the_content_type_says_what_a_body_is() {
    let form = |text: &'static str| Form::of(Some(&HeaderValue::from_static(text)));
    assert_eq!(form("application/json; charset=utf-8"), Some(Form::Json));
    assert_eq!(form("application/cloudevents+json"), Some(Form::Json));
    assert_eq!(form("Application/X-NDJSON"), Some(Form::Ndjson));
    // Content types that any page in a browser may send are refused.
    for other in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        assert_eq!(form(other), None, "{other}");
    }
    assert_eq!(Form::of(None), None);
}

#[test]
fn the_room_for_many_small_jobs_is_more_than_that_of_their_bytes() {
    let cost = |body: &str, form, key: &[&str]| super::cost(body.as_bytes(), form, &source(key));
    let lines = "1\n".repeat(1000);
    assert!(cost(&lines, Form::Ndjson, &[]) > 20 * lines.len());
    assert!(cost(&lines, Form::Ndjson, &["id"]) > 100 * lines.len());
    // The estimate for one job is about its size.
    let text = format!("\"{}\"", "x\n".repeat(1000));
    assert!(cost(&text, Form::Json, &["id"]) < 3 * text.len());
}
