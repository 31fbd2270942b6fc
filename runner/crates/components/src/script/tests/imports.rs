//! Tests of imports: scripts beside the script.

use super::{body, script};

const PRICES: &str = "export const VAT = 1.5;\nconst HIDDEN = 1;\n\nfn gross(net) {\n    net * global::VAT\n}\n\nfn broken(job) {\n    job.nmae\n}\n\nprivate fn hidden() { 1 }\n";

#[test]
fn functions_and_constants_of_an_imported_script_can_be_used() {
    let run = |text: &str| {
        script(text).beside("prices.rhai", PRICES).beside("lib/deep.rhai", "fn one() { 1 }").run("2")
    };
    let texts = [
        "import \"prices\" as p;\nfn process(job) { p::gross(job) }",
        "import \"prices\" as p;\nfn process(job) { job * p::VAT }",
        "import \"prices\" as p;\nfn process(job) { job * p::HIDDEN }",
        "fn process(job) { import \"prices\" as p; p::gross(job) }",
        "import \"lib/deep\" as deep;\nfn process(job) { deep::one() }",
        "import \"prices\" as p;\nfn process(job) { helper(job) }\nfn helper(job) { p::gross(job) }",
        "import \"prices\" as p;\nfn process(job) { p::hidden() }",
        "import \"prices\" as p;\nfn process(job) { p::elephant() }",
        "import \"prices\" as p;\nfn process(job) { q::gross(1) }",
        "import \"prices\" as p;\nfn process(job) {\n    p::broken(#{ name: 1 })\n}",
    ];
    let shown: Vec<String> = texts.iter().map(|text| format!("{text}\n    {}", run(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn an_import_has_the_text_that_was_read_with_the_configuration() {
    let two_levels = "import \"outer\" as outer;\nfn process(job) { outer::value() }";
    let run = script(two_levels)
        .beside("outer.rhai", "fn value() { \"new\" }")
        .read_as("outer.rhai", "import \"inner\" as inner;\nfn value() { inner::value() }")
        .read_as("inner.rhai", "fn value() { \"old\" }");
    assert!(run.run("2").contains("old"));
}

#[test]
fn an_import_that_is_broken_is_told_with_its_own_place() {
    let run = |text: &str| {
        script(text)
            .beside("broken.rhai", "fn one() { 1 }\n\nfn two() {\n    let x = ;\n}\n")
            .beside("through.rhai", "import \"broken\" as b;\nfn one() { b::one() }\n")
            .beside("missing.rhai", "\nimport \"elephant\" as e;\n")
            .beside("throws.rhai", "let x = [];\nlet y = x[1];\n")
            .beside("endless.rhai", "let n = 0;\nloop { n += 1; }\n")
            .beside("round.rhai", "import \"tuor\" as t;\nfn one() { 1 }\n")
            .beside("tuor.rhai", "import \"round\" as r;\nfn one() { 1 }\n")
            .run("2")
    };
    let texts = [
        "import \"broken\" as b;\nfn process(job) { b::one() }",
        "import \"through\" as t;\nfn process(job) { t::one() }",
        "fn process(job) {\n    import \"elephant\" as e;\n    e::one()\n}",
        "import \"missing\" as m;\nfn process(job) { 1 }",
        "import \"throws\" as t;\nfn process(job) { 1 }",
        "import \"round\" as r;\nfn process(job) { 1 }",
        "import \"endless\" as e;\nfn process(job) { 1 }",
        "import \"prices\"\nfn process(job) { 1 }",
        "import \"../../etc/passwd\" as p;\nfn process(job) { 1 }",
        "fn process(job) {\n    let name = \"broken\";\n    import name as b;\n}",
    ];
    let shown: Vec<String> = texts.iter().map(|text| format!("{text}\n    {}", run(text))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn an_imported_script_of_another_editor_is_read_without_its_mark() {
    let draft = body("import \"m\" as m; m::one()").beside("m.rhai", "\u{feff}fn one() { 1 }\r\n");
    assert_eq!(draft.run("0"), "-> 1");
}

#[test]
fn constants_at_the_top_are_read_through_global() {
    let texts = [
        "const RATE = 2;\nfn process(job) { job * global::RATE }",
        "const RATES = #{ eur: 2 };\nfn process(job) { job * global::RATES.eur }",
        "const RATE = 2;\nfn process(job) { job * RATE }",
        "let rate = 2;\nfn process(job) { job * rate }",
        "const RATE = 2;\nfn process(job) { job * global::RAET }",
        "const RATE = 2;\nfn process(job) { global::RATE = 3; job }",
    ];
    let shown: Vec<String> =
        texts.iter().map(|text| format!("{text}\n    {}", script(text).run("2"))).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_module_sees_the_functions_of_scripts_too() {
    let draft = body("import \"m\" as m; m::loud()")
        .beside("m.rhai", "fn loud() { log_info(\"x\"); emit(\"a\", 1); reject(\"no\") }");
    insta::assert_snapshot!(draft.run("1"), @"
    nothing
    rejected: no
      at m.rhai:1:42
    ");
}
