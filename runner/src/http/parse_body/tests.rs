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
        schema: None,
        accept: None,
        due: None,
        delay: None,
    }
}

fn read_as(body: &str, form: BodyForm, key: &[&str]) -> Result<Intake, String> {
    let owner = KeyOwner::of(&Address::parse("p/q").unwrap(), &NameHistory::default());
    let rules = IntakeRules { schema: None, header: None, due: None, now: Timestamp(0) };
    super::read(body.as_bytes(), form, (&owner, &source(key)), (&rules, &|_| false), None)
        .map_err(|refusal| refusal.to_string())
}

fn jobs(intake: &Intake) -> Vec<&str> {
    intake.jobs.iter().map(|job| std::str::from_utf8(job).unwrap()).collect()
}

#[test]
fn one_job_stands_on_one_line() {
    let body = " {\n  \"a\" : [1, 2.50,\t3],\r\n  \"b c\\\" \\\\\": \"x  y\\n\"\n}\n";
    let intake = read_as(body, BodyForm::Json, &[]).unwrap();
    assert_eq!(jobs(&intake), [r#"{"a":[1,2.50,3],"b c\" \\":"x  y\n"}"#]);
    // A job on one line is kept unchanged.
    assert_eq!(jobs(&read_as(r#" {"a": 1} "#, BodyForm::Json, &[]).unwrap()), [r#"{"a": 1}"#]);
}

#[test]
fn a_key_can_be_an_element_of_a_list() {
    let hash = |body, key: &[&str]| read_as(body, BodyForm::Json, key).unwrap().each[0].hash;
    assert_eq!(hash(r#"{"ids": [7, 8]}"#, &["ids", "1"]), hash(r#"{"id": 8}"#, &["id"]));
    assert_eq!(hash(r#"[{"id": 8}]"#, &["0", "id"]), hash(r#"{"id": 8}"#, &["id"]));
}

#[test]
fn lines_are_jobs_and_know_their_numbers() {
    let intake = read_as("1\n\n  {\"a\": 2}\r\n\"three\"", BodyForm::Ndjson, &[]).unwrap();
    assert_eq!(jobs(&intake), ["1", r#"{"a": 2}"#, r#""three""#]);
    assert_eq!(intake.lines, [1, 3, 4]);
}

#[test]
fn what_is_no_job_is_told_with_its_place() {
    let cases = [
        ("", BodyForm::Json, &[][..]),
        ("{\"a\": tru}", BodyForm::Json, &[]),
        ("{\n\"a\": 1,\n}", BodyForm::Json, &[]),
        ("1 2", BodyForm::Json, &[]),
        ("\n \n", BodyForm::Ndjson, &[]),
        ("1\n2\n{\"a\"\n4", BodyForm::Ndjson, &[]),
        ("{\"a\": 1}", BodyForm::Json, &["id"]),
        ("{\"id\": null}", BodyForm::Json, &["id"]),
        ("{\"id\": {}}", BodyForm::Json, &["id"]),
        ("[1]", BodyForm::Json, &["id"]),
        ("{\"a\": {\"b\": 1}}", BodyForm::Json, &["a", "id"]),
        ("{\"id\": 1}\n{\"id\": true}", BodyForm::Ndjson, &["id"]),
    ];
    let refusals: Vec<String> =
        cases.iter().map(|(body, form, key)| read_as(body, *form, key).unwrap_err()).collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn keys_are_what_they_say_however_they_are_written() {
    let hash = |body: &str| read_as(body, BodyForm::Json, &["a", "id"]).unwrap().each[0].hash;
    let seven = hash(r#"{"a": {"id": "7"}}"#);
    assert_eq!(seven, hash(r#"{"x": 1, "a": {"id": "0", "id": "\u0037"}}"#));
    assert_eq!(seven, hash("{\"\\u0061\":\n{\"id\": \"7\"}}"));
    assert_ne!(seven, hash(r#"{"a": {"id": 7}}"#));
    assert_ne!(seven, hash(r#"{"a": {"id": "8"}}"#));
}

#[test]
fn the_content_of_a_key_is_the_job_as_it_stands_on_the_queue() {
    let content = |body: &str| read_as(body, BodyForm::Json, &["id"]).unwrap().each[0].content;
    assert_eq!(content(r#"{"id":7,"a":1}"#), content("{\n\"id\": 7,\n\"a\": 1}\n"));
    assert_ne!(content(r#"{"id":7,"a":1}"#), content(r#"{"id":7,"a":2}"#));
}

#[test]
fn the_content_type_says_what_a_body_is() {
    let form = |text: &'static str| BodyForm::of(Some(&HeaderValue::from_static(text)));
    assert_eq!(form("application/json; charset=utf-8"), Some(BodyForm::Json));
    assert_eq!(form("application/cloudevents+json"), Some(BodyForm::Json));
    assert_eq!(form("Application/X-NDJSON"), Some(BodyForm::Ndjson));
    // Content types that any page in a browser may send are refused.
    for other in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        assert_eq!(form(other), None, "{other}");
    }
    assert_eq!(BodyForm::of(None), None);
}

#[test]
fn the_room_for_many_small_jobs_is_more_than_that_of_their_bytes() {
    let cost = |body: &str, form, key: &[&str]| super::cost(body.as_bytes(), form, &source(key));
    let lines = "1\n".repeat(1000);
    assert!(cost(&lines, BodyForm::Ndjson, &[]) > 20 * lines.len());
    assert!(cost(&lines, BodyForm::Ndjson, &["id"]) > 100 * lines.len());
    // The estimate for one job is about its size.
    let text = format!("\"{}\"", "x\n".repeat(1000));
    assert!(cost(&text, BodyForm::Json, &["id"]) < 3 * text.len());
}
