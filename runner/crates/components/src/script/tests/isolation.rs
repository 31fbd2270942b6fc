//! Tests of isolation: no state persists from one job to the next.

use proptest::prelude::*;
use tidegate_plugin::{Outputs, Step as _};

use super::{Draft, failure_text, job, listed, script};
use crate::memory::left;

/// Each tries to keep state for the next job.
const KIT: &str = r"
let cache = #{};
let inner = #{ list: [], deep: #{ n: 0 } };
let look_up = |k| cache[k];
let counted = 0;
let count = || { counted += 1; counted };
let list = [];
let push = |x| { list.push(x); list.len };
let note = |key| { cache[key] = 1; inner.deep.n += 1; [cache.len(), inner.deep.n] };
let hold = #{ n: 0 };
hold.next = || { hold.n += 1; hold.n };
let whole = || list;
let reach = || inner;
let tagged = [1];
let tag = || tagged.tag;
const TABLE = #{ a: [1, 2], f: |x| x };
const NEXT = || { counted += 1; list.push(counted); cache[`k${counted}`] = list; [counted, list.len, cache.len()] };
const HELD = #{ n: 0 };
const HOLD = || HELD;
fn next() { global::NEXT.call() }
fn held(key) { global::HELD.put(key, 1) }
export const OPEN = #{ a: [1, 2] };
export cache; export look_up; export counted; export count; export list; export push; export whole;
export inner; export reach; export note; export hold; export tagged; export tag;
export TABLE;
fn add(n) { this += n; this }
fn put(key, value) { this[key] = value; this.len() }
fn append(value) { this.push(value); this.len() }
fn table() { global::TABLE }
";

const ATTEMPTS: [&str; 37] = [
    "kit::cache.remember(`k${job.id}`)",
    "kit::cache.put(`k${job.id}`, 1)",
    "kit::look_up.call(`k${job.id}`)",
    "kit::counted.add(1)",
    "kit::counted += 1; kit::counted",
    "kit::count.call()",
    "kit::list.append(job.id)",
    "kit::list.push(job.id); kit::list.len",
    "kit::list += [1]; kit::list.len",
    "kit::push.call(job.id)",
    "let l = kit::whole.call(); l.push(1); kit::list.len",
    "let i = kit::reach.call(); i.deep.n += 1; i.list.push(job.id); kit::inner",
    "kit::inner.deep.n += 1; kit::inner.deep.n",
    "kit::inner.list.push(1); kit::inner.list.len",
    "kit::inner.deep.put(`k${job.id}`, 1)",
    "kit::note.call(`k${job.id}`)",
    "kit::note.call(`a`); kit::note.call(`b`)",
    "kit::next()",
    "kit::next(); kit::next()",
    "kit::held(`k${job.id}`)",
    "kit::hold.next.call(); kit::hold.next.call()",
    "kit::hold.put(`k${job.id}`, 1); kit::hold.len()",
    "[1, 2, 3].map(kit::push)",
    "let f = kit::count; let g = || f.call(); g.call() + g.call()",
    "kit::tagged.tag = job.id; kit::tagged.tag",
    "kit::tagged.set_tag(job.id); kit::tag.call()",
    "kit::tagged.tag",
    "kit::OPEN.a.push(1); kit::OPEN.a.len",
    "kit::OPEN.put(`k${job.id}`, 1)",
    "kit::TABLE.a.push(1); kit::TABLE",
    "let t = kit::table(); t.a.push(1); kit::table().a.len",
    "global::MINE.a.push(1); global::MINE.a.len",
    "let m = global::MINE; m.a.push(1); global::MINE.a.len",
    "global::COUNT.call()",
    "ctx.config.seen.push(job.id); ctx.config.seen.len",
    "let c = ctx.config; c.seen.push(job.id); ctx.config.seen.len",
    "let f = kit::count; take(kit::list); [kit::list.len, kit::cache.len(), kit::counted]",
];

/// A step whose jobs name the attempts to make.
fn draft() -> Draft {
    let function = |(number, attempt): (usize, &&str)| {
        format!(
            "fn attempt_{number}(job, ctx) {{ try {{ {attempt} }} catch (error) {{ return error.message; }} }}\n"
        )
    };
    let attempts = ATTEMPTS.iter().enumerate().map(function).collect::<Vec<_>>().concat();
    let choice: Vec<String> = (0..ATTEMPTS.len()).map(|n| format!("{n} => attempt_{n}(job, ctx)")).collect();
    let mut draft = script(&format!(
        "import \"kit\" as kit;\nconst MINE = #{{ a: [1] }};\nlet n = 0;\nconst COUNT = || {{ n += 1; n }};\n\
         fn remember(key) {{ this[key] = this.len(); this[key] }}\nfn add(n) {{ this += n; this }}\n\
         fn put(key, value) {{ this[key] = value; this.len() }}\nfn append(value) {{ this.push(value); this.len() }}\n\
         {attempts}fn process(job, ctx) {{ let made = []; for a in job.attempts {{ made.push(switch a {{ {} }}); }} [made] }}",
        choice.join(", ")
    ))
    .beside("kit.rhai", KIT);
    draft.config = serde_json::json!({ "seen": [], "deep": { "n": 1 } });
    draft
}

/// The results of `jobs` in a fresh step that runs them in the order of `order`.
fn made(draft: &Draft, jobs: &[Vec<usize>], order: &[usize]) -> Vec<String> {
    let mut step = draft.try_build().unwrap();
    let mut made = vec![String::new(); jobs.len()];
    for &position in order {
        let mut outputs = Outputs::new([""]);
        let payload = format!(r#"{{"id":{position},"attempts":{:?}}}"#, jobs[position]);
        made[position] = match step.process(&job(position as u64, &payload), &mut outputs) {
            Ok(()) => listed(&outputs),
            Err(failure) => failure_text(&failure),
        };
        made[position] = draft.plain(&made[position]);
    }
    made
}

#[test]
fn functions_of_one_name_in_a_script_and_in_its_import_stay_apart() {
    let imported = "fn name() { \"imported\" }\nfn other() { 1 }\nfn all() { [name(), name(), name()] }\n";
    let draft = script(
        "import \"kit\" as kit;\nfn name() { \"own\" }\n\
         fn process(job) {\n    switch job.kind {\n        \"own\" => name(),\n        \"import\" => kit::all(),\n        \
         _ => Fn(\"other\").call(),\n    }\n}",
    )
    .beside("kit.rhai", imported);
    let mut step = draft.try_build().unwrap();
    let mut run = |kind: &str| {
        let mut outputs = Outputs::new([""]);
        let made = step.process(&job(1, &format!("{{\"kind\":\"{kind}\"}}")), &mut outputs);
        made.map_or_else(|failure| draft.plain(&failure_text(&failure)), |()| listed(&outputs))
    };
    for _ in 0..3 {
        assert_eq!(run("own").trim_end(), "-> \"own\"");
        let unknown = run("other");
        assert!(unknown.starts_with("failed: "), "{unknown}");
        assert_eq!(run("import").matches("imported").count(), 3);
    }
}

#[test]
fn names_of_functions_that_come_with_jobs_are_not_kept() {
    let draft =
        script("fn process(job) { for n in 0..3 { try { Fn(job.name).call(); } catch {} } job.name }");
    let mut step = draft.try_build().unwrap();
    let mut outputs = Outputs::new([""]);
    let mut run = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            step.process(&job(1, &format!("{{\"name\":\"f{number}\"}}")), &mut outputs).unwrap();
            outputs.clear();
        }
        left()
    };
    let before = run(0..100);
    let after = run(100..20_000);
    assert!(before - after < 256 << 10, "{}", before - after);
}

#[test]
fn what_a_job_cannot_change_for_others_is_an_error() {
    let all: Vec<usize> = (0..ATTEMPTS.len()).collect();
    let jobs: Vec<Vec<usize>> = all.iter().map(|&one| vec![one]).collect();
    let shown: Vec<String> = ATTEMPTS
        .iter()
        .zip(made(&draft(), &jobs, &all))
        .map(|(text, made)| format!("{text}\n    {}", made.trim_end()))
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn jobs_make_the_same_in_any_order(
        jobs in prop::collection::vec(prop::collection::vec(0..ATTEMPTS.len(), 1..6), 2..8),
        seed in any::<u64>(),
    ) {
        let draft = draft();
        let order: Vec<usize> = (0..jobs.len()).collect();
        let mut other = order.clone();
        // The same job twice, last of all, so that it follows each of the others.
        other.sort_by_key(|position| (*position as u64 + 1).wrapping_mul(seed | 1));
        let first = made(&draft, &jobs, &order);
        prop_assert_eq!(&first, &made(&draft, &jobs, &other));
        for (position, made_first) in first.iter().enumerate() {
            prop_assert_eq!(made_first, &made(&draft, &jobs, &[position])[position]);
        }
    }
}
