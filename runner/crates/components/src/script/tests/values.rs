//! Tests of values: `parse_json`, `to_json`, and the names of types in messages.

use super::{body, logging, shown};

/// The text as a job that is a JSON text.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn parse_json_runs_nothing_that_stands_in_its_text() {
    let texts = [
        r#"{"a": emit("", "injected")}"#,
        r#"{"a": emit_in("", "injected", "1s")}"#,
        r#"{"a": reject("x")}"#,
        r#"{"a": retry_in("1d", "x")}"#,
        r#"{"a": pending("h")}"#,
        r#"{"a": gate_closed("x")}"#,
        r#"{"a": log_error("forged")}"#,
        r#"{"a": exit(5)}"#,
        r#"{"a": Fn("reject").call("x")}"#,
        r#"{"a": 1+1}"#,
        r#"{"a": `${1}`}"#,
        r#"#{"a": 1}"#,
        r#"{"a": {let x = 1; x}}"#,
        "emit(\"\", 1)",
    ];
    let log = logging::Lines::default();
    let made: Vec<String> =
        logging::with(&log, || texts.iter().map(|text| body("parse_json(job)").run(&quoted(text))).collect());
    assert_eq!(log.text(), "");
    for (text, made) in texts.iter().zip(&made) {
        assert!(
            made.starts_with("nothing\nfailed: the argument of `parse_json` is not JSON: "),
            "{text}: {made}"
        );
    }
    insta::assert_snapshot!(made.join("\n\n"));
}

#[test]
fn parse_json_reads_what_a_job_may_be_and_refuses_what_it_may_not() {
    let texts = [
        r#"{"n":"\ud83d\ude00","a":"\/"}"#,
        r#"{"a":1,"a":2}"#,
        "[1,2]",
        "42",
        "\"x\"",
        "null",
        r#"{"n":12345678901234567890,"m":1e400}"#,
        " {\"a\" : [ ] } \n",
        r#"{"a":0x10}"#,
        r#"{"a":1_000}"#,
        r#"{"a":1,}"#,
        r#"{"a":/*c*/1}"#,
        "this is not json 3",
        "",
        "{\n  \"a\": nope\n}",
        "[1] 2",
    ];
    let shown: Vec<String> = texts
        .iter()
        .map(|text| {
            let parsed = body("#{ j: parse_json(job) }").run(&quoted(text));
            let read = body("let whole = job; #{ j: whole }").run(text);
            let same = match (
                parsed.split_once("`parse_json` is not JSON: "),
                read.split_once("the job is not JSON: "),
            ) {
                // The position in the script follows the message.
                (Some((_, parsed)), Some((_, read))) => parsed.split("\n  at ").next() == Some(read),
                (parsed_failed, read_failed) => {
                    parsed_failed.is_none() && read_failed.is_none() && parsed == read
                }
            };
            assert!(same, "{text}\n{parsed}\n{read}");
            format!("{text}\n    {parsed}")
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn to_json_writes_what_an_output_would_be() {
    let jobs = [
        r#"{"n":123456789012345678901234567890,"f":1e400,"deep":[{"n":18446744073709551616}]}"#,
        r#"[1.0,-0.0,true,null,"\u0000\"\\ü"]"#,
        "18446744073709551616",
        "\"text\"",
        "null",
    ];
    for job in jobs {
        let written = body("to_json(job)").run(job);
        let output = body("let whole = job; #{ j: whole }").run(job).replacen("-> {\"j\":", "", 1);
        let text: String = serde_json::from_str(written.strip_prefix("-> ").unwrap()).unwrap();
        assert_eq!(text, output.strip_suffix('}').unwrap());
        assert_eq!(body("parse_json(to_json(job)).to_json()").run(job), written, "{job}");
    }
    let refused = [
        "to_json(#{ rate: [1, 1.0 / 0.0] })",
        "#{ i: 0.0 / 0.0 }.to_json()",
        "to_json(|x| x)",
        "to_json(ctx)",
        "to_json(1..3)",
    ];
    insta::assert_snapshot!(shown("{}", &refused));
}

/// Values of each type of scripts.
const VALUES: [&str; 22] = [
    "()",
    "true",
    "1",
    "1.5",
    "1.0 / 0.0",
    "'c'",
    "\"text\"",
    "job.big",
    "job",
    "[job.big, 1.0 / 0.0]",
    "#{ f: |x| x, c: ctx }",
    "blob(2, 1)",
    "1..3",
    "1..=3",
    "|x| x",
    "{ let big = job.big; |x| big }",
    "{ let big = job.big; [|x| big] }",
    "ctx",
    "\"ab\".chars()",
    "5.bits()",
    "range(0, 9, 2)",
    "range(0.0, 1.0, 0.5)",
];

#[test]
fn no_name_of_a_rust_type_reaches_a_script_a_log_or_an_output() {
    let ways = [
        "VALUE",
        "type_of(VALUE)",
        "`${VALUE}`",
        "`${[VALUE]}`",
        "(VALUE).to_string()",
        "(VALUE).to_debug()",
        "(VALUE).to_json()",
        "print(VALUE)",
        "debug(VALUE)",
        "log_info(VALUE)",
        "log_info([VALUE])",
        "throw VALUE",
        "throw [VALUE]",
        "reject(VALUE)",
        "pending(VALUE)",
        "elephant(VALUE)",
        "(VALUE).elephant",
        "(VALUE)[0]",
        "(VALUE) - \"x\"",
        "-(VALUE)",
        "for x in VALUE {}",
        "if VALUE {}",
        "try { (VALUE).elephant } catch (e) { throw e }",
        "try { throw VALUE } catch (e) { return `${e}` }",
    ];
    let log = logging::Lines::default();
    logging::with(&log, || {
        for value in VALUES {
            for way in ways {
                let text = way.replace("VALUE", value);
                let made = body(&text).run(r#"{"big":18446744073709551616}"#);
                let is_rust = |made: &str| ["::", "alloc", "dyn "].iter().any(|mark| made.contains(mark));
                assert!(!is_rust(&made), "{text}\n{made}");
            }
        }
    });
    let log = log.text().replace("tidegate::script", "");
    assert!(!log.contains("::"), "{log}");
    assert!(log.contains("18446744073709551616"), "{log}");
}
