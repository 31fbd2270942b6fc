//! Model of a sink: after any sequence of events, the file has the committed content.

use proptest::prelude::*;

use super::*;

/// An event of a sink.
#[derive(Clone, Debug)]
enum Event {
    Write(Vec<String>),
    /// Syncs, and commits if the flag is set; rolls back otherwise.
    Commit(bool),
    RollBack,
    /// The process dies. Uncommitted bytes stay in the file, except for a number of them, followed by
    /// garbage.
    Crash {
        torn: u64,
        rubbish: usize,
    },
    Stop,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let line = prop_oneof![8 => "[a-z0-9]{0,12}", 1 => "[a-z]{3000,6000}"];
    let event = prop_oneof![
        4 => prop::collection::vec(line, 1..4).prop_map(Event::Write),
        3 => any::<bool>().prop_map(Event::Commit),
        1 => Just(Event::RollBack),
        2 => (0_u64..9000, 0_usize..50).prop_map(|(torn, rubbish)| Event::Crash { torn, rubbish }),
        1 => Just(Event::Stop),
    ];
    prop::collection::vec(event, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn after_any_history_the_file_holds_what_was_committed(events in events()) {
        let mut world = World::new(OnMismatch::Refuse);
        let mut sink = world.open().unwrap();
        let (mut committed, mut written) = (String::new(), String::new());
        for event in events {
            match event {
                Event::Write(lines) => {
                    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                    world.write(&mut sink, &lines).unwrap();
                    for line in lines {
                        written += line;
                        written += "\n";
                    }
                }
                Event::Commit(true) => {
                    let position = sink.sync().unwrap();
                    world.commit(&mut sink, position);
                    committed += &std::mem::take(&mut written);
                }
                Event::Commit(false) => {
                    sink.sync().unwrap();
                    sink.roll_back().unwrap();
                    written.clear();
                }
                Event::RollBack => {
                    sink.roll_back().unwrap();
                    written.clear();
                }
                Event::Crash { torn, rubbish } => {
                    drop(sink);
                    // Unsynced bytes may be cut or garbled; committed ones are durable.
                    if !written.is_empty() {
                        let file = OpenOptions::new().append(true).open(world.path()).unwrap();
                        let len = committed.len() as u64 + (written.len() as u64).saturating_sub(torn);
                        file.set_len(len).unwrap();
                        world.append(&"#".repeat(rubbish));
                    }
                    written.clear();
                    sink = world.open().unwrap();
                }
                Event::Stop => {
                    sink.roll_back().unwrap();
                    written.clear();
                    world.stop(sink);
                    sink = world.open().unwrap();
                }
            }
        }
        sink.roll_back().unwrap();
        drop(sink);
        let content = fs::read_to_string(world.path()).unwrap_or_default();
        prop_assert_eq!(content, committed);
    }
}
