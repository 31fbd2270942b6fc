//! Crashes of a small run: it ends at every operation of the store's disk, and at every sync. The final state
//! must equal that of an undisturbed run.

use tidegate_dispatch::RunOutcome;
use tidegate_store::testing::{DiskBytes, DiskFailure, FaultyDisk};

use crate::random::Random;
use crate::small_run::{Left, SmallRun};

/// The final state of an undisturbed run.
fn undisturbed(run: &SmallRun, image: &DiskBytes) -> Left {
    let disk = FaultyDisk::with(image.clone());
    assert_eq!(run.run(&disk).expect("nothing fails"), RunOutcome::Drained);
    let left = run.left(&disk);
    run.begin_anew();
    left
}

/// Continues after a crash, and expects the final state of an undisturbed run.
fn assert_recovers(run: &SmallRun, disk: &FaultyDisk, expected: &Left, what: &str) {
    match run.run(disk) {
        Ok(RunOutcome::Drained) => {}
        other => panic!("{what}: {other:?}"),
    }
    run.left(disk).assert_is(expected, what);
}

#[test]
fn whichever_operation_of_the_store_is_the_last_nothing_is_lost_and_nothing_is_done_twice() {
    crash_at_every_operation(false);
}

#[test]
fn whichever_operation_is_the_last_before_the_power_fails_nothing_is_lost_and_nothing_is_done_twice() {
    crash_at_every_operation(true);
}

fn crash_at_every_operation(power_goes: bool) {
    let (run, image) = (SmallRun::new(), SmallRun::image());
    let expected = undisturbed(&run, &image);
    for operation in 1.. {
        let what = format!("operation {operation}");
        let mut random = Random::new(operation);
        run.begin_anew();
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::From(operation));
        let ended = run.run(&disk);
        if !disk.struck() {
            assert!(matches!(ended, Ok(RunOutcome::Drained)), "{what}: {ended:?}");
            assert!(operation > 40, "there were only {operation} operations to fail");
            break;
        }
        let mut disk = after(&run, &disk, power_goes, &mut random);
        // Some recoveries are interrupted, too.
        if random.below(3) == 0 {
            disk.fail(DiskFailure::From(1 + random.below(60)));
            let _ = run.run(&disk);
            disk = after(&run, &disk, power_goes, &mut random);
        }
        assert_recovers(&run, &disk, &expected, &what);
    }
}

/// The disk after a crash.
fn after(run: &SmallRun, disk: &FaultyDisk, power_goes: bool, random: &mut Random) -> FaultyDisk {
    if !power_goes {
        return FaultyDisk::with(disk.bytes());
    }
    let survivors = FaultyDisk::with(disk.survivors(random.below(4)));
    run.lose_power(&survivors, random);
    FaultyDisk::with(survivors.bytes())
}

#[test]
fn whichever_sync_of_the_store_is_the_last_nothing_is_lost_and_nothing_is_done_twice() {
    let (run, image) = (SmallRun::new(), SmallRun::image());
    let expected = undisturbed(&run, &image);
    for sync in 1.. {
        run.begin_anew();
        let disk = FaultyDisk::with(image.clone());
        disk.fail(DiskFailure::FreezeAt(sync));
        run.run(&disk).expect("a disk that freezes reports no error");
        if !disk.struck() {
            assert!(sync > 5, "there were only {sync} syncs to fail");
            break;
        }
        let whole = std::fs::read(run.output()).unwrap_or_default();
        for seed in 0..6 {
            let mut random = Random::new(sync * 100 + seed);
            std::fs::write(run.output(), &whole).expect("files can be written");
            let survivors = FaultyDisk::with(disk.survivors(seed));
            run.lose_power(&survivors, &mut random);
            assert_recovers(
                &run,
                &FaultyDisk::with(survivors.bytes()),
                &expected,
                &format!("sync {sync}, seed {seed}"),
            );
        }
    }
}
