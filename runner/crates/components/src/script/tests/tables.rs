//! Tests of tables: large constants and a large `ctx.config` behave like other maps and arrays, and are
//! shared.

use std::fmt::Write as _;

use tidegate_plugin::{Outputs, Step as _};

use super::{Draft, failure_text, job, listed, script};

/// A map literal with `entries` entries.
fn table(entries: u32) -> String {
    let entries: Vec<String> =
        (0..entries).map(|n| format!("\"k{n}\": #{{ n: {n}, tags: [\"a\", {n}] }}")).collect();
    format!("#{{ {} }}", entries.join(", "))
}

fn list(elements: u32) -> String {
    let elements: Vec<String> = (0..elements).map(|n| format!("#{{ n: {n} }}")).collect();
    format!("[{}]", elements.join(", "))
}

/// Drafts with tables of `entries` entries, as `MAP` and `LIST`, from each possible place. The function `t3`
/// of a script is the fourth of `texts`, and a job names its function.
fn drafts(texts: &[&str], entries: u32) -> [Draft; 4] {
    let (map, list) = (table(entries), list(entries));
    let constants = format!("export const MAP = {map};\nexport const LIST = {list};\n");
    let with = |before: &str, within: &str| {
        let functions = texts.iter().enumerate().map(|(at, text)| {
            let text = text.replace("MAP", &format!("{within}MAP")).replace("LIST", &format!("{within}LIST"));
            format!("fn t{at}(job, ctx) {{ {text} }}\n")
        });
        let functions: String = functions.collect();
        script(&format!(
            "{before}\nfn process(job, ctx) {{ Fn(job.text).call(job, ctx) }}\n{functions}\
             fn at(key) {{ this[key] }}\nfn mark(key) {{ this[key] = 5; this }}\n"
        ))
    };
    let mut configured = with("", "ctx.config.");
    configured.config = serde_json::json!({
        "MAP": (0..entries).map(|n| (format!("k{n}"), serde_json::json!({ "n": n, "tags": ["a", n] }))).collect::<serde_json::Map<_, _>>(),
        "LIST": (0..entries).map(|n| serde_json::json!({ "n": n })).collect::<Vec<_>>(),
    });
    [
        with("import \"tables\" as t;", "t::").beside("tables.rhai", &constants),
        with(&constants, "global::"),
        configured,
        // A top that runs before each call, since it does more than define data.
        with(&format!("let made = 1;\nlog_trace(made);\n{constants}"), "global::"),
    ]
}

const READING: [&str; 72] = [
    "MAP.tag",
    "let l = [1]; l += LIST; [l.len(), l[7]]",
    "let l = [1]; for n in 0..2 { l += LIST; l += 5; } l.len()",
    "MAP.k7.tags.len()",
    "MAP[job.key].tags.contains(7)",
    "MAP[job.key].keys()",
    "MAP.k7.at(\"n\")",
    "let m = MAP; m.k7.tags.len() + m[job.key].tags.len()",
    "LIST[7].keys().len() + LIST[-1].len()",
    "MAP.k7",
    "MAP[\"k7\"]",
    "MAP[job.key].n",
    "MAP[job.key].tags[1]",
    "MAP.k7.tags",
    "MAP?.k7",
    "MAP[\"elephant\"]",
    "MAP.elephant",
    "MAP[5]",
    "MAP.get(job.key)",
    "MAP.get(\"elephant\")",
    "MAP.get(\"elephant\") ?? 5",
    "MAP.len()",
    "len(MAP)",
    "MAP.is_empty()",
    "MAP.contains(job.key)",
    "job.key in MAP",
    "\"elephant\" in MAP",
    "\"elephant\" !in MAP",
    "MAP.keys().len()",
    "MAP.values()[1]",
    "MAP.to_json().len()",
    "to_json(MAP) == to_json(MAP)",
    "MAP.filter(|key, value| value.n == 3)",
    "MAP == MAP",
    "MAP == #{}",
    "MAP != ()",
    "() == MAP",
    "type_of(MAP)",
    "`${MAP}`.len()",
    "MAP + #{ k7: 1 }",
    "let m = #{ a: 1 }; m += MAP; m.k7",
    "let m = #{ a: 1 }; m.mixin(MAP); m.len()",
    "MAP.at(\"k7\")",
    "MAP.at(\"elephant\")",
    "LIST[7]",
    "LIST[-1]",
    "LIST[7].n",
    "LIST[1000]",
    "LIST[-1000]",
    "LIST.get(7)",
    "LIST.get(-1)",
    "LIST.get(1000)",
    "LIST.get(-1000)",
    "LIST.len()",
    "LIST.len",
    "LIST.is_empty()",
    "LIST.is_empty",
    "LIST.elephant",
    "let n = 0; for x in LIST { n += x.n } n",
    "let n = 0; for (x, i) in LIST { n += x.n * i } n",
    "LIST.map(|x| x.n).reduce(|a, b| (a ?? 0) + b)",
    "LIST.filter(|x| x.n < 3)",
    "LIST.find(|x| x.n == 3)",
    "LIST.some(|x| x.n == 3)",
    "LIST.index_of(#{ n: 5 })",
    "#{ n: 5 } in LIST",
    "let l = LIST; l.extract(1, 2)",
    "(LIST + [1]).len()",
    "([1] + LIST).len()",
    "LIST == LIST",
    "LIST == [1]",
    "switch LIST.len() { 5 => 1, _ => 2 }",
];

const CHANGING: [&str; 27] = [
    "let m = MAP; m.tag = 5; [m.tag, m.get(\"tag\"), m.len()]",
    "let m = MAP; m.k7 = 1; [m.k7, MAP.k7]",
    "let m = MAP; m.fresh = 1; [m.fresh, MAP.len()]",
    "let m = MAP; m[\"k7\"].n += 10; [m.k7.n, MAP.k7.n]",
    "let m = MAP; m.k7.tags[1] = 50; [m.k7, MAP.k7]",
    "let m = MAP; m.k7.tags.push(5); [m.k7, MAP.k7]",
    "let m = MAP; m.remove(\"k7\"); [m.len(), MAP.len()]",
    "let m = MAP; m.set(\"k7\", 5); [m.k7, MAP.k7]",
    "let m = MAP; m.clear(); [m.len(), MAP.len()]",
    "let m = MAP; m += #{ fresh: 1 }; [m.len(), MAP.len()]",
    "let m = MAP; let f = || m.k7 = 5; f.call(); [m.k7, MAP.k7]",
    "let m = MAP; m.mark(\"k7\"); [m.k7, MAP.k7]",
    "job.table = MAP; job.table.k7 = 5; [job.table.k7, MAP.k7]",
    "let m = [MAP]; m[0].k7 = 5; [m[0].k7, MAP.k7]",
    "let m = MAP; take(m); [m, MAP.len()]",
    "let l = LIST; l[7] = 1; [l[7], LIST[7]]",
    "let l = LIST; l[7].n = 1; [l[7], LIST[7]]",
    "let l = LIST; l[-1].n += 1; [l[-1], LIST[-1]]",
    "let l = LIST; l[1000] = 1",
    "let l = LIST; l.push(5); [l.len(), LIST.len()]",
    "let l = LIST; l += [5]; [l.len(), LIST.len()]",
    "let l = LIST; l.pop(); [l.len(), LIST.len()]",
    "let l = LIST; l.sort(|a, b| b.n - a.n); [l[0], LIST[0]]",
    "let l = LIST; l.for_each(|| this.n = 0); [l[7], LIST[7]]",
    "let l = LIST; l.drain(|x| x.n > 0).len() + l.len() * 1000",
    "let l = LIST; l.append(LIST); [l.len(), LIST.len()]",
    "let l = [1]; l.append(LIST); l.len()",
];

/// The results of a script for each text, in this order, without parts that depend on the place. The results
/// in the other order are the same.
fn made(draft: &Draft, texts: usize) -> Vec<String> {
    let mut step = draft.try_build().unwrap();
    let mut run = |at: usize| {
        let mut outputs = Outputs::new([""]);
        let payload = format!("{{\"text\":\"t{at}\",\"key\":\"k7\"}}");
        let failed = step.process(&job(7, &payload), &mut outputs).err();
        let made = failed.map_or_else(|| listed(&outputs), |failure| failure_text(&failure));
        let plain = made.replace("ctx.config.", "").replace("global::", "").replace("t::", "");
        let lines = plain.lines().filter(|line| !line.starts_with("  at "));
        // The message for a table in `ctx.config` lists its fields, that for a constant does not.
        let lines = lines.map(|line| line.split([';', '(']).next().unwrap_or_default().trim_end());
        lines.collect::<Vec<_>>().join("\n").replace(&format!(", in function `t{at}`"), "")
    };
    let forward: Vec<String> = (0..texts).map(&mut run).collect();
    let backward: Vec<String> = (0..texts).rev().map(&mut run).collect();
    assert!(forward.iter().eq(backward.iter().rev()), "{forward:#?}\n{backward:#?}");
    forward
}

/// The results for a table of 10 entries and one of 200. Each is the same for a script, from any place.
fn agree(texts: &[&str]) -> String {
    let [small, large] = [10, 200].map(|entries| {
        let [first, others @ ..] = drafts(texts, entries).map(|draft| made(&draft, texts.len()));
        for other in others {
            for ((text, first), other) in texts.iter().zip(&first).zip(&other) {
                assert_eq!(first, other, "{text}");
            }
        }
        first
    });
    let shown = texts.iter().zip(small.iter().zip(&large)).map(|(text, (small, large))| {
        let indented = |made: &str| made.replace('\n', "\n    ");
        let large =
            if small == large { String::new() } else { format!("\n  of 200:\n    {}", indented(large)) };
        format!("{text}\n    {}{large}", indented(small))
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_large_table_reads_like_a_small_one() {
    insta::assert_snapshot!(agree(&READING));
}

#[test]
fn a_table_has_its_own_field_tag_and_its_own_functions() {
    for entries in [1, 200] {
        let more = (0..entries).fold(String::new(), |mut more, n| {
            write!(more, ", k{n}: {n}").unwrap();
            more
        });
        let made = script(&format!(
            "const NAMED = #{{ tag: \"v1\"{more} }};\nconst CALLED = #{{ double: |x| x * 2{more} }};\n\
             fn process(job) {{\n    let own = global::NAMED;\n    own.tag += \"b\";\n    \
             `${{global::NAMED.tag}} ${{own.tag}} ${{global::CALLED.double(4)}}`\n}}"
        ));
        assert_eq!(made.run("1"), "-> \"v1 v1b 8\"", "{entries}");
    }
}

#[test]
fn what_a_script_changes_is_a_copy_of_its_own() {
    insta::assert_snapshot!(agree(&CHANGING));
}

#[test]
fn a_constant_itself_cannot_be_changed() {
    let texts = [
        "MAP.k7 = 1",
        "MAP[\"k7\"] = 1",
        "MAP.k7.n += 1",
        "MAP.remove(\"k7\")",
        "MAP.k7.tags.push(1)",
        "LIST[7] = 1",
        "LIST.push(1)",
        "LIST.clear()",
    ];
    for entries in [10, 200] {
        let [imported, own, ..] = drafts(&texts, entries);
        for draft in [imported, own] {
            for (text, made) in texts.iter().zip(made(&draft, texts.len())) {
                assert!(
                    made.starts_with("failed: ") && made.contains(" constant"),
                    "{text} of {entries}: {made}"
                );
            }
        }
    }
}

#[test]
fn the_function_of_an_import_adds_a_table_to_a_list_element_by_element() {
    for entries in [10, 200] {
        let list = list(entries);
        let tables =
            format!("const LIST = {list};\nfn all() {{ let all = [1]; all += global::LIST; all.len() }}\n");
        let made =
            script("import \"tables\" as t;\nfn process(job) { t::all() }").beside("tables.rhai", &tables);
        assert_eq!(made.run("1"), format!("-> {}", entries + 1));
    }
}
