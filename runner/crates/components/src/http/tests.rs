//! Tests of `HttpStep`: its requests, and its conversion of every kind of answer.

#[expect(dead_code, reason = "no test uses every function of the service")]
#[path = "../../../../../tests/outward/service.rs"]
pub(crate) mod service;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use tidegate_plugin::{Failure, FailureKind, Job, Outputs};

use self::service::{Act, Service, answer};
use super::{HttpSpec, HttpStep};
use crate::calls::Calls;
use tidegate_config::{Body, HttpRequest, Method, Response, Shape};
use tidegate_model::TokenKey;
use tidegate_model::template::Template;

const JOB: &str = r#"{"id": "a/b", "sum": 12345678901234567890123, "to": {"x": 1}}"#;
const SECRET: &str = "hunter2!";

/// A way to break off an answer.
type Break = fn() -> Act;

fn template(text: &str) -> Template {
    // Marks the secrets in a text, as if a file had inserted them.
    let secrets: Vec<_> = text.match_indices(SECRET).map(|(at, text)| at..at + text.len()).collect();
    Template::parse(text, &secrets).unwrap()
}

fn request(service: &Service, method: Method, path: &str) -> HttpRequest {
    HttpRequest {
        url: template(&format!("http://{}{path}", service.address)),
        hosts: None,
        method,
        headers: Vec::new(),
        body: if method == Method::Get { Body::None } else { Body::Job },
        timeout: None,
        max_response: None,
        accept: vec![200..=299],
        response: Response::Body,
    }
}

fn step(request: &HttpRequest) -> HttpStep {
    let timeout = Some(Duration::from_secs(20));
    HttpStep::new(&HttpSpec {
        pipeline: "shop",
        step: "charge",
        request,
        timeout,
        memory: 1000,
        token_key: &TokenKey::NONE,
        calls: &Calls::default(),
    })
}

fn job(payload: &str) -> Job<'_> {
    Job::new(3, payload.as_bytes()).attempted(1, 784_111_770_000).hashed(0xab)
}

/// The outputs of a request for [`JOB`].
fn asked(request: &HttpRequest) -> Result<String, Failure> {
    let mut outputs = Outputs::new([""]);
    step(request).process(&job(JOB), 1, &mut outputs)?;
    let given = outputs.get(0).unwrap();
    assert_eq!(given.len(), 1);
    Ok(String::from_utf8(given.get(0).unwrap().to_vec()).unwrap())
}

fn shown(service: &Service, failure: &Failure) -> String {
    let text = format!("{} ({}): {failure}", failure.word(), failure.kind.as_str());
    text.replace(&service.address.to_string(), "HOST")
}

/// The failure of a request with this answer.
fn ends(service: &Service) -> String {
    shown(service, &asked(&request(service, Method::Post, "/charge/{id}")).unwrap_err())
}

#[test]
fn the_job_is_sent_under_its_hash() {
    let service = Service::answering("200 OK", "", "{\"tx\":\n 9}");
    assert_eq!(asked(&request(&service, Method::Post, "/charge/{id}?sum={sum}")).unwrap(), "{\"tx\":  9}");
    let asked = &service.asked()[0];
    assert_eq!(asked.line, "POST /charge/a%2Fb?sum=12345678901234567890123");
    assert_eq!(asked.header("idempotency-key"), "000000000000000000000000000000ab");
    assert_eq!(asked.header("content-type"), "application/json");
    assert_eq!(asked.header("user-agent"), super::AGENT);
    assert_eq!(asked.body, JOB);
}

#[test]
fn a_request_that_cannot_be_written_is_not_tried_again() {
    let service = Service::answering("200 OK", "", "1");
    let long = "x".repeat(100_000);
    for (name, value) in [("x-name", &*long), ("authorization", "Bearer Zoë")] {
        let headers = vec![(name.to_owned(), template(value))];
        let request = HttpRequest { headers, ..request(&service, Method::Post, "/charge") };
        let failure = asked(&request).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Payload, "{name}: {failure}");
        assert!(failure.message.starts_with("the request cannot be made: "), "{name}: {failure}");
    }
    assert!(service.asked().is_empty());
}

#[test]
fn a_service_that_does_not_speak_tls_is_told_from_one_that_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The answer of a plain HTTP service to an invalid request.
    let plain = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let service = Service::answering("200 OK", "", "1");
    let request = HttpRequest {
        url: template(&format!("https://{address}/charge")),
        ..request(&service, Method::Post, "/")
    };
    let failure = asked(&request).unwrap_err();
    plain.join().unwrap();
    assert_eq!(
        shown(&service, &failure).replace(&address.to_string(), "HOST"),
        "connection (failed): the other side does not speak TLS; is `url` meant to begin with `http://`? \
         (POST https://HOST/charge)"
    );
}

#[test]
fn headers_and_body_are_made_from_the_job() {
    let service = Service::answering("200 OK", "", "1");
    let mut request = request(&service, Method::Put, "/");
    request.headers = vec![
        ("authorization".into(), template("Bearer hunter2!")),
        ("x-order".into(), template("{id} é")),
        ("idempotency-key".into(), template("order {id}")),
    ];
    let field = |name: &str| Shape::Value(tidegate_model::FieldPath::parse(name).unwrap());
    request.body = Body::Json(Shape::Map(vec![
        ("key".into(), Shape::Text(template("{ctx.hash} \"{id}\""))),
        ("what".into(), Shape::List(vec![field("sum"), field("to"), Shape::Fixed("1.5".into())])),
    ]));
    asked(&request).unwrap();
    let asked = &service.asked()[0];
    assert_eq!(asked.header("authorization"), "Bearer hunter2!");
    assert_eq!(asked.header("x-order"), "a/b é");
    assert_eq!(asked.header("idempotency-key"), "order a/b");
    insta::assert_snapshot!(asked.body, @r#"{"key":"000000000000000000000000000000ab \"a/b\"","what":[12345678901234567890123,{"x": 1},1.5]}"#);
}

#[test]
fn an_answer_is_json_or_a_text_or_nothing() {
    for (headers, body, given) in [
        ("content-type: application/json\r\n", "[1, 2]", "[1, 2]"),
        ("content-type: text/plain\r\n", "17.5", "17.5"),
        ("content-type: text/plain\r\n", "done \"now\"", "\"done \\\"now\\\"\""),
        ("", " \n", "null"),
        ("", "", "null"),
    ] {
        let service = Service::answering("200 OK", headers, body);
        assert_eq!(asked(&request(&service, Method::Get, "/")).unwrap(), given);
    }
    let service = Service::answering("204 No Content", "", "");
    assert_eq!(asked(&request(&service, Method::Delete, "/")).unwrap(), "null");
}

#[test]
fn the_whole_answer_comes_with_the_job() {
    let service = Service::answering("404 Not Found", "x-a: 1\r\nx-a: 2\r\n", "no such order");
    let mut request = request(&service, Method::Get, "/");
    request.response = Response::Full;
    request.accept = vec![200..=299, 404..=404];
    let given = asked(&request).unwrap();
    assert_eq!(
        given,
        format!(
            r#"{{"job":{JOB},"status":404,"headers":{{"content-length":"13","x-a":"1, 2"}},"body":"no such order"}}"#
        )
    );
}

#[test]
fn refusals_tell_what_was_said_and_whether_to_try_again() {
    let shown: Vec<_> = [
        ("400 Bad Request", "", "{\"error\":\n\"sum is too large\"}"),
        ("404 Not Found", "", ""),
        ("302 Found", "location: http://other/place?token=1\r\n", ""),
        ("500 Internal Server Error", "", &"long ".repeat(100)),
        ("599 ", "", ""),
        ("429 Too Many Requests", "", ""),
    ]
    .map(|(status, headers, body)| ends(&Service::answering(status, headers, body)))
    .into();
    insta::assert_debug_snapshot!(shown);
}

#[test]
fn a_service_says_when_to_come_again() {
    for (status, headers, wait) in [
        ("429 Too Many Requests", "retry-after: 7\r\n", Some(7)),
        ("503 Service Unavailable", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", Some(7)),
        ("500 Internal Server Error", "retry-after: 7\r\n", None),
        ("429 Too Many Requests", "retry-after: soon\r\n", None),
    ] {
        let service = Service::answering(status, headers, "");
        let failure = asked(&request(&service, Method::Post, "/")).unwrap_err();
        let kind = wait.map_or(FailureKind::Failed, |wait| FailureKind::RetryIn(Duration::from_secs(wait)));
        assert_eq!(failure.kind, kind, "{status} {headers}");
        assert_eq!(failure.word(), format!("http {}", &status[..3]));
    }
}

#[test]
fn the_context_of_a_refusal_is_its_status_and_what_was_said() {
    let service = Service::answering("409 Conflict", "", "taken \u{1}");
    let failure = asked(&request(&service, Method::Post, "/")).unwrap_err();
    assert_eq!(failure.context.as_deref(), Some(r#"{"body":"taken \u0001","status":409}"#));
}

#[test]
fn broken_answers_are_failures_that_can_be_tried_again() {
    let acts: [(&str, Break); 5] = [
        ("no HTTP", || Act::Close(b"hello, who is there?\r\n\r\n".to_vec())),
        ("nothing", || Act::Close(Vec::new())),
        ("half a head", || Act::Close(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec())),
        ("half a body", || Act::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"".to_vec())),
        ("broken chunks", || {
            Act::Close(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec())
        }),
    ];
    for (what, act) in acts {
        let service = Service::start(move |_, _| act());
        let failure = asked(&request(&service, Method::Post, "/")).unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.word()),
            (FailureKind::Failed, "connection"),
            "{what}: {failure}"
        );
    }
}

#[test]
fn a_body_that_is_called_json_and_is_not_is_no_output() {
    let service =
        Service::answering("200 OK", "content-type: application/problem+json; charset=utf-8\r\n", "{\"a\"");
    insta::assert_snapshot!(ends(&service), @"output (output): the answer is declared as JSON but is not: the text ends in the middle of an object, at column 4 (POST http://HOST/charge/a%2Fb)");
    let service =
        Service::start(|_, _| Act::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe".to_vec()));
    insta::assert_snapshot!(ends(&service), @"output (output): the answer is not a text (UTF-8) (POST http://HOST/charge/a%2Fb)");
}

#[test]
fn an_answer_is_no_larger_than_it_may_be() {
    for (size, fits) in [(998, true), (999, false), (100_000, false)] {
        let service = Service::answering("200 OK", "", &format!("\"{}\"", "x".repeat(size)));
        let given = asked(&request(&service, Method::Get, "/"));
        assert_eq!(given.is_ok(), fits, "{size}");
        if let Err(failure) = given {
            assert_eq!(failure.kind, FailureKind::Limit);
            let what = "the answer exceeds the `max_response` of 1000 B (GET http";
            assert!(failure.message.starts_with(what), "{failure}");
        }
    }
    // An endless answer is not awaited.
    let endless = |_: &_, _| {
        let mut text = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        text.resize(100_000, b'x');
        Act::Hang(text)
    };
    let service = Service::start(endless);
    assert_eq!(asked(&request(&service, Method::Get, "/")).unwrap_err().kind, FailureKind::Limit);
    // The answer is not needed.
    let service = Service::answering("200 OK", "", &"x".repeat(100_000));
    assert_eq!(step(&request(&service, Method::Post, "/")).send(&job(JOB), 1), Ok(()));
}

#[test]
fn nobody_is_waited_for_longer_than_the_timeout() {
    for begun in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"] {
        let service = Service::start(move |_, _| Act::Hang(begun.into()));
        let mut request = request(&service, Method::Post, "/charge/{id}");
        request.timeout = Some(Duration::from_millis(100));
        let failure = asked(&request).unwrap_err();
        assert_eq!(
            shown(&service, &failure),
            "timeout (failed): no answer within the `timeout` of 100ms (POST http://HOST/charge/a%2Fb)"
        );
    }
}

#[test]
fn a_service_that_cannot_be_reached_can_be_tried_again() {
    let service = Service::answering("200 OK", "", "");
    let mut request = request(&service, Method::Get, "/");
    // No program listens there. Another one could take a port that was free a moment before.
    request.url = template("http://127.0.0.1:1/");
    let failure = asked(&request).unwrap_err();
    assert_eq!((failure.kind, &*failure.word()), (FailureKind::Failed, "connection"), "{failure}");
}

#[test]
fn a_connection_is_used_again_and_replaced_when_it_was_closed() {
    let service = Service::start(|_, before| {
        let answer = answer("200 OK", "", "{}");
        if before == 1 { Act::Close(answer) } else { Act::Say(answer) }
    });
    let request = request(&service, Method::Get, "/{id}");
    let mut step = step(&request);
    let mut outputs = Outputs::new([""]);
    for id in 0..4 {
        let payload = format!("{{\"id\": {id}}}");
        // A connection that breaks at this moment is a failed attempt like any other.
        while step.process(&job(&payload), 1, &mut outputs).is_err() {}
    }
    let connections: Vec<_> = service.asked().iter().map(|asked| asked.connection).collect();
    assert_eq!(connections, [1, 1, 2, 2]);
}

#[test]
fn pieces_of_one_job_are_not_the_same_to_the_service() {
    let service = Service::answering("200 OK", "", "{}");
    let mut step = step(&request(&service, Method::Post, "/"));
    for piece in 1..=2 {
        step.send(&job(JOB), piece).unwrap();
    }
    let asked = service.asked();
    let keys: Vec<_> = asked.iter().map(|asked| asked.header("idempotency-key")).collect();
    assert_eq!(keys, ["000000000000000000000000000000ab", "000000000000000000000000000000ab-2"]);
}

#[test]
fn what_a_job_cannot_make_is_never_asked() {
    let service = Service::answering("200 OK", "", "");
    let shown: Vec<_> = [
        ("/{none}", "x", r#"{"id": 1}"#),
        ("/{id}/refund", "x", r#"{"id": ".."}"#),
        ("/a.{id}/refund", "x", r#"{"id": ""}"#),
        ("/", "{id}", r#"{"id": "a\r\nx-admin: yes"}"#),
        ("/{id}", "x", r#"{"id": [1]}"#),
        ("/{id}", "x", "7"),
    ]
    .map(|(path, header, payload)| {
        let mut request = request(&service, Method::Post, path);
        request.headers = vec![("x-a".into(), template(header))];
        let failure = step(&request).process(&job(payload), 1, &mut Outputs::new([""])).unwrap_err();
        shown(&service, &failure)
    })
    .into();
    insta::assert_debug_snapshot!(shown);
    assert!(service.asked().is_empty());
    let long = format!("{{\"id\": \"{}\"}}", "x".repeat(100_000));
    let failure =
        step(&request(&service, Method::Get, "/{id}")).process(&job(&long), 1, &mut Outputs::new([""]));
    assert_eq!(failure.unwrap_err().kind, FailureKind::Payload);
}

#[test]
fn a_secret_is_never_told() {
    let echo = |asked: &service::Asked, _| {
        let text = format!("{} {} is wrong", asked.line, asked.header("authorization"));
        Act::Say(answer("401 Unauthorized", "location: /hunter2!\r\n", &text))
    };
    let service = Service::start(echo);
    let mut request = request(&service, Method::Post, "/hunter2!/{id}");
    request.headers = vec![("authorization".into(), template("Bearer hunter2!"))];
    let failure = asked(&request).unwrap_err();
    assert!(service.asked()[0].header("authorization").contains(SECRET));
    insta::assert_snapshot!(shown(&service, &failure), @"http 401 (rejected): 401 Unauthorized: POST /…/a%2Fb Bearer … is wrong (POST http://HOST/…/a%2Fb)");
    let all = format!("{failure:?} {:?} {request:?}", step(&request));
    assert!(!all.contains(SECRET), "{all}");
}
