//! Outputs of a step: are found on a queue by the job that they were made from.
//!
//! The log has no row per job, so it has no index by origin. Instead each page of a queue is read once. For
//! each page the least and the greatest index of its origins are kept, by step and input. A page whose jobs
//! have other origins is not read again. Jobs in the log do not change, so pages do not either. The last page of a queue is
//! read again after jobs were added to it. Chapters of many pages are skipped as a whole.

use std::collections::BTreeMap;
use std::ops::Range;

use redb::ReadTransaction;

use super::{Store, find_queue, in_queue, missing, unreadable};
use crate::codec::block::Sought;
use crate::codec::log_record::LogValue;
use crate::database::format::{LOG, RecordKey};
use crate::error::{ReadError, StoreCause};
use tidegate_model::sync::{Mutex, MutexGuard};
use tidegate_model::{Address, Origin, Timestamp};

/// Jobs per page; a page begins at a multiple of it.
const PAGE: u64 = 128;
/// Number of jobs, and of their bytes, that one read of unknown pages covers.
const READ: usize = 1024;
const READ_BYTES: usize = 2 << 20;
/// Number of pages in a chapter; a chapter begins at a multiple of it.
const CHAPTER: u64 = 64;
/// Number of adjacent pages that a search for one place covers.
const PAGES_ABOUT: u64 = 2;
/// Maximum number of known pages, which hold about 8 million jobs; then all are forgotten.
const PAGES_MAX: usize = 1 << 16;

/// A job on a queue, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOutput {
    pub index: u64,
    /// The commit time.
    pub time: Timestamp,
    pub payload: Vec<u8>,
    pub origin: Origin,
}

/// A step, and a job of one of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct OutputOrigin<'a> {
    pub step: &'a Address,
    /// The name of the input in delivery hashes.
    pub input: &'a str,
    pub index: u64,
}

/// The index of pages.
#[derive(Debug, Default)]
pub(crate) struct Pages(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Steps and their inputs, by number.
    makers: Vec<(Address, String)>,
    queues: BTreeMap<Address, Queue>,
    /// Number of known whole pages.
    count: usize,
    /// Number of pages that were read.
    #[cfg(test)]
    learnt: u64,
}

/// The known pages of a queue.
#[derive(Debug, Default)]
struct Queue {
    /// Whole pages, by number.
    pages: BTreeMap<u64, Box<[Span]>>,
    /// The common spans of the pages of each chapter, by number.
    chapters: BTreeMap<u64, Chapter>,
    /// The last page, which is incomplete, with the head of the queue when it was read.
    tail: Option<(u64, u64, Box<[Span]>)>,
}

/// The pages of a chapter that are known.
#[derive(Debug, Default)]
struct Chapter {
    pages: u64,
    spans: Vec<Span>,
}

/// The range of origin indices of one maker's jobs on a page.
#[derive(Clone, Copy, Debug)]
struct Span {
    maker: usize,
    first: u64,
    last: u64,
}

impl Store {
    /// The jobs that the step has made from this job, on `queue` in `range`: at most the first `most`.
    pub fn made(
        &self,
        queue: &Address,
        range: Range<u64>,
        of: OutputOrigin<'_>,
        most: usize,
    ) -> Result<Vec<StoredOutput>, ReadError> {
        let mut found = Vec::new();
        let Some(state) = self.queue(queue)? else { return Ok(found) };
        let (start, end) = (range.start.max(state.first), range.end.min(state.head + 1));
        let mut at = start;
        while at < end && found.len() < most {
            let page = self.pages().known().next(queue, at / PAGE..end.div_ceil(PAGE), of);
            at = at.max(page * PAGE);
            if at >= end {
                break;
            }
            let next = ((page + 1) * PAGE).min(end);
            if self.may_hold(queue, page, of, (state.first, state.head))? {
                self.find(queue, at..next, of, &mut found)?;
            }
            at = next;
        }
        found.truncate(most);
        Ok(found)
    }

    /// The least origin index of the step's jobs near `at`; `None` if other steps have made all of them.
    pub fn made_about(
        &self,
        queue: &Address,
        at: u64,
        of: OutputOrigin<'_>,
    ) -> Result<Option<u64>, ReadError> {
        let Some(state) = self.queue(queue)? else { return Ok(None) };
        for page in at / PAGE..at / PAGE + PAGES_ABOUT {
            self.may_hold(queue, page, of, (state.first, state.head))?;
            let first = self.pages().known().first(queue, page, of);
            if first.is_some() {
                return Ok(first);
            }
        }
        Ok(None)
    }

    /// Whether the page may hold a match. An unknown page is read for it, unless some of its jobs are removed.
    fn may_hold(
        &self,
        queue: &Address,
        page: u64,
        of: OutputOrigin<'_>,
        (first, head): (u64, u64),
    ) -> Result<bool, ReadError> {
        if let Some(may) = self.pages().known().may_hold(queue, (page, head), of) {
            return Ok(may);
        }
        let start = (page * PAGE).max(1);
        if start < first {
            return Ok(true);
        }
        self.learn(queue, page, start)?;
        Ok(self.pages().known().may_hold(queue, (page, head), of).unwrap_or(true))
    }

    /// Reads a page, and the following ones of the same read.
    fn learn(&self, queue: &Address, page: u64, mut at: u64) -> Result<(), ReadError> {
        let mut drafts: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
        let end = (page + 1) * PAGE;
        while at < end {
            let Some((batch, origins)) = self.read_details(queue, at, READ, READ_BYTES)? else { break };
            let mut known = self.pages().known();
            for (index, origin) in (at..).zip(&origins) {
                let spans = drafts.entry(index / PAGE).or_default();
                if let Some(origin) = origin {
                    known.note(origin, spans);
                }
            }
            at = batch.end();
        }
        self.pages().known().keep(queue, drafts, at);
        Ok(())
    }

    fn find(
        &self,
        queue: &Address,
        range: Range<u64>,
        of: OutputOrigin<'_>,
        found: &mut Vec<StoredOutput>,
    ) -> Result<(), ReadError> {
        self.view(|txn| {
            let Some((id, record)) = find_queue(txn, queue)? else { return Ok(()) };
            if range.start < record.first {
                let (queue, index) = (queue.clone(), range.start);
                return Err(StoreCause::Gone { queue, index, first: record.first });
            }
            let range = range.start..range.end.min(record.head + 1);
            find(txn, id, range, of, found).map_err(|error| in_queue(queue, error))
        })
    }
}

/// Adds the matches among the kept jobs in `range`.
fn find(
    txn: &ReadTransaction,
    queue: u32,
    range: Range<u64>,
    of: OutputOrigin<'_>,
    found: &mut Vec<StoredOutput>,
) -> Result<(), StoreCause> {
    let log = txn.open_table(LOG)?;
    let start = match log.range((queue, 0)..=(queue, range.start))?.next_back() {
        Some(entry) => entry?.0.value().1,
        None => return Err(missing(range.start)),
    };
    let sought = Sought { step: of.step, input: of.input, index: of.index };
    let mut next = range.start;
    for entry in log.range((queue, start)..(queue, range.end))? {
        let (key, stored) = entry?;
        let (_, first) = key.value();
        let wrong = |what| unreadable(first, what);
        let value = LogValue::parse(stored.value(), RecordKey::Log(queue, first).seed()).map_err(wrong)?;
        // The values follow each other without gaps.
        let start =
            next.checked_sub(first).filter(|&start| start < value.jobs).ok_or_else(|| missing(next))?;
        let end = value.jobs.min(range.end - first);
        let time = value.time;
        let mut add = |(position, payload, origin): (usize, &[u8], Origin)| {
            found.push(StoredOutput {
                index: first + position as u64,
                time,
                payload: payload.to_vec(),
                origin,
            });
        };
        value.find(start..end, sought, &mut add).map_err(wrong)?;
        next = first + end;
    }
    if next < range.end { Err(missing(next)) } else { Ok(()) }
}

impl OutputOrigin<'_> {
    /// The index in the input, if the step has made the job.
    #[must_use]
    pub fn index_in(&self, origin: &Origin) -> Option<u64> {
        let is_of_it = |(input, _): &&(String, u64)| input == self.input;
        let inputs = (origin.step == *self.step).then_some(&origin.inputs)?;
        inputs.iter().find(is_of_it).map(|&(_, index)| index)
    }
}

impl Pages {
    /// Forgets all pages, since the file may be another one now.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }
}

impl Known {
    /// `None` if the page is unknown, of a queue that ends at `head`.
    fn may_hold(&self, queue: &Address, (page, head): (u64, u64), of: OutputOrigin<'_>) -> Option<bool> {
        let Queue { pages, tail, .. } = self.queues.get(queue)?;
        let tail = || tail.as_ref().filter(|(last, end, _)| (*last, *end) == (page, head));
        let spans = pages.get(&page).or_else(|| tail().map(|(.., spans)| spans))?;
        Some(holds(spans, self.maker(of), of))
    }

    /// The first of these pages that may hold a match or is unknown; the end if none exists.
    fn next(&self, queue: &Address, pages: Range<u64>, of: OutputOrigin<'_>) -> u64 {
        let Some(known) = self.queues.get(queue) else { return pages.start };
        let maker = self.maker(of);
        let mut next = pages.start;
        while next < pages.end {
            let chapter = known.chapters.get(&(next / CHAPTER)).filter(|chapter| chapter.pages == CHAPTER);
            let whole = chapter.filter(|_| next.is_multiple_of(CHAPTER));
            match known.pages.get(&next) {
                _ if whole.is_some_and(|chapter| !holds(&chapter.spans, maker, of)) => next += CHAPTER,
                Some(spans) if !holds(spans, maker, of) => next += 1,
                _ => break,
            }
        }
        next.min(pages.end)
    }

    /// The least origin index on the page; `None` also if the page is unknown.
    fn first(&self, queue: &Address, page: u64, of: OutputOrigin<'_>) -> Option<u64> {
        let (spans, maker) = (self.queues.get(queue)?.pages.get(&page)?, self.maker(of)?);
        spans.iter().find(|span| span.maker == maker).map(|span| span.first)
    }

    fn maker(&self, of: OutputOrigin<'_>) -> Option<usize> {
        self.makers.iter().position(|(step, input)| step == of.step && input == of.input)
    }

    fn note(&mut self, origin: &Origin, spans: &mut Vec<Span>) {
        for (input, index) in &origin.inputs {
            let known = self.makers.iter().position(|(step, name)| *step == origin.step && name == input);
            let maker = known.unwrap_or_else(|| {
                self.makers.push((origin.step.clone(), input.clone()));
                self.makers.len() - 1
            });
            widen(spans, Span { maker, first: *index, last: *index });
        }
    }

    /// Notes what was read of a queue up to `end`.
    fn keep(&mut self, queue: &Address, mut pages: BTreeMap<u64, Vec<Span>>, end: u64) {
        let tail = pages.split_off(&(end / PAGE)).pop_first();
        if self.count + pages.len() > PAGES_MAX {
            (self.queues, self.count) = (BTreeMap::new(), 0);
        }
        #[cfg(test)]
        {
            self.learnt += pages.len() as u64;
        }
        let known = self.queues.entry(queue.clone()).or_default();
        let (before, tail) = (known.tail.take(), tail.map(|(page, spans)| (page, end - 1, spans.into())));
        // It may be one that has only not been read to its end.
        known.tail = before.into_iter().chain(tail).max_by_key(|(_, head, _)| *head);
        for (page, spans) in pages {
            let chapter = known.chapters.entry(page / CHAPTER).or_default();
            for &span in &spans {
                widen(&mut chapter.spans, span);
            }
            if known.pages.insert(page, spans.into()).is_none() {
                (self.count, chapter.pages) = (self.count + 1, chapter.pages + 1);
            }
        }
    }
}

/// Has `spans` reach over `other` too.
fn widen(spans: &mut Vec<Span>, other: Span) {
    match spans.iter_mut().find(|span| span.maker == other.maker) {
        Some(span) => (span.first, span.last) = (span.first.min(other.first), span.last.max(other.last)),
        None => spans.push(other),
    }
}

fn holds(spans: &[Span], maker: Option<usize>, of: OutputOrigin<'_>) -> bool {
    spans.iter().any(|span| Some(span.maker) == maker && (span.first..=span.last).contains(&of.index))
}

#[cfg(test)]
mod tests {
    use tidegate_plugin::Payloads;

    use super::*;
    use crate::codec::block::{SECTION_RAW_BYTES_MAX, UNPACKED, Unpacked};
    use crate::testing::FaultyDisk;
    use crate::{Append, Block, Changes, Details, Writer, open_disk};
    use tidegate_model::Origins;

    const INPUT: &str = "p/in";

    /// Each commit appends jobs that were made from these indices.
    fn history(commits: impl IntoIterator<Item = Vec<u64>>) -> (Store, Writer) {
        let (store, mut writer) = open_disk(Box::new(FaultyDisk::new())).unwrap();
        for indices in commits {
            let mut origins = Origins::new(address("p/step"), vec![INPUT.to_owned()]);
            let mut jobs = Payloads::new();
            for index in indices {
                origins.push(&[index]);
                jobs.push(index.to_string().as_bytes());
            }
            let block = Block::encode(&jobs, Details { origins: Some(&origins), carried: None });
            let appends = vec![Append { queue: address("p/out"), block }];
            writer.commit(&Changes { appends, ..Changes::default() }).unwrap();
        }
        (store, writer)
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    fn made(store: &Store, index: u64, range: Range<u64>) -> Vec<u64> {
        let of = OutputOrigin { step: &address("p/step"), input: INPUT, index };
        let made = store.made(&address("p/out"), range, of, 10).unwrap();
        assert!(made.iter().all(|made| made.payload == index.to_string().as_bytes()));
        made.iter().map(|made| made.index).collect()
    }

    fn learnt(store: &Store) -> u64 {
        store.pages().known().learnt
    }

    #[test]
    fn each_page_is_read_once_however_many_jobs_are_looked_for() {
        let jobs = 60_000;
        let (store, _writer) =
            history((0..jobs / 500).map(|part| (part * 500 + 1..=part * 500 + 500).collect()));
        assert_eq!(made(&store, 30_000, 1..jobs + 1), [30_000]);
        let once = learnt(&store);
        assert_eq!(once, (jobs + 1) / PAGE);
        for index in [1, 127, 128, 129, 59_999, jobs, jobs + 1] {
            let expected: &[u64] = if index <= jobs { &[index] } else { &[] };
            assert_eq!(made(&store, index, 1..jobs + 1), expected);
        }
        let about = |at, step| {
            let of = OutputOrigin { step: &address(step), input: INPUT, index: 1 };
            store.made_about(&address("p/out"), at, of).unwrap()
        };
        assert_eq!((about(30_000, "p/step"), about(30_000, "p/other")), (Some(30_000 / PAGE * PAGE), None));
        assert_eq!(learnt(&store), once);
    }

    /// The counts of the sections that `look` unpacks.
    fn unpacked(look: impl FnOnce()) -> Unpacked {
        UNPACKED.set(Unpacked::NOTHING);
        look();
        UNPACKED.get()
    }

    #[test]
    fn a_look_at_one_job_copies_that_job_alone_and_unpacks_two_sections_at_most() {
        for jobs in [10, 60_000] {
            let (store, _writer) = history([(1..=jobs).collect()]);
            // Pages are read once.
            made(&store, 1, 1..jobs + 1);
            for index in (1..=jobs).step_by(if jobs > 10 { 97 } else { 1 }) {
                let read = unpacked(|| {
                    let batch = store.read(&address("p/out"), index, 1, 0).unwrap().unwrap();
                    assert_eq!(batch.payloads.get(0), Some(index.to_string().as_bytes()));
                });
                assert_eq!((read.sections, read.jobs), (1, 1), "{index} of {jobs}");
                let found = unpacked(|| assert_eq!(made(&store, index, 1..jobs + 1), [index]));
                assert_eq!(found.jobs, 1, "{index} of {jobs}");
                // A page spans two sections at most.
                let most = if jobs > 10 { 2 } else { 1 };
                assert!(found.sections <= most, "{index} of {jobs}: {found:?}");
                assert!(
                    found.bytes <= found.sections * SECTION_RAW_BYTES_MAX,
                    "{index} of {jobs}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_was_made_late_or_twice_is_found_and_what_is_outside_the_range_is_not() {
        let (store, _writer) =
            history([(1..=300).collect(), vec![7, 400, 7], (301..=500).collect(), vec![7]]);
        assert_eq!(made(&store, 7, 1..1000), [7, 301, 303, 504]);
        assert_eq!(made(&store, 7, 8..504), [301, 303]);
        assert_eq!(made(&store, 7, 302..1000), [303, 504]);
        assert_eq!(made(&store, 400, 1..1000), [302, 403]);
        assert_eq!(made(&store, 501, 1..1000), [0; 0]);
    }

    #[test]
    fn an_output_has_the_time_of_its_commit() {
        let (store, _writer) = history([vec![1, 2], vec![3, 1]]);
        let of = OutputOrigin { step: &address("p/step"), input: INPUT, index: 1 };
        let made = store.made(&address("p/out"), 1..5, of, 10).unwrap();
        assert_eq!(made.iter().map(|made| made.index).collect::<Vec<_>>(), [1, 4]);
        for made in made {
            let batch = store.read(&address("p/out"), made.index, 1, 0).unwrap().unwrap();
            assert_eq!(batch.stamp(0).map(|stamp| stamp.time), Some(made.time));
        }
    }

    #[test]
    fn what_comes_later_is_found_where_a_page_was_not_whole() {
        let (store, mut writer) = history([vec![1, 2, 3]]);
        assert_eq!(made(&store, 9, 1..1000), [0; 0]);
        let mut origins = Origins::new(address("p/step"), vec![INPUT.to_owned()]);
        origins.push(&[9]);
        let jobs: Payloads = [b"9".as_slice()].into_iter().collect();
        let block = Block::encode(&jobs, Details { origins: Some(&origins), carried: None });
        let appends = vec![Append { queue: address("p/out"), block }];
        writer.commit(&Changes { appends, ..Changes::default() }).unwrap();
        assert_eq!(made(&store, 9, 1..1000), [4]);
    }

    #[test]
    fn chapters_and_a_last_page_without_the_job_are_passed_over() {
        let last = CHAPTER * PAGE * 3 + 50;
        // The first job is made again late, and job 5 of the second chapter early.
        let mut indices: Vec<u64> = (1..=last).collect();
        indices[20] = CHAPTER * PAGE + 5;
        indices.push(1);
        let (store, mut writer) = history([indices]);
        let end = last + 2;
        assert_eq!(made(&store, last, 1..end), [last]);
        for (index, expected) in
            [(1, vec![1, last + 1]), (CHAPTER * PAGE + 5, vec![21, CHAPTER * PAGE + 5]), (last + 1, vec![])]
        {
            assert_eq!(made(&store, index, 1..end), expected);
        }
        let unread = unpacked(|| assert_eq!(made(&store, last + 1, 1..end), [0; 0]));
        assert_eq!(unread, Unpacked::NOTHING);
        let mut origins = Origins::new(address("p/step"), vec![INPUT.to_owned()]);
        origins.push(&[last + 1]);
        let jobs: Payloads = [(last + 1).to_string().as_bytes()].into_iter().collect();
        let block = Block::encode(&jobs, Details { origins: Some(&origins), carried: None });
        let appends = vec![Append { queue: address("p/out"), block }];
        writer.commit(&Changes { appends, ..Changes::default() }).unwrap();
        assert_eq!(made(&store, last + 1, 1..end + 1), [last + 2]);
    }
}
