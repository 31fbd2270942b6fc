//! Tests of followed files: a file grows, is truncated, is moved away, and returns.

use super::*;

struct Tail {
    world: World,
    reader: Reader,
}

impl Tail {
    fn of(world: World) -> Self {
        let source = world.open().unwrap();
        let reader = world.reader(&source, 1);
        Self { world, reader }
    }

    fn read(&mut self) -> String {
        table(&self.world.drain(&mut self.reader).unwrap())
    }

    /// A new run that begins at `next`.
    fn restart(self, next: u64) -> Self {
        let source = self.world.open().unwrap();
        let reader = self.world.reader(&source, next);
        Self { world: self.world, reader }
    }
}

#[test]
fn a_line_waits_for_its_newline() {
    let mut tail = Tail::of(World::new("log").follow());
    assert_eq!(tail.read(), "");
    tail.world.put("log", "1\n2");
    assert_eq!(tail.read(), "1 log:1 1\n");
    tail.world.append("log", "2");
    assert_eq!(tail.read(), "");
    tail.world.append("log", "2\n\n3\n");
    assert_eq!(tail.read(), "2 log:2 222\n3 log:4 3\n");
    assert!(matches!(tail.reader.read(LIMIT).unwrap(), Read::Idle));
}

#[test]
fn a_truncated_file_begins_anew() {
    let mut tail = Tail::of(World::new("log").follow());
    tail.world.put("log", "1\n2\n");
    tail.read();
    tail.world.put("log", "3\n");
    assert_eq!(tail.read(), "3 log:1 3\n");
    tail.world.put("log", "");
    assert_eq!(tail.read(), "");
    tail.world.append("log", "4\n");
    assert_eq!(tail.read(), "4 log:1 4\n");
    // Longer than before, with another beginning.
    tail.world.put("log", "5\n6\n");
    assert_eq!(tail.read(), "5 log:1 5\n6 log:2 6\n");
    // Truncated while no reader was active.
    tail.world.put("log", "7\n");
    let mut tail = tail.restart(7);
    assert_eq!(tail.read(), "7 log:1 7\n");
}

#[test]
fn a_rotated_file_is_read_to_its_end() {
    let mut tail = Tail::of(World::new("log").follow());
    tail.world.put("log", "1\n");
    tail.read();
    tail.world.rename("log", "log.1").append("log.1", "2\n");
    assert_eq!(tail.read(), "2 log:2 2\n");
    tail.world.put("log", "");
    assert_eq!(tail.read(), "");
    tail.world.append("log.1", "3\nhalf");
    assert_eq!(tail.read(), "3 log:3 3\n");
    tail.world.append("log", "5\n");
    assert_eq!(tail.read(), "4 log:4 half\n5 log:1 5\n");
}

#[test]
fn a_file_rotated_while_nobody_looked_is_found_again() {
    let mut tail = Tail::of(World::new("log").follow());
    tail.world.put("log", "1\n2\n");
    tail.read();
    tail.world.append("log", "3\n").rename("log", "log.1").put("log", "4\n");
    let mut tail = tail.restart(2);
    assert_eq!(tail.read(), "2 log:2 2\n3 log:3 3\n4 log:1 4\n");
    let mut tail = tail.restart(4);
    assert_eq!(tail.read(), "4 log:1 4\n");
}

#[test]
fn a_file_that_is_gone_is_waited_for() {
    let mut tail = Tail::of(World::new("logs/log").follow());
    assert_eq!(tail.read(), "");
    tail.world.put("logs/log", "1\n");
    assert_eq!(tail.read(), "1 logs/log:1 1\n");
    fs::remove_file(tail.world.path("logs/log")).unwrap();
    assert_eq!(tail.read(), "");
    let mut tail = tail.restart(2);
    assert_eq!(tail.read(), "");
    tail.world.put("logs/log", "other\n");
    assert_eq!(tail.read(), "2 logs/log:1 other\n");
}

#[test]
fn readers_at_different_paces_agree_across_a_rotation() {
    let world = World::new("log").follow();
    world.put("log", "1\n2\n");
    let source = world.open().unwrap();
    let mut slow = world.reader(&source, 1);
    let mut fast = Tail { reader: world.reader(&source, 1), world };
    let Read::Batch(first) = slow.read(BatchLimit { jobs: 1, bytes: 1 }).unwrap() else { panic!() };
    assert_eq!(first.batch.len(), 1);
    fast.read();
    fast.world.rename("log", "log.1").put("log", "3\n");
    assert_eq!(fast.read(), "3 log:1 3\n");
    // Too late: the segment has ended.
    fast.world.append("log.1", "lost\n");
    let rest = fast.world.drain(&mut slow).unwrap();
    assert_eq!(table(&rest), "2 log:2 2\n3 log:1 3\n");
    let mut again = fast.restart(1);
    assert_eq!(again.read(), "1 log:1 1\n2 log:2 2\n3 log:1 3\n");
}

#[test]
fn every_file_of_a_followed_folder_is_noticed() {
    let mut tail = Tail::of(World::new("logs").follow());
    tail.world.put("logs/a", "1\nhalf").put("logs/b", "2\n");
    assert_eq!(tail.read(), "1 logs/a:1 1\n2 logs/b:1 2\n");
    assert_eq!(tail.read(), "");
    tail.world.put("logs/c", "3\n").append("logs/b", "4\n");
    assert_eq!(tail.read(), "3 logs/b:2 4\n4 logs/c:1 3\n");
    tail.world.append("logs/a", " done\n");
    assert_eq!(tail.read(), "5 logs/a:2 half done\n");
    let mut tail = tail.restart(6);
    assert_eq!(tail.read(), "");
}

#[test]
fn a_change_wakes_the_readers_of_its_file_and_no_others() {
    let world = World::new("one").follow();
    world.put("one", "").put("other", "");
    let watch = SourceWatch::new();
    let [one, other, both] = ["one", "other", "."].map(|name| Rung::at(&watch, &world.path(name)));
    assert_eq!(watch.look_out(&world.path("one")), Watched::Since);
    assert_eq!(watch.look_out(&world.path("other")), Watched::Already);
    world.append("one", "1\n");
    one.wait();
    both.wait();
    assert!(!other.is_rung());
    world.append("other", "1\n");
    other.wait();
}

#[test]
fn a_folder_that_appears_at_a_missing_path_is_read_and_wakes_its_readers() {
    let world = World::new("logs").follow();
    let path = world.path("logs");
    let watch = SourceWatch::new();
    let rung = Rung::at(&watch, &path);
    assert_eq!(watch.look_out(&path), Watched::Since);
    let mut tail = Tail::of(world);
    assert_eq!(tail.read(), "");
    fs::create_dir(&path).unwrap();
    rung.wait();
    assert_eq!(watch.look_out(&path), Watched::Since);
    while rung.is_rung() {}
    tail.world.put("logs/a", "1\n");
    rung.wait();
    assert_eq!(tail.read(), "1 logs/a:1 1\n");
}

#[test]
fn a_folder_that_comes_back_is_watched_anew_and_a_link_is_polled() {
    let world = World::new("logs/log").follow();
    let path = world.path("logs/log");
    let watch = SourceWatch::new();
    let rung = Rung::at(&watch, &path);
    assert_eq!(watch.look_out(&path), Watched::Polled);
    world.put("logs/log", "1\n");
    assert_eq!(watch.look_out(&path), Watched::Since);
    fs::remove_dir_all(world.path("logs")).unwrap();
    rung.wait();
    assert_eq!(watch.look_out(&path), Watched::Polled);
    world.put("logs/log", "2\n");
    assert_eq!(watch.look_out(&path), Watched::Since);
    while rung.is_rung() {}
    world.append("logs/log", "3\n");
    rung.wait();
    std::os::unix::fs::symlink(&path, world.path("link")).unwrap();
    assert_eq!(watch.look_out(&world.path("link")), Watched::Polled);
}
