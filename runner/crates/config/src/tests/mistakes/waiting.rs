//! How jobs wait, are tried again, and come by themselves: retries, queuers, gates, monitors, schedules.

use super::{Folder, GOOD};

mistakes! {
    a_policy_has_known_keys: "a.toml" = concat!(step!("retry = \"chain\""), "[retry.chain]\nintial = \"1s\"\nmax_attempts = \"3\"\nttl = \"0s\"\n");
    a_policy_is_made_of_known_words: "a.toml" = step!("retry = { backoff = \"expo\", jitter = \"some\", then = \"error_queue\", on = [\"timeuot\", \"http 404\", \"script\", \"script\"] }");
    a_delay_goes_forward: "a.toml" = step!("retry = { initial = \"-1s\", max = \"0s\", factor = 0.5, max_attempts = -1 }");
    a_factor_is_a_number: "a.toml" = concat!(step!("retry = { factor = \"2\" }"), "[step.b]\nfrom = \"events\"\nretry = { factor = nan, max_attempts = 4294967296 }\n");
    a_list_has_its_delays: "a.toml" = concat!(step!("retry = { backoff = \"list\" }"), "[step.b]\nfrom = \"events\"\nretry = { backoff = \"list\", delays = [] }\n[step.c]\nfrom = \"events\"\nretry = { backoff = \"list\", delays = [\"1s\", \"soon\", 5] }\n");
    a_key_belongs_to_its_backoff: "a.toml" = concat!(step!("retry = { delays = [\"1s\"] }"), "[step.b]\nfrom = \"events\"\nretry = { backoff = \"list\", delays = [\"1s\"], initial = \"1s\", max = \"1h\", factor = 2 }\n[step.c]\nfrom = \"events\"\nretry = { backoff = \"fixed\", max = \"1h\" }\n");
    the_first_delay_is_not_the_longest: "a.toml" = concat!(step!("retry = { initial = \"2h\" }"), "[step.b]\nfrom = \"events\"\nretry = { max = \"100ms\" }\n");
    a_policy_has_a_name: "a.toml" = concat!(step!("retry = \"chian\""), "[step.b]\nfrom = \"events\"\nretry = \"elephant\"\n[step.c]\nfrom = \"events\"\nretry = [\"chain\"]\n[step.d]\nfrom = \"events\"\nretry = \"${SECRET}\"\n[retry.\"a chain\"]\n[retry.chain]\n");
    what_is_written_otherwise_is_told_how: "a.toml" = concat!(step!("queuer = { strategy = \"fifo\", max_processing = \"8\", max_search_ahead = 1.5 }\nrate = \"10/s\"\nretry = \"none\""),
        "[step.b]\nfrom = \"events\"\nretry = { initial = \"1.5s\", max = \"1 h\", on = \"timeout\" }\ngate = \"\"\n[source.ticks]\ntype = \"schedule\"\ncron = \"@every 5m\"\n[source.more]\ntype = \"schedule\"\ncron = \"daily\"\n");
    a_path_begins_in_the_job: "a.toml" = step!("queuer = { strategy = \"one-round-serial\", lane = \"job.order.pool\", age = \"job\" }");
    a_name_may_be_meant_for_what_it_names: "a.toml" = concat!(step!("queuer = \"fifo\"\nretry = \"fixed\"\ngate = \"gas.rhai\"\nmonitor = \"status.rhai\""),
        "[step.b]\nfrom = \"events\"\nqueuer = \"one-round-seral\"\nretry = \"list\"\ngate = \"builtin:http\"\n[step.c]\nfrom = \"events\"\nqueuer = \"priority\"\n");
    a_policy_that_nobody_uses_is_a_doubt: "tidegate.toml" = "[retry.chain]\n[queuer.own]\nstrategy = \"fifo\"\n", "a.toml" = concat!(step!("retry = \"chain\""), "[retry.chain]\nmax = \"1m\"\n[gate.gas]\nrun = \"gas.rhai\"\nevery = \"5s\"\n"), "gas.rhai" = "";
    at_most_once_is_never_tried_again: "a.toml" = concat!("[pipeline]\ndelivery = \"at-most-once\"\n", step!("retry = {}"), "[step.b]\nfrom = \"events\"\ndelivery = \"exactly-once\"\nretry = {}\n");
    a_queuer_has_a_strategy: "a.toml" = concat!(step!("queuer = {}"), "[step.b]\nfrom = \"events\"\nqueuer = { strategy = \"lifo\" }\n[step.c]\nfrom = \"events\"\nqueuer = { strategy = \"rouns\", pause = \"-1s\" }\n");
    a_strategy_of_lanes_has_a_lane: "a.toml" = concat!(step!("queuer = { strategy = \"one-round-serial\" }"), "[step.b]\nfrom = \"events\"\nqueuer = { strategy = \"fifo\", lane_rate = \"1/s\", max_per_lane = 1, lane_missing = \"default\" }\n");
    a_strategy_says_what_it_looks_at: "a.toml" = concat!(step!("queuer = { strategy = \"one-round-parallel\", lane = \"a\" }"), "[step.b]\nfrom = \"events\"\nqueuer = { strategy = \"priority\", aging = \"1m\" }\n");
    a_key_belongs_to_its_strategy: "a.toml" = concat!(step!("queuer = { strategy = \"fifo\", pause = \"5s\", reads = \"a\", priority = \"b\", delay_window = \"15s\" }"), "[step.b]\nfrom = \"events\"\nqueuer = { strategy = \"serial\", max_processing = 8 }\n");
    a_lane_is_a_path: "a.toml" = step!("queuer = { strategy = \"one-round-serial\", lane = \"order..account\", lane_missing = \"skip\", age = \"\", id = 7 }");
    bounds_are_one_or_more: "a.toml" = step!("queuer = { strategy = \"fifo\", max_processing = 0, max_search_ahead = -1, rate = \"100\" }");
    a_rate_counts_in_a_time: "a.toml" = concat!(step!("queuer = { strategy = \"fifo\", rate = \"0/s\" }"), "[step.b]\nfrom = \"events\"\nqueuer = { strategy = \"fifo\", lane = \"a\", lane_rate = \"1/parsec\" }\n");
    an_aging_is_more_than_nothing: "a.toml" = step!("queuer = { strategy = \"priority\", priority = \"p\", aging = \"0s\" }");
    a_step_of_several_inputs_does_not_pick: "a.toml" = concat!(step!("to = \"x\""),
        "[step.pair]\njoin = { a = \"events\", b = \"x\" }\nqueuer = { strategy = \"one-round-serial\", lane = \"pool\", age = \"at\" }\n",
        "[step.either]\nalts = { a = \"events\", b = \"x\" }\nqueuer = \"urgent\"\n[queuer.urgent]\nstrategy = \"priority\"\npriority = \"p\"\n",
        "[step.plain]\nalts = { a = \"events\", b = \"x\" }\nqueuer = { strategy = \"serial\" }\n");
    a_gate_asks_something_now_and_then: "a.toml" = concat!(step!("gate = \"gas\""), "[gate.gas]\nevry = \"5s\"\n[gate.other]\nrun = \"gone.rhai\"\nevery = \"0s\"\nhttp = { url = \"https://h\" }\n");
    a_gate_is_named: "a.toml" = concat!(step!("gate = { run = \"gas.rhai\", every = \"5s\" }"), "[step.b]\nfrom = \"events\"\ngate = \"gsa\"\n[gate.gas]\nrun = \"gas.rhai\"\nevery = \"5s\"\n"), "gas.rhai" = "";
    a_monitor_asks_something_now_and_then: "a.toml" = concat!(step!("monitor = { batch = 0 }"), "[step.b]\nfrom = \"events\"\nmonitor = { run = \"status.rhia\", every = \"2s\", batch = 1000000 }\n[step.c]\nfrom = \"events\"\nmonitor = \"status.rhai\"\n"), "status.rhai" = "";
    a_schedule_says_when: "a.toml" = source!("type = \"schedule\"\nmised = \"all\"");
    a_schedule_says_it_once: "a.toml" = source!("type = \"schedule\"\ncron = \"0 * * * *\"\nevery = \"1h\"");
    an_expression_is_one: "a.toml" = concat!(source!("type = \"schedule\"\ncron = \"0 25 * * *\""), "[source.b]\ntype = \"schedule\"\ncron = \"0 0 30 feb *\"\n[source.c]\ntype = \"schedule\"\ncron = 5\n");
    a_time_zone_is_known: "a.toml" = concat!(source!("type = \"schedule\"\ncron = \"@daily\"\ntime_zone = \"Europe/Berlni\""), "[source.b]\ntype = \"schedule\"\nevery = \"5m\"\ntime_zone = \"UTC\"\n[source.c]\ntype = \"schedule\"\ncron = \"@daily\"\ntime_zone = \"${SECRET}\"\n");
    an_interval_is_more_than_nothing: "a.toml" = source!("type = \"schedule\"\nevery = \"0s\"\nmissed = \"last\"");
    a_tick_has_one_due_time: "a.toml" = source!("type = \"schedule\"\nevery = \"5m\"\npayload = { due = 1, far = inf }");
    a_schedule_fills_its_queue_alone: "a.toml" = concat!(source!("type = \"schedule\"\nevery = \"5m\""), "[step.more]\nfrom = \"x\"\nto = \"events\"\n[queue.events]\ndedupe = \"1d\"\n[step.y]\nfrom = \"events\"\nto = \"x\"\n");
}

#[test]
fn nothing_is_wrong_with_names_from_both_files() {
    let folder = Folder::of(&[
        ("tidegate.toml", "[retry.chain]\nmax = \"1m\"\n[retry.other]\n"),
        ("a.toml", concat!(step!("retry = \"chain\""), "[retry.chain]\nmax = \"2m\"\n")),
        (
            "b.toml",
            "[step.b]\nfrom = \"a/events\"\nretry = \"chain\"\n[step.c]\nfrom = \"a/events\"\nretry = \"other\"\n",
        ),
        ("c.toml", GOOD),
    ]);
    let (configuration, warnings) = folder.load().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert!(warnings.is_empty(), "{warnings}");
    let longest = |step: &str| {
        let step = configuration.steps.iter().find(|one| one.address.to_string() == step).unwrap();
        step.retry.as_ref().map(|retry| retry.max.as_secs())
    };
    assert_eq!(longest("a/price"), Some(120), "a pipeline's own name wins");
    assert_eq!(longest("b/b"), Some(60));
    assert_eq!(longest("b/c"), Some(3600));
    assert_eq!(longest("c/price"), None);
}
