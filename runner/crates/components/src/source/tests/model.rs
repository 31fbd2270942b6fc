//! Model of a source: for any content, batch limits and restarts, the jobs are the lines.

use proptest::prelude::*;

use super::*;

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        6 => "[a-z0-9\"{},:]{1,20}",
        2 => "[ \t]{0,3}",
        1 => "[a-z]{500,3000}",
        1 => "[ \t]{1,2}[a-z\0]{1,5}[ \t]{1,2}",
    ];
    let end = prop_oneof![3 => Just("\n"), 1 => Just("\r\n")];
    let lines = prop::collection::vec((line, end), 0..300);
    (any::<bool>(), lines, any::<bool>()).prop_map(|(mark, lines, finished)| {
        let mut content = if mark { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
        for (line, end) in &lines {
            content.extend_from_slice(line.as_bytes());
            content.extend_from_slice(end.as_bytes());
        }
        if !finished && !lines.is_empty() {
            content.pop();
        }
        content
    })
}

/// The lines of `content` that are jobs, computed simply, with their numbers.
fn model(content: &[u8]) -> Vec<(usize, String)> {
    let text = String::from_utf8(content.to_vec()).unwrap();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let trimmed = text.split('\n').map(|line| line.trim_matches([' ', '\t', '\r']));
    trimmed
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_line_is_a_job_once_over_any_runs_and_crashes(
        content in content(),
        gz in any::<bool>(),
        split in any::<prop::sample::Index>(),
        runs in prop::collection::vec((1_usize..200, 1_usize..20_000, 1_usize..4), 1..40),
    ) {
        let name = if gz { "in.gz" } else { "in" };
        let mut world = World::new(name);
        // A plain file is present in part at first, up to the end of some line.
        let newline = content[..split.index(content.len() + 1)].iter().rposition(|&byte| byte == b'\n');
        let there = if gz { content.len() } else { newline.map_or(0, |newline| newline + 1) };
        world.put(name, if gz { gzip(&content) } else { content[..there].to_vec() });
        let mut seen: Vec<Seen> = Vec::new();
        let mut appended = false;
        let mut runs = runs.into_iter().cycle();
        let mut idle = 0;
        while idle < 2 {
            // A run: some batches of one limit, then its death.
            let (jobs, bytes, batches) = runs.next().unwrap();
            let source = world.open().unwrap();
            let mut reader = world.reader(&source, seen.len() as u64 + 1);
            for _ in 0..batches {
                match reader.read(BatchLimit { jobs, bytes }).unwrap() {
                    Read::Batch(read) => {
                        prop_assert!(read.batch.len() <= jobs);
                        world.commit(&read);
                        seen.extend(world.see(&read.batch));
                        // The batch after it is read, and never delivered.
                        if batches == 3 {
                            let _lost = reader.read(BatchLimit { jobs, bytes }).unwrap();
                            break;
                        }
                    }
                    Read::End if appended => {
                        idle += 1;
                        break;
                    }
                    Read::End => {
                        if !gz {
                            world.append(name, &content[there..]);
                        }
                        appended = true;
                    }
                    Read::Idle | Read::Busy => prop_assert!(false, "not followed"),
                }
            }
        }
        let jobs: Vec<_> = seen.iter().map(|job| (job.place.clone(), job.text.clone())).collect();
        let expected: Vec<_> = model(&content).into_iter().map(|(line, text)| (format!("{name}:{line}"), text)).collect();
        prop_assert_eq!(jobs, expected);
        prop_assert!(seen.iter().zip(1..).all(|(job, index)| job.index == index));
    }
}

/// An event of a followed log and its two readers.
#[derive(Clone, Debug)]
enum Event {
    Append(&'static str),
    Rotate,
    /// One batch of at most `jobs` jobs, by one of the readers; delivered, or not.
    Read {
        reader: usize,
        jobs: usize,
        delivered: bool,
    },
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => prop_oneof![Just("a\n"), Just("b\n\nc\n"), Just("half "), Just("d\ne")].prop_map(Event::Append),
        1 => Just(Event::Rotate),
        4 => (0_usize..2, 1_usize..4, prop::bool::weighted(0.9))
            .prop_map(|(reader, jobs, delivered)| Event::Read { reader, jobs, delivered }),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 1..60)
}

/// A log that is written to, rotated, and read twice.
struct Log {
    world: World,
    source: SourceLog,
    readers: [Reader; 2],
    seen: [Vec<Seen>; 2],
    rotations: u64,
    writes: u64,
    /// Every line that must become a job, without its number.
    written: Vec<String>,
    unfinished: String,
}

impl Log {
    fn new() -> Self {
        let world = World::new("log").follow();
        world.put("log.old", "never read\n");
        touch(&world.path("log.old"), 0);
        let source = world.open().unwrap();
        let readers = [world.reader(&source, 1), world.reader(&source, 1)];
        let (seen, written) = ([vec![], vec![]], vec![]);
        Self { world, source, readers, seen, rotations: 0, writes: 0, written, unfinished: String::new() }
    }

    fn append(&mut self, text: &str) {
        // Each write is unique, so that no two files are equal.
        self.writes += 1;
        let text = format!("{}{text}", self.writes);
        if !self.world.path("log").exists() {
            self.world.put("log", "");
        }
        self.world.append("log", &text);
        touch(&self.world.path("log"), self.writes);
        self.unfinished += &text;
        while let Some((line, rest)) = self.unfinished.split_once('\n') {
            self.written.extend((!line.is_empty()).then(|| line.to_owned()));
            self.unfinished = rest.to_owned();
        }
    }

    fn rotate(&mut self) {
        if self.world.path("log").exists() {
            self.rotations += 1;
            self.world.rename("log", &format!("log.{}", self.rotations));
            let last = std::mem::take(&mut self.unfinished);
            self.written.extend((!last.trim().is_empty()).then(|| last.trim().to_owned()));
        }
    }

    fn read(&mut self, reader: usize, jobs: usize, delivered: bool) -> bool {
        let Read::Batch(read) = self.readers[reader].read(BatchLimit { jobs, bytes: 1000 }).unwrap() else {
            return false;
        };
        if delivered {
            self.world.commit(&read);
            self.seen[reader].extend(self.world.see(&read.batch));
        } else {
            self.restart();
        }
        true
    }

    /// Everything uncommitted is lost.
    fn restart(&mut self) {
        self.source = self.world.open().unwrap();
        self.readers = [0, 1].map(|at| self.world.reader(&self.source, self.seen[at].len() as u64 + 1));
    }
}

/// Writes in quick succession may have the same time; these do not.
fn touch(path: &Path, second: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + second);
    fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn two_readers_see_every_line_of_a_rotated_log(events in events()) {
        let mut log = Log::new();
        // A file that was rotated before the log was first read is not part of it.
        log.append("first\n");
        log.read(0, 1, true);
        for event in events {
            match event {
                Event::Append(text) => log.append(text),
                Event::Rotate => log.rotate(),
                Event::Read { reader, jobs, delivered } => {
                    log.read(reader, jobs, delivered);
                }
                Event::Restart => log.restart(),
            }
        }
        log.append("\n");
        for reader in [0, 1] {
            while log.read(reader, 100, true) {}
            prop_assert_eq!(texts(&log.seen[reader]), log.written.iter().map(|line| line.trim()).collect::<Vec<_>>());
        }
        prop_assert_eq!(&log.seen[0], &log.seen[1]);
    }
}
