//! Tests of native functions: each equals the function of Rhai that it replaces.

use proptest::prelude::*;
use rhai::packages::{Package as _, StandardPackage};
use rhai::{Dynamic, Engine, Scope};

use super::body;
use crate::script::attempt::ScriptAttempt;
use crate::script::compile;
use tidegate_config::Limits;

/// Calls of each replaced function.
const CALLS: [&str; 75] = [
    "t.replace(u, v); t",
    "t.replace(c, v); t",
    "t.replace(u, c); t",
    "t.replace(c, d); t",
    "t.pad(n, c); t",
    "t.pad(n, u + 'x'); t",
    "t.split()",
    "t.split(u)",
    "t.split(c)",
    "t.split(n)",
    "t.split(u, n)",
    "t.split(c, n)",
    "t.split_rev(u)",
    "t.split_rev(c)",
    "t.split_rev(u, n)",
    "t.split_rev(c, n)",
    "t.to_chars()",
    "t.sub_string(n)",
    "t.sub_string(n, m)",
    "t.sub_string(n..m)",
    "t.sub_string(n..=m)",
    "t.crop(n); t",
    "t.crop(n, m); t",
    "t.crop(n..m); t",
    "t.crop(n..=m); t",
    "[t.pop(n), t]",
    "[t.pop(), t]",
    "t.index_of(c, n)",
    "t.index_of(u, n)",
    "t.index_of(u)",
    "t.set(n, c); t",
    "t.to_upper()",
    "t.to_lower()",
    "t.make_upper(); t",
    "t.make_lower(); t",
    "let r = []; for x in t { r.push(x); } r",
    "let r = []; for x in t.chars { r.push(x); } r",
    "let r = []; for x in t.chars() { r.push(x); } r",
    "let r = []; for x in t.chars(n) { r.push(x); } r",
    "let r = []; for x in t.chars(n, m) { r.push(x); } r",
    "let r = []; for x in t.chars(n..m) { r.push(x); } r",
    "let r = []; for x in t.chars(n..=m) { r.push(x); } r",
    "const k = t; k.split(u).len + k.to_upper().len",
    "const k = t; k.replace(u, v); k",
    "const k = a; k.sort(); k",
    "a.pad(n, b); a",
    "a.dedup(); a",
    "a.dedup(|x, y| x == y || x == 1); a",
    "a == b",
    "a != b",
    "[a, [b]] == [b, [a]]",
    "[a, [b]] == [a, [b]]",
    "#{ a: a, b: b } == #{ a: b, b: a }",
    "#{ a: a, b: t } != #{ a: a, b: t }",
    "[1, 2.0, t, c, (), true] == [1.0, 2, t, c, (), true]",
    "[1] == [t]",
    "[1..3] == [1..3]",
    "a.contains(b)",
    "n in a",
    "a.index_of(n)",
    "a.sort(); a",
    "a.sort_desc(); a",
    "a.sort(|x, y| x - y); a",
    "a.sort_by(|x, y| x > y); a",
    "a.order()",
    "a.order_desc()",
    "a.order(|x, y| y - x)",
    "let x = t.to_chars(); x.sort(); x",
    "let x = t.split(c); x.sort_desc(); x",
    "blob(n, m)",
    "let x = blob(3, m); x.pad(n, m); [x.to_array(), x.as_string(), x]",
    "to_string([a, t, c, 1.5, (), #{ t: u, a: b }, blob(2, n)])",
    "`${a}|${#{ t: t, a: a }}` + a + #{ u: u } + blob(2, m)",
    "to_debug(t) + debug(u) + to_debug(a) + to_debug(#{ a: t })",
    "let x = \"\"; x += a; x += #{ t: t }; x",
];

/// The value of `text`, or the error.
fn evaluated(engine: &Engine, scope: &Scope<'_>, text: &str) -> String {
    match engine.eval_with_scope::<Dynamic>(&mut scope.clone(), text) {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            "a", "b", "A", " ", ",", "ß", "Σ", "é", "\n", "\"", "x", "aa", ".", "'", "\u{345}", "ʰ",
        ]),
        0..8,
    )
    .prop_map(|parts| parts.concat())
}

fn character() -> impl Strategy<Value = char> {
    prop::sample::select(vec!['a', 'b', ' ', ',', 'ß', 'Σ', 'z'])
}

#[test]
fn a_list_of_different_kinds_is_sorted_by_a_function_only() {
    let job = r#"{"n":[3,1.5,2]}"#;
    let refused = body("job.n.sort(); job").run(job);
    assert!(
        refused.contains(
            "elements of different types cannot be sorted: give `sort` a function, like `|a, b| a < b`"
        ),
        "{refused}"
    );
    assert_eq!(body("job.n.sort(|a, b| a < b); job").run(job), r#"-> {"n":[1.5,2,3]}"#);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replaced_functions_do_what_those_of_rhai_do(
        texts in (text(), text(), text()),
        (c, d) in (character(), character()),
        (n, m) in (-9..12_i64, -9..12_i64),
        (a, b) in (prop::collection::vec(0..4_i64, 0..9), prop::collection::vec(0..4_i64, 0..4)),
    ) {
        let mut theirs = Engine::new_raw();
        StandardPackage::new().register_into_engine(&mut theirs);
        let attempt = ScriptAttempt::new(&Limits::default());
        let _running = attempt.begin(None);
        let ours = compile::engine(&Limits::default(), &attempt);
        let mut scope = Scope::new();
        for (name, text) in ["t", "u", "v"].into_iter().zip([texts.0, texts.1, texts.2]) {
            scope.push(name, text);
        }
        scope.push("c", c).push("d", d).push("n", n).push("m", m);
        for (name, array) in [("a", a), ("b", b)] {
            scope.push(name, array.into_iter().map(Dynamic::from).collect::<rhai::Array>());
        }
        for call in CALLS {
            prop_assert_eq!(evaluated(&ours, &scope, call), evaluated(&theirs, &scope, call), "{}", call);
        }
    }
}
