//! One mistake after the other, as a person sees it. Each name claims what the snapshot shows.

use super::Folder;

/// A test for each mistake: its files, and a snapshot of what is said about them.
macro_rules! mistakes {
    ($($name:ident: $($file:literal = $text:expr),+;)*) => {
        $(
            #[test]
            fn $name() {
                let folder = Folder::of(&[$(($file, $text)),+]);
                insta::assert_snapshot!(folder.shown());
            }
        )*
    };
}

/// A pipeline with a source `events` and a step `price` that has these lines.
macro_rules! step {
    ($lines:expr) => {
        concat!(
            "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\n",
            "[step.price]\nfrom = \"events\"\n",
            $lines,
            "\n"
        )
    };
}

/// A pipeline with a source `events` that has these lines, and a step that reads it.
macro_rules! source {
    ($lines:literal) => {
        concat!("[step.price]\nfrom = \"events\"\n\n[source.events]\n", $lines, "\n")
    };
}

/// A pipeline with a source, and a sink `report` that reads it and has these lines.
macro_rules! sink {
    ($lines:literal) => {
        concat!(
            "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\n",
            "[sink.report]\nfrom = \"events\"\n",
            $lines,
            "\n"
        )
    };
}

/// Nothing is wrong with it.
const GOOD: &str = step!("");

mod waiting;

/// Keys and types.
mod keys {
    use super::*;

    mistakes! {
        an_unknown_key_gets_the_nearest_one: "a.toml" = step!("timeuot = \"5s\"");
        an_unknown_key_is_shown_its_home: "a.toml" = step!("follow = true");
        an_unknown_key_without_neighbours_gets_all_keys: "a.toml" = step!("elephant = 1");
        an_unknown_table_gets_the_nearest_one: "a.toml" = "[setp.price]\nfrom = \"events\"\n";
        a_setting_in_a_pipeline_is_sent_to_tidegate_toml: "a.toml" = concat!("[runner]\nworkers = 2\n\n", step!(""));
        a_key_at_the_top_is_sent_to_its_table: "a.toml" = concat!("from = \"events\"\n\n", step!(""));
        a_number_is_no_text: "a.toml" = "[step.price]\nfrom = 3\n";
        a_text_is_no_list: "a.toml" = step!("types = \"order\"");
        an_entry_of_a_list_has_a_type_too: "a.toml" = step!("topics = [\"a\", 7]");
        a_text_is_no_truth: "a.toml" = source!("type = \"file\"\npath = \"in\"\nformat = \"lines\"\nfollow = \"yes\"");
        a_list_of_sections_has_names: "a.toml" = "[[source]]\ntype = \"file\"\n";
        a_section_has_a_name: "a.toml" = "[step]\nfrom = \"events\"\n";
        a_section_is_a_table: "a.toml" = "step = \"price\"\n";
        a_name_is_made_of_letters_and_digits: "a.toml" = "[step.\"my step\"]\nfrom = \"events\"\ntimeout = \"5\"\n";
        a_list_of_outputs_needs_bindings: "a.toml" = step!("to = [\"a\", \"b\"]");
        an_empty_list_says_nothing: "a.toml" = step!("run = []\ntypes = []");
        an_empty_fork_says_nothing: "a.toml" = step!("to = {}");
        a_config_is_a_table: "a.toml" = step!("config = \"EUR\"");
        a_config_holds_what_json_can_say: "a.toml" = step!("config = { top = inf, big = 99999999999999999999 }");
        a_step_takes_its_jobs_from_somewhere: "a.toml" = "[step.price]\nrun = []\n";
    }
}

/// Quantities and choices.
mod values {
    use super::*;

    mistakes! {
        a_duration_has_a_unit: "a.toml" = step!("timeout = \"5\"");
        a_duration_is_a_text: "a.toml" = step!("timeout = 5");
        a_timeout_is_more_than_nothing: "a.toml" = step!("timeout = \"0s\"");
        a_size_has_a_known_unit: "a.toml" = step!("limits = { memory = \"16mb\" }");
        a_quantity_has_no_blanks: "a.toml" = concat!(step!("limits = { memory = \"16 megs\" }\ntimeout = \"5 s\""), "[step.b]\nfrom = \"events\"\nlimits = { memory = \"16 MiB\" }\ntimeout = \"10 minutes\"\n");
        limits_are_one_or_more: "a.toml" = step!("limits = { operations = 0, depth = -3, speed = 1 }");
        calls_do_not_nest_deeper_than_a_stack_holds: "a.toml" = step!("limits = { depth = 5000 }");
        workers_are_not_negative: "tidegate.toml" = "[runner]\nworkers = -1\n", "a.toml" = GOOD;
        workers_are_not_thousands: "tidegate.toml" = "[runner]\nworkers = 4000\n", "a.toml" = GOOD;
        a_level_is_a_known_word: "tidegate.toml" = "[log]\nlevel = \"inof\"\nformat = \"xml\"\n", "a.toml" = GOOD;
        an_unknown_format_gets_the_nearest_one: "a.toml" = source!("type = \"file\"\npath = \"in\"\nformat = \"json\"");
        an_unknown_type_gets_the_known_ones: "a.toml" = source!("type = \"kafka\"\npath = \"in\"\nformat = \"csv\"");
        a_delimiter_is_one_character: "a.toml" = source!("type = \"file\"\npath = \"in\"\nformat = \"csv\"\ndelimiter = \"ab\"");
        a_delimiter_is_for_csv: "a.toml" = source!("type = \"file\"\npath = \"in\"\nformat = \"lines\"\ndelimiter = \";\"");
        a_bracket_in_a_pattern_is_closed: "a.toml" = source!("type = \"file\"\npath = \"[ab\"\nformat = \"csv\"");
        a_double_star_in_a_pattern_stands_alone: "a.toml" = source!("type = \"file\"\npath = \"in/a**.csv\"\nformat = \"csv\"");
        a_source_says_what_it_reads: "a.toml" = "[source.events]\n\n[step.price]\nfrom = \"events\"\n";
        a_retention_is_a_word_or_a_duration: "a.toml" = concat!(step!("to = \"x\""), "[queue.x]\nretain = \"ever\"\n[queue.y]\nretain = \"7\"\n");
        a_size_and_a_span_are_more_than_nothing: "a.toml" = concat!(step!("to = \"x\""), "[queue.x]\nmax_size = \"0KiB\"\ndedupe = \"0s\"\n[queue.y]\nmax_size = 1024\ndedupe = \"forever\"\n");
        provenance_is_made_of_known_words: "a.toml" = concat!(step!("to = \"x\""), "[queue.x]\nmeta = [\"index\", \"tiem\", \"index\"]\n[queue.y]\nmeta = \"tx\"\n[queue.z]\nmeta = []\n");
        a_sink_has_a_type: "a.toml" = sink!("path = \"out\"");
        a_file_sink_has_a_path: "a.toml" = sink!("type = \"file\"\non_mismatch = \"overwrite\"");
        a_null_sink_has_no_path: "a.toml" = sink!("type = \"null\"\npath = \"out\"");
        a_path_is_not_empty: "a.toml" = sink!("type = \"file\"\npath = \"\"");
    }
}

/// Steps with several inputs, and what a delivery promises.
mod inputs {
    use super::*;

    mistakes! {
        a_step_takes_its_jobs_in_one_way: "a.toml" = concat!(
            step!("join = { a = \"events\", b = \"x\" }"),
            "[step.two]\nalts = { a = \"x\", b = \"y\" }\nfrom = \"x\"\njoin = { a = \"x\", b = \"y\" }\n");
        several_inputs_have_bindings: "a.toml" = "[step.list]\njoin = [\"a\", \"b\"]\n[step.text]\nalts = \"a\"\n";
        several_inputs_are_two_or_more: "a.toml" = "[step.one]\njoin = { a = \"other/x\" }\n[step.none]\nalts = {}\n", "other.toml" = GOOD;
        one_input_with_a_secret_name_is_not_shown: "a.toml" = "[step.one]\nalts = { a = \"${SECRET_NAME}\" }\n";
        an_input_has_a_name_and_a_binding: "a.toml" = "[step.match]\njoin = { \"an order\" = \"a\", b = 7, c = \"a b\" }\n";
        a_step_takes_each_input_once: "a.toml" = concat!(
            step!("to = \"x\""),
            "[step.pair]\njoin = { left = \"x\", right = \"a/x\" }\n\n",
            "[step.either]\nalts = { z = \"events\", a = \"events\" }\n");
        an_input_that_is_taken_twice_may_be_secret: "a.toml" = "[step.pair]\njoin = { left = \"${SECRET_NAME}\", right = \"${SECRET_NAME}\" }\n";
        a_sink_is_no_input_of_a_join: "a.toml" = concat!(sink!("type = \"null\""), "[step.match]\njoin = { a = \"events\", b = \"report\" }\n");
        an_input_of_a_join_that_nothing_fills_gets_the_nearest_one: "a.toml" = concat!(
            step!("to = \"priced\""), "[step.match]\njoin = { order = \"prised\", event = \"events\" }\n");
        a_cycle_through_a_join_is_a_cycle: "a.toml" = concat!(
            step!("to = \"priced\""), "[step.match]\njoin = { order = \"priced\", last = \"matched\" }\nto = \"matched\"\n");
        a_joined_job_has_no_type_of_its_own: "a.toml" = concat!(
            step!("to = \"x\""), "[step.match]\njoin = { order = \"x\", y = \"events\" }\ntypes = [\"refund\"]\ntopics = [\"eu\"]\n",
            "[step.hyphen]\njoin = { an-order = \"x\", y = \"events\" }\ntypes = [\"refund\"]\n");
        a_step_begins_with_a_job_that_can_be: "a.toml" = step!("begin_at = 0"), "b.toml" = step!("begin_at = -3"), "c.toml" = step!("begin_at = \"newst\""), "d.toml" = step!("begin_at = 1.5"), "e.toml" = step!("begin_at = \"7\"");
        an_index_to_begin_with_is_of_one_input: "a.toml" = "[step.match]\njoin = { a = \"as\", b = \"bs\" }\nbegin_at = 7\n[step.first]\nalts = { a = \"as\", b = \"bs\" }\nbegin_at = 7\n[sink.out]\ntype = \"null\"\nfrom = [\"as\", \"bs\"]\nbegin_at = 7\n[sink.rest]\ntype = \"null\"\nbegin_at = \"newest\"\n";
        a_delivery_is_one_of_three: "a.toml" = concat!("[pipeline]\ndelivery = \"once\"\n\n", step!("delivery = \"at-most-onec\""));
        a_sink_without_from_delivers_as_the_step_does: "a.toml" = concat!(step!("to = \"out\""), "[sink.out]\ntype = \"null\"\ndelivery = \"at-most-once\"\n");
        a_plugin_is_named_by_words: "a.toml" = step!("run = [\"plugin:\", \"plugin:a/b/c\", \"plugin:a.so\"]");
        a_step_is_isolated_by_a_process: "a.toml" = step!("run = \"plugin:geo\"\nisolate = \"proces\"");
        a_pin_is_a_sha256: "tidegate.toml" = "[plugin.geo]\nsha256 = \"abc\"\n[plugin.x]\nsha = \"\"\n", "a.toml" = GOOD;
        a_crash_limit_is_one_or_more: "a.toml" = concat!(step!("crash_limit = 0"), "[step.b]\nfrom = \"events\"\ncrash_limit = 4294967296\n");
    }
}

/// A step that asks an HTTP service, with these options.
macro_rules! http {
    ($options:literal) => {
        step!(concat!("run = \"builtin:http\"\nhttp = { ", $options, " }"))
    };
}

/// A step that runs a command, with these options.
macro_rules! exec {
    ($options:literal) => {
        step!(concat!("run = \"builtin:exec\"\nexec = { ", $options, " }"))
    };
}

/// Requests and commands.
mod outward {
    use super::*;

    mistakes! {
        a_builtin_has_options: "a.toml" = concat!(step!("run = [\"builtin:http\"]"), "[step.b]\nfrom = \"events\"\nrun = \"builtin:exec\"\n");
        options_have_their_builtin: "a.toml" = concat!(step!("http = { url = \"https://h\" }"), "[step.b]\nfrom = \"events\"\nrun = [\"builtin:http\", \"builtin:http\"]\nhttp = { url = \"https://h/\" }\n");
        an_unknown_builtin_gets_the_nearest_one: "a.toml" = concat!(step!("run = \"builtin:htpt\""), "[step.b]\nfrom = \"events\"\nrun = \"builtin:smtp\"\n");
        a_request_has_known_keys: "a.toml" = http!("urll = \"https://h\", retries = 3");
        a_brace_is_closed: "a.toml" = http!("url = \"https://h/{id/{ctx.hsah}/{}\"");
        a_url_has_a_scheme: "a.toml" = http!("url = \"h/{id}\"");
        no_job_chooses_who_is_asked: "a.toml" = http!("url = \"https://{host}/x\"");
        no_job_finishes_a_host: "a.toml" = http!("url = \"https://h{id}\"");
        a_url_has_no_user: "a.toml" = http!("url = \"https://me:secret@h/\"");
        a_url_has_a_host_and_a_port: "a.toml" = concat!(http!("url = \"http://:80/\""), "[step.b]\nfrom = \"events\"\nrun = \"builtin:http\"\nhttp = { url = \"http://h:x/\" }\n");
        a_url_is_written_as_one: "a.toml" = concat!(http!("url = \"http://h/a b\""), "[step.b]\nfrom = \"events\"\nrun = \"builtin:http\"\nhttp = { url = \"http://h/#{id}\" }\n[step.c]\nfrom = \"events\"\nrun = \"builtin:http\"\nhttp = { url = \"http://h/../{id}\" }\n");
        a_secret_in_a_url_is_not_shown: "a.toml" = http!("url = \"${SECRET}/{a..b}/{id}\", headers = { authorization = \"${SECRET}{\" }");
        a_method_is_a_known_word: "a.toml" = http!("url = \"https://h\", method = \"post\"");
        a_header_has_a_name: "a.toml" = http!("url = \"https://h\", headers = { \"x y\" = \"1\", Host = \"other\", X-A = \"1\", x-a = \"2\", b = 1 }");
        a_get_has_no_body: "a.toml" = http!("url = \"https://h\", body = { id = \"{id}\" }");
        a_body_says_something: "a.toml" = http!("url = \"https://h\", method = \"POST\", body = \"jobs\"");
        a_body_holds_what_json_can_say: "a.toml" = http!("url = \"https://h\", method = \"POST\", body = { a = [inf, \"{\"] }");
        a_status_has_three_digits: "a.toml" = http!("url = \"https://h\", accept = [\"2xx\", \"4x4\", \"99\", \"1xx\"]");
        a_request_is_not_longer_than_its_attempt: "a.toml" = http!("url = \"https://h\", timeout = \"30s\", max_response = \"0B\"");
        a_request_in_time_is_not_longer_than_its_attempt: "a.toml" = http!("url = \"https://h\", timeout = \"30s\"");
        a_response_is_a_known_word: "a.toml" = http!("url = \"https://h\", response = \"all\"");
        a_command_is_a_list: "a.toml" = exec!("command = \"./charge.sh {id}\"");
        a_command_is_there: "a.toml" = exec!("command = [\"./charge.sh\", \"{id\"], cwd = \"gone\"");
        a_command_can_be_executed: "a.toml" = exec!("command = [\"./charge.sh\"]"), "charge.sh" = "#!/bin/sh\n";
        a_command_is_no_folder: "a.toml" = exec!("command = [\"./bin\"]"), "bin/x" = "";
        a_command_that_is_not_in_the_path_is_a_doubt: "a.toml" = concat!(exec!("command = [\"charge.sh\", \"{id}\"]"), "[step.b]\nfrom = \"events\"\nrun = \"builtin:exec\"\nexec = { command = [\"no-such-command\"] }\n[step.c]\nfrom = \"events\"\nrun = \"builtin:exec\"\nexec = { command = [\"sh\"] }\n"), "charge.sh" = "#!/bin/sh\n";
        no_job_chooses_what_is_run: "a.toml" = exec!("command = [\"{id}\"]");
        a_command_has_words: "a.toml" = concat!(exec!("command = []"), "[step.b]\nfrom = \"events\"\nrun = \"builtin:exec\"\nexec = { command = [\"\"] }\n");
        a_variable_has_a_name_of_its_own: "a.toml" = exec!("command = [\"true\"], env = { TIDEGATE_HASH = \"1\", \"a=b\" = \"2\", C = 3 }");
        a_service_that_is_a_sink_has_a_url: "a.toml" = sink!("type = \"http\"\npath = \"x\"");
        a_sink_without_jobs_of_its_own_has_no_errors: "a.toml" = concat!(step!("to = \"hook\""), "[sink.hook]\ntype = \"http\"\nurl = \"https://h\"\nerrors = \"failed\"\n");
        a_sink_without_jobs_of_its_own_picks_none: "a.toml" = concat!(step!("to = \"hook\""), "[sink.hook]\ntype = \"http\"\nurl = \"https://h\"\nretry = { max_attempts = 2 }\nqueuer = { strategy = \"serial\" }\ngate = \"g\"\n");
        what_a_sink_goes_by_is_there_and_said_once: "a.toml" = concat!(step!("to = \"x\""), "[sink.hook]\nfrom = [\"x\", \"events\"]\ntype = \"http\"\nurl = \"https://h\"\nretry = \"pateint\"\nqueuer = { strategy = \"fifo\", rat = \"1/s\" }\n[retry.patient]\n");
        a_file_is_not_tried_again: "a.toml" = sink!("type = \"file\"\npath = \"x\"\nretry = { max_attempts = 2 }");
    }
}

/// What a later version brings.
mod later {
    use super::*;

    mistakes! {
        keys_of_a_later_version_are_not_supported_yet: "a.toml" = step!("was = \"old\"");
        shared_tables_of_a_later_version_are_not_supported_yet: "tidegate.toml" = "[reload]\ntests = true\n", "a.toml" = GOOD;
        sources_of_a_later_version_are_not_supported_yet: "a.toml" = source!("type = \"exec\"\ncommand = [\"ls\"]");
        tests_are_not_supported_yet: "a.toml" = concat!(step!(""), "[[test]]\nname = \"a\"\n");
    }
}

/// Names and the graph.
mod names {
    use super::*;

    mistakes! {
        a_name_that_nothing_fills_gets_the_nearest_one: "a.toml" = concat!(step!("to = \"priced\""), "[step.alert]\nfrom = \"prised\"\n");
        a_source_that_is_mistyped_is_suggested: "a.toml" = concat!(step!(""), "[step.alert]\nfrom = \"evnts\"\n");
        a_queue_that_nothing_touches_is_a_doubt: "a.toml" = concat!(step!(""), "[queue.stale]\nretain = \"7d\"\n");
        a_source_that_nobody_reads_and_a_sink_that_nothing_feeds_are_doubts: "a.toml" = concat!(
            step!(""), "[source.more]\ntype = \"file\"\npath = \"b\"\nformat = \"lines\"\n[sink.out]\ntype = \"null\"\n");
        a_name_stands_for_one_thing: "a.toml" = concat!(step!("to = \"events\""), "[sink.events]\ntype = \"null\"\n");
        a_name_is_given_once: "a.toml" = concat!(step!("to = \"x\""), "[step.price]\nfrom = \"x\"\n");
        a_key_is_given_once: "a.toml" = step!("to = \"x\"\nto = \"y\"");
        two_pipelines_have_two_names: "a.toml" = concat!("[pipeline]\nname = \"b\"\n", step!("")), "b.toml" = GOOD;
        a_file_name_may_be_no_name: "my pipe.toml" = GOOD;
        a_sink_is_no_input: "a.toml" = concat!(sink!("type = \"null\""), "[step.again]\nfrom = \"report\"\n");
        a_source_is_no_output: "a.toml" = step!("to = \"events\"");
        errors_go_to_a_queue: "a.toml" = concat!("[pipeline]\nerrors = \"events\"\n", step!("errors = \"bad\""), "[sink.bad]\ntype = \"null\"\n");
        another_pipeline_has_to_be_there: "withdrawals.toml" = GOOD, "a.toml" = step!("to = \"withdrawal/priced\"");
        a_reference_is_a_name: "a.toml" = step!("to = \"my queue\"\nerrors = \"a/b/c\"");
        a_step_and_a_sink_that_is_a_step_have_two_names: "a.toml" = concat!(sink!("type = \"null\""), "[step.report]\nfrom = \"events\"\n");
        a_sink_names_each_input_once: "a.toml" = "[step.a]\nfrom = \"x\"\nto = \"x\"\n[queue.x]\nallow_cycle = true\n[sink.out]\ntype = \"null\"\nfrom = [\"x\", \"x\"]\n";
        a_cycle_is_told_step_by_step: "a.toml" = "[step.x]\nfrom = \"a\"\nto = \"b\"\n\n[step.y]\nfrom = \"b\"\nto = { again = \"a\", done = \"c\" }\n[sink.c]\ntype = \"null\"\n";
        a_join_that_waits_for_itself_is_a_doubt: "a.toml" = concat!(
            "[source.events]\ntype = \"file\"\npath = \"e\"\nformat = \"lines\"\n[queue.again]\nallow_cycle = true\n",
            "[step.count]\njoin = { event = \"events\", before = \"again\" }\nto = { again = \"again\", out = \"out\" }\n[sink.out]\ntype = \"null\"\n");
        a_join_of_what_comes_from_outside_begins: "tidegate.toml" = "[runner]\nlisten = \"127.0.0.1:8484\"\n", "a.toml" = concat!(
            "[source.left]\ntype = \"http\"\n[source.right]\ntype = \"http\"\n[source.orders]\ntype = \"http\"\n",
            "[step.price]\nfrom = \"orders\"\nto = \"priced\"\n[sink.out]\ntype = \"null\"\nfrom = \"both\"\n",
            "[step.both]\njoin = { left = \"left\", right = \"right\", priced = \"priced\" }\nto = \"both\"\n");
        a_cycle_through_errors_is_a_cycle: "a.toml" = concat!(step!("to = \"x\""), "[step.fix]\nfrom = \"x\"\nerrors = \"x\"\n");
        a_cycle_through_two_pipelines_is_told_with_both_names: "a.toml" = "[step.x]\nfrom = \"a\"\nto = \"b/b\"\n", "b.toml" = "[step.y]\nfrom = \"b\"\nto = \"a/a\"\n";
        a_queue_that_nothing_uses_gets_the_nearest_one: "a.toml" = concat!(step!("to = \"done\""), "[queue.dnoe]\nretain = \"7d\"\n[sink.out]\ntype = \"null\"\nfrom = \"done\"\n");
        results_and_errors_stand_on_two_queues: "a.toml" = concat!(step!("to = \"done\"\nerrors = \"done\""), "[sink.out]\ntype = \"null\"\nfrom = \"done\"\n");
        a_path_of_a_sink_is_no_template: "a.toml" = sink!("type = \"file\"\npath = \"out/{day}.ndjson\"");
        a_sink_does_not_compress: "a.toml" = sink!("type = \"file\"\npath = \"out.ndjson.gz\"");
        a_variable_in_a_path_has_braces: "a.toml" = sink!("type = \"file\"\npath = \"$DATA_DIR/out.ndjson\"");
        two_sinks_have_two_paths: "a.toml" = concat!(sink!("type = \"file\"\npath = \"out.ndjson\""), "[sink.other]\nfrom = \"events\"\ntype = \"file\"\npath = \"./x/../out.ndjson\"\n");
        a_sink_does_not_write_what_a_source_reads: "a.toml" = sink!("type = \"file\"\npath = \"in.ndjson\"");
        a_pipeline_has_something_to_do: "a.toml" = "[pipeline]\nname = \"idle\"\n";
    }
}

/// Variables and scripts.
mod outside {
    use super::*;

    mistakes! {
        a_variable_has_to_be_set: "a.toml" = step!("to = \"x-${NONE}\"");
        a_variable_has_a_name: "a.toml" = step!("when = \"${1x}\"");
        a_variable_is_closed: "a.toml" = step!("when = \"job.a == ${QUEUE\"");
        a_file_that_is_put_in_has_to_be_there: "a.toml" = step!("config = { key = \"${file:secrets/key}\" }");
        a_mistake_beside_escapes_is_shown_with_its_text: "a.toml" = step!("when = \"\\\"${NONE}\\\"\"");
        a_secret_is_not_shown_in_a_name: "a.toml" = step!("to = \"${SECRET}\"\nerrors = \"${SECRET_NAME}/x\"");
        a_secret_is_not_shown_in_a_value: "a.toml" = step!("timeout = \"${SECRET}\"\nrun = [\"${SECRET}\", \"${SECRET}.rhai\"]\ndelivery = \"${SECRET}\"");
        a_secret_is_not_shown_in_a_doubt: "a.toml" = step!("to = \"${SECRET_NAME}\"");
        a_secret_is_not_shown_in_a_cycle: "a.toml" = "[step.a]\nfrom = \"${SECRET_NAME}\"\nto = \"${SECRET_NAME}\"\n";
        a_script_has_to_be_there: "price.rhai" = "", "a.toml" = step!("run = \"prcie.rhai\"");
        a_script_in_a_folder_has_to_be_there: "lib/price.rhai" = "", "a.toml" = step!("run = \"lib/prize.rhai\"");
        a_processor_is_a_script: "a.toml" = step!("run = \"price.lua\"");
    }

    #[test]
    fn a_script_is_a_text() {
        let folder = Folder::of(&[("a.toml", step!("run = [\"price.rhai\", \"folder.rhai\"]"))]);
        folder.write("price.rhai", b"fn process(job) {\n  \"\xff\"\n}\n");
        folder.write("folder.rhai/x", b"");
        insta::assert_snapshot!(folder.shown());
    }
}

/// Sources that are pushed.
mod pushed {
    use super::*;

    const LISTEN: &str = "[runner]\nlisten = \"127.0.0.1:8484\"\n";

    mistakes! {
        a_port_is_open_for_a_source: "a.toml" = source!("type = \"http\"");
        an_address_has_a_port: "a.toml" = source!("type = \"http\""), "tidegate.toml" = "[runner]\nlisten = \"localhost:8484\"\n";
        a_source_knows_the_keys_of_its_type: "a.toml" = source!("type = \"http\"\npath = \"in.ndjson\"\ntokne = \"x\""), "tidegate.toml" = LISTEN;
        a_key_is_a_path: "a.toml" = source!("type = \"http\"\nkey = \"order..id\""), "tidegate.toml" = LISTEN;
        a_token_can_be_shown_in_a_header: "a.toml" = source!("type = \"http\"\ntoken = \"${SECRET} or so\""), "tidegate.toml" = LISTEN;
        bounds_are_quantities: "a.toml" = source!("type = \"http\"\nmax_body = \"0B\"\nmax_waiting = -1\ndedupe = \"0s\""), "tidegate.toml" = LISTEN;
        no_step_fills_a_source: "a.toml" = concat!(source!("type = \"http\""), "[step.x]\nfrom = \"events\"\nto = \"events\"\nerrors = \"events\"\n"), "tidegate.toml" = LISTEN;
        a_source_that_nothing_reads_is_told_as_that: "a.toml" = concat!(step!(""), "[source.orders]\ntype = \"http\"\n"), "tidegate.toml" = LISTEN;
        a_queue_of_a_source_has_settings_that_mean_something: "a.toml" = concat!(source!("type = \"http\""), "[queue.events]\nretain = \"7d\"\ndedupe = \"7d\"\nallow_cycle = true\n"), "tidegate.toml" = LISTEN;
        who_listens_to_everybody_asks_for_a_token: "a.toml" = concat!(source!("type = \"http\""), "[source.orders]\ntype = \"http\"\ntoken = \"${SECRET}\"\n[sink.out]\nfrom = \"orders\"\ntype = \"null\"\n"), "tidegate.toml" = "[runner]\nlisten = \"0.0.0.0:8484\"\n";
        the_nearest_name_of_a_source_is_found: "a.toml" = concat!(source!("type = \"http\""), "[step.x]\nfrom = \"evnets\"\n"), "tidegate.toml" = LISTEN;
    }
}

/// Files and syntax.
mod files {
    use super::*;

    mistakes! {
        a_text_stands_in_quotes: "a.toml" = step!("to = priced");
        a_quote_is_closed: "a.toml" = step!("to = \"priced");
        a_key_is_followed_by_an_equals_sign: "a.toml" = step!("to: \"done\"");
        a_header_has_ascii_letters: "a.toml" = "[step.wörk]\nfrom = \"events\"\n";
        a_header_is_closed: "a.toml" = "[step.price\nfrom = \"events\"\n";
        a_key_has_a_value: "a.toml" = step!("to\nrun =");
        several_mistakes_of_syntax_come_at_once: "a.toml" = step!("to = priced\ntimeout = 5s\nrun = [\"a.rhai\" \"b.rhai\"]");
        a_list_is_closed: "a.toml" = step!("run = [\"a.rhai\",");
        columns_count_characters: "a.toml" = step!("config = { straße = \"größe\", weite = nan }");
        a_folder_has_a_pipeline: "tidegate.toml" = "", "notes.txt" = "";
        all_mistakes_of_all_files_come_at_once:
            "a.toml" = step!("timeout = \"5\"\nto = 3"),
            "b.toml" = "[step.x]\nfrom = \"a/events\"\nrun = \"gone.rhai\"\nto = \"nowhere\"\n",
            "c.toml" = "[step.x\n",
            "tidegate.toml" = "[runner]\nworker = 3\n";
    }

    #[test]
    fn a_file_is_utf_8() {
        let folder = Folder::of(&[]);
        folder.write("a.toml", b"[step.a]\nfrom = \"caf\xe9\"\n");
        insta::assert_snapshot!(folder.shown());
    }

    #[test]
    fn a_path_leads_to_a_configuration() {
        let folder = Folder::of(&[("a.toml", GOOD), ("tidegate.toml", ""), ("notes.txt", "")]);
        let paths = ["config", "configs/b.toml", "configs/notes.txt", "configs/tidegate.toml"];
        let shown: Vec<_> = paths.iter().map(|path| folder.shown_at(path)).collect();
        insta::assert_snapshot!(shown.join("\n"));
    }
}
