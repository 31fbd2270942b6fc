//! Tests of queue tables: they are built before a reload, under the names that the store has then.

use tidegate_config::{LoadOptions, Positions, load};
use tidegate_store::{Append, Block, Changes, Details, Renames, Trim, TrimWhen, Writer, open_in_memory};

use super::*;

static NEVER: AtomicBool = AtomicBool::new(false);

fn address(name: &str) -> Address {
    Address::parse(name).unwrap()
}

/// A pipeline `p` with these queues and tables. `before`: the positions of the configuration before.
fn configuration(toml: &str, before: &mut Positions, renamed: &[RenamedPart]) -> Arc<Configuration> {
    let folder = tempfile::tempdir().unwrap();
    let step = "[step.find]\nfrom = \"jobs\"\nrun = \"find.rhai\"\nto = \"out\"\n";
    std::fs::write(folder.path().join("p.toml"), [step, toml].concat()).unwrap();
    std::fs::write(folder.path().join("find.rhai"), "fn process(job) { lookup(\"t\", job.id) }").unwrap();
    let (mut configuration, _) = load(folder.path(), &LoadOptions::default()).finish().unwrap();
    before.rename(renamed);
    configuration.keep_positions(before);
    Arc::new(configuration)
}

fn table(queue: &str, key: &str) -> String {
    format!("[queue.{queue}]\n[table.t]\nqueue = \"{queue}\"\nkey = \"{key}\"\n")
}

fn append(writer: &mut Writer, queue: &str, jobs: &[&str]) -> Payloads {
    let payloads: Payloads = jobs.iter().map(|job| job.as_bytes()).collect();
    let block = Block::encode(&payloads, Details::default());
    let appends = vec![Append { queue: address(queue), block }];
    writer.commit(&Changes { appends, ..Changes::default() }).unwrap();
    payloads
}

/// Next index and number of rows of the only table.
fn counts(tables: &QueueTables, configuration: &Configuration) -> Option<(u64, u64)> {
    let (_, table) = configuration.queue_tables().next().unwrap();
    tables.counts(configuration, table).map(|counts| (counts.next, counts.rows))
}

fn renamed(from: &str, to: &str) -> RenamedPart {
    RenamedPart { kind: NamedKind::Endpoint, from: address(from), to: address(to) }
}

#[test]
fn a_queue_that_is_renamed_and_gets_another_key_has_its_table_before_the_reload() {
    let (store, mut writer) = open_in_memory().unwrap();
    let (tables, mut positions) = (QueueTables::default(), Positions::default());
    append(&mut writer, "p/a", &["{\"id\":1,\"n\":7}", "{\"id\":1,\"n\":8}"]);
    let before = configuration(&table("a", "id"), &mut positions, &[]);
    let queue = queue_of(&before, before.queue_tables().next().unwrap().1).unwrap();
    assert!(!tables.may_follow(queue));
    tables.build(&before, &[], &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &before), Some((3, 1)));
    assert!(tables.may_follow(queue) && !tables.may_follow(QueueRef(queue.0 + 1)));
    let parts = vec![renamed("p/a", "p/b")];
    let after = configuration(&table("b", "n"), &mut positions, &parts);
    tables.build(&after, &parts, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &after), Some((3, 2)), "the store has the former name");
    // Jobs that are committed before the reload.
    let more = append(&mut writer, "p/a", &["{\"id\":1,\"n\":9}"]);
    tables.add((queue, &address("p/a")), (3, &more), &store);
    assert_eq!((counts(&tables, &before), counts(&tables, &after)), (Some((4, 1)), Some((4, 3))));
    let renamed = Renames { generation: 2, parts };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
    tables.follow(&after, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &after), Some((4, 3)));
}

#[test]
fn a_new_queue_with_the_former_name_of_another_one_has_no_rows_of_that() {
    let (store, mut writer) = open_in_memory().unwrap();
    let (tables, mut positions) = (QueueTables::default(), Positions::default());
    append(&mut writer, "p/a", &["{\"id\":1}", "{\"id\":2}"]);
    configuration(&table("a", "id"), &mut positions, &[]);
    let parts = vec![renamed("p/a", "p/b")];
    let after = configuration(&[&table("a", "id"), "[queue.b]\n"].concat(), &mut positions, &parts);
    tables.build(&after, &parts, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &after), Some((1, 0)));
    let renamed = Renames { generation: 2, parts };
    writer.commit(&Changes { renamed, ..Changes::default() }).unwrap();
    tables.follow(&after, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &after), Some((3, 0)), "the indices under a name go on");
}

#[test]
fn a_table_that_returns_has_no_rows_of_jobs_that_its_queue_has_deleted_meanwhile() {
    let (store, mut writer) = open_in_memory().unwrap();
    let (tables, mut positions) = (QueueTables::default(), Positions::default());
    append(&mut writer, "p/a", &["{\"id\":1}", "{\"id\":2}"]);
    let with = configuration(&table("a", "id"), &mut positions, &[]);
    tables.follow(&with, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &with), Some((3, 2)));
    let without = configuration(
        "[queue.a]\n[queue.other]\n[table.t]\nqueue = \"other\"\nkey = \"id\"\n",
        &mut positions,
        &[],
    );
    tables.follow(&without, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &with), Some((3, 2)), "a step of the earlier configuration still reads it");
    let (when, max_bytes) = (TrimWhen::Always, None);
    let trims = vec![Trim { queue: address("p/a"), up_to: 2, when, max_bytes }];
    writer.commit(&Changes { trims, ..Changes::default() }).unwrap();
    let again = configuration(&table("a", "id"), &mut positions, &[]);
    tables.build(&again, &[], &store, &NEVER).unwrap();
    tables.follow(&again, &store, &NEVER).unwrap();
    assert_eq!(counts(&tables, &again), Some((3, 0)));
}
