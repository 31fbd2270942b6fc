//! Tests of failures: the error messages of scripts help their authors.

use super::{body, script, shown};

const ORDER: &str = r#"{"id":1,"name":"chair","amount":2.5,"lines":[{"sku":"a","price":3}],"note":null}"#;

#[test]
fn thrown_values_are_the_message() {
    let bodies = [
        "throw \"no stock\"",
        "throw #{ message: \"no stock\", code: 5 }",
        "throw #{ code: 5 }",
        "throw 5",
        "throw [1, \"two\"]",
        "throw",
        "throw ()",
        "throw \"\"",
        "throw 1.5",
    ];
    insta::assert_snapshot!(shown(ORDER, &bodies));
}

#[test]
fn reject_ends_the_job_past_any_try() {
    let bodies = [
        "reject(\"closed\")",
        "try { reject(\"closed\") } catch { return job; }",
        "try { try { reject(\"closed\") } catch { return 1; } } catch (e) { return job; }",
        "if job.id == 1 { reject(`job ${job.id}`); } job",
        "try { throw \"thrown\" } catch (e) { return #{ caught: e }; }",
        "try { job.nmae } catch (e) { return #{ caught: e.message }; }",
        "reject(5)",
        "reject()",
    ];
    insta::assert_snapshot!(shown(ORDER, &bodies));
}

#[test]
fn a_field_that_is_not_there_is_told_with_the_nearest_one() {
    let bodies = [
        "job.nmae",
        "job[\"nmae\"]",
        "job.lines[0].skv",
        "job.elephant",
        "job.name.elephant",
        "job.note.text",
        "job.elephant = 1; job.elephant",
        "job.lines[0].price + job.ammount",
        "job.elephant += 1",
        "job.get(\"elephant\") ?? 5",
        "job?.name",
        "\"elephant\" in job",
        "job.note ?? \"none\"",
        "job.note?.text",
        "job.get(\"note\") == job.get(\"elephant\")",
        "job.get(\"name\")",
        "\"note\" in job",
        "let order = #{ total: 5 }; order.totla",
        "let order = #{ total: 5 }; order.elephant",
    ];
    insta::assert_snapshot!(shown(ORDER, &bodies));
    insta::assert_snapshot!(shown("[1]", &["job.id", "job[0].id", "job[\"id\"]"]));
    insta::assert_snapshot!(shown("{}", &["job.id"]));
}

#[test]
fn values_of_the_wrong_kind_are_told_in_words() {
    let bodies = [
        "job.name * 2",
        "job.name - 1",
        "-job.name",
        "!job.id",
        "job.lines + 1",
        "job.note + 1",
        "job.id + true",
        "if job.id { 1 }",
        "if job.note { 1 } else { 2 }",
        "while job.name { }",
        "for x in job.id { }",
        "for x in job { }",
        "job.lines[job.name]",
        "job.name[\"x\"]",
        "job.name.sub_string(\"x\")",
        "job.nmae()",
        "job.lines.len()",
        "elephant(1)",
        "elephant(job, 1.5, 'c', ())",
        "parse_int(job.name)",
        "parse_float(\"1,5\")",
        "job.name.to_int()",
        "switch job.id { 2 => 1 }",
        "this.id",
    ];
    insta::assert_snapshot!(shown(ORDER, &bodies));
}

#[test]
fn arithmetic_says_what_went_wrong() {
    let bodies = [
        "job.id / 0",
        "job.id % 0",
        "9223372036854775807 + job.id",
        "job.id - 2 - 9223372036854775807",
        "9223372036854775807 * 2 * job.id",
        "job.id << 65",
        "2 ** 70 * job.id",
        "job.amount / 0",
        "job.amount / 0.0",
        "(job.amount * 1e300).to_int()",
        "job.lines[5]",
        "job.lines[-2]",
        "[][0]",
        "job.name[9]",
        "let a = [1]; a[1] = 2",
    ];
    insta::assert_snapshot!(shown(ORDER, &bodies));
}

#[test]
fn the_place_is_that_of_the_failing_line_in_the_right_function() {
    let text = "fn process(job) {\n    let total = sum(job);\n    total\n}\n\nfn sum(job) {\n    add(job.lines)\n}\n\nfn add(lines) {\n    `ä`; lines[0].prcie + 1\n}\n";
    let in_helper = script(text).run(ORDER);
    let in_closure = script("fn process(job) {\n    job.lines.map(|line|\n        line.prcie)\n}").run(ORDER);
    let by_pointer =
        script("fn process(job) {\n    let f = Fn(\"add\");\n    f.call(job)\n}\nfn add(x) {\n    x + 1\n}")
            .run(ORDER);
    let as_method = script("fn process(job) {\n    job.add()\n}\nfn add() {\n    this.nmae\n}").run(ORDER);
    let thrown =
        script("fn process(job) {\n    check(job)\n}\nfn check(job) {\n    throw \"no\"\n}").run(ORDER);
    let rejected =
        script("fn process(job) {\n    check(job)\n}\nfn check(job) {\n    reject(\"no\")\n}").run(ORDER);
    let rethrown = script("fn process(job) {\n    try {\n        check(job)\n    } catch (e) {\n        throw e\n    }\n}\nfn check(job) {\n    throw \"no\"\n}").run(ORDER);
    let outside = script("const RATE = 1 / 0 + [].len();\nfn process(job) {\n    global::RATE\n}").run(ORDER);
    insta::assert_snapshot!(
        [in_helper, in_closure, by_pointer, as_method, thrown, rejected, rethrown, outside].join("\n")
    );
}

#[test]
fn a_payload_that_is_no_json_is_told_with_its_column() {
    let draft = body("job");
    let payloads = [
        "",
        "{\"a\":1",
        "{a:1}",
        "nope",
        "1 2",
        "\"open",
        "[1,]",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "[1 2]",
        "01",
        "'a'",
        "tru",
    ];
    let messages: Vec<String> =
        payloads.iter().map(|payload| format!("{payload}\n    {}", draft.run(payload))).collect();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_field_that_lacks_deeper_down_is_told_with_the_fields_of_each_level() {
    let order = r#"{"id":1,"buyer":{"city":"Oslo","tags":{}}}"#;
    insta::assert_snapshot!(shown(order, &["job.buyer.elephant", "job.elephant"]));
}
