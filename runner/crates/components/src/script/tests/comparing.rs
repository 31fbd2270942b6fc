//! Tests of comparisons: numbers beyond Rhai's range, and values of different types.

use super::{body, script, shown};

const BIG: &str = r#"{"big":18446744073709551616,"huge":1e400,"id":1,"f":1.0}"#;

#[test]
fn numbers_past_64_bits_pass_untouched_and_are_no_numbers_to_compute_with() {
    let bodies = [
        "job",
        "job.big",
        "job.huge",
        "#{ was: job.big }",
        "`${job.big}`",
        "job.big.to_string()",
        "type_of(job.big)",
        "job.big == job.big",
        "job.big == 5",
        "job.big != 5",
        "job.big == \"18446744073709551616\"",
        "job.big + 1",
        "1 + job.big",
        "job.big += 1; job",
        "job.big - job.id",
        "job.big * 2.0",
        "job.big / 2",
        "job.big % 2",
        "job.big ** 2",
        "-job.big",
        "job.big > 5",
        "5 > job.big",
        "job.big >= 1.5",
        "job.big < job.big",
        "job.big <= ()",
        "job.big + \" cents\"",
        "\"cents: \" + job.big",
        "job.big.abs()",
        "job.big in [1, 2]",
        "switch job.big { 5 => 1, _ => 2 }",
    ];
    insta::assert_snapshot!(shown(BIG, &bodies));
}

#[test]
fn values_of_different_kinds_are_not_equal_and_in_no_order() {
    let bodies = [
        "1 == 1.0",
        "2 > 1.5",
        "\"5\" > 3",
        "\"5\" < 3",
        "3 < \"5\"",
        "\"5\" == 5",
        "() >= 4.5",
        "() < 4.5",
        "() == 0",
        "() == ()",
        "true > 0",
        "[1] == [1]",
        "[1] < [2]",
        "#{ a: 1 } == #{ a: 1 }",
        "\"b\" > \"a\"",
        "\"10\" < \"9\"",
        "parse_int(\"5\") > 3",
        "parse_float(\"5\") > 3",
        "1 + 1 < 3 && 2 > 1 == true && -1 < -0.5",
        "1 <= 1 && 1.0 <= 1 && \"a\" <= \"a\" && 'a' < \"b\" && false < true",
        "[3, 1].filter(|n| n >= 2)",
        "[1].filter(|n| n < \"2\")",
    ];
    insta::assert_snapshot!(shown("{}", &bodies));
}

#[test]
fn an_imported_function_and_a_value_of_the_configuration_are_compared_by_the_same_rule() {
    let within = "fn within(price, most) { price <= most }";
    let mut gate =
        script("import \"limits\" as limits;\nfn process(job, ctx) { limits::within(job, ctx.config.most) }")
            .beside("limits.rhai", within);
    gate.config = serde_json::json!({ "most": "60" });
    let made = gate.run("99");
    assert!(made.contains("`<=` cannot compare an integer with a text"), "{made}");
    gate.config = serde_json::json!({ "most": 60 });
    assert_eq!((gate.run("99").as_str(), gate.run("9").as_str()), ("-> false", "-> true"));
}

#[test]
fn payloads_come_back_as_they_were_but_for_order_and_white_space() {
    for (payload, back) in [
        (r#"{ "b": 1, "a": [ null, true ], "b": 2 }"#, r#"{"a":[null,true],"b":2}"#),
        ("null", "null"),
        (r#""ü\n""#, r#""ü\n""#),
        ("-0.0", "-0.0"),
        ("1.0", "1.0"),
        ("1", "1"),
        ("1e2", "100.0"),
        ("9223372036854775807", "9223372036854775807"),
        ("18446744073709551615", "18446744073709551615"),
        ("0.1", "0.1"),
    ] {
        let made = body("#{ j: job }").run(payload);
        assert_eq!(made, format!("-> {{\"j\":{back}}}"), "{payload}");
    }
    let deep = format!("{}1{}", "[".repeat(119), "]".repeat(119));
    let nested = format!("{{\"x\":{deep}}}");
    assert_eq!(body("job").run(&nested), format!("-> {nested}"));
}
