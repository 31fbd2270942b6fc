//! Tests of libraries: valid, damaged, changed, loaded and closed ones.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_components::plugin::{Image, Loaded, PluginRunner, PluginSpec, open};
use tidegate_model::TokenKey;
use tidegate_plugin::host::Offer;
use tidegate_plugin::{Job, Outputs, Step as _};

use super::{c_count, compile, folder, project};
use crate::project::{Project, jobs};
use crate::running::in_a_process;

fn spec(config: &serde_json::Value) -> PluginSpec<'_> {
    PluginSpec {
        named: "it",
        pipeline: "p",
        step: "s",
        config,
        secrets: &[],
        bindings: &[""],
        timeout: Some(Duration::from_secs(10)),
        memory: 1 << 20,
        token_key: &TokenKey::NONE,
        earlier: 0,
    }
}

fn load(path: &Path) -> Loaded {
    Image::read(path).map_err(Into::into).and_then(Loaded::open).expect("the library can be loaded")
}

fn run(loaded: &Loaded, config: &serde_json::Value, payload: &str) -> String {
    run_step(&loaded.plugin().expect("it is open").offers()[0], config, payload)
}

fn run_step(offer: &Offer, config: &serde_json::Value, payload: &str) -> String {
    let mut runner = PluginRunner::new(offer, &spec(config));
    let mut outputs = Outputs::new([""]);
    let job = Job::new(1, payload.as_bytes());
    runner.process(&job, &mut outputs).expect("the job is in order");
    let payloads = outputs.into_payloads().remove(0);
    String::from_utf8(payloads.get(0).expect("there is an output").to_vec()).expect("it is text")
}

#[test]
fn two_versions_of_one_file_are_loaded_at_once() {
    let temp = TempDir::new().expect("a temporary folder can be made");
    let path = temp.path().join("libc_count.so");
    let config = serde_json::json!({});
    compile(&c_count(), &path, &[]);
    let first = load(&path);
    compile(&c_count(), &path, &["-DVERSION=\"2.0.0\""]);
    let second = load(&path);
    assert!(run(&first, &config, "{\"a\":1}").contains("\"by\":\"1.0.0\""));
    assert!(run(&second, &config, "{\"a\":1}").contains("\"by\":\"2.0.0\""));
    assert_eq!((&*first.description().version, &*second.description().version), ("1.0.0", "2.0.0"));
    assert_ne!(first.image().sha256(), second.image().sha256());
}

/// Runs in a process of its own, where no other thread opens files: see the test below.
#[test]
#[ignore = "is run by another test"]
fn loading_and_unloading_a_hundred_times_leaves_no_file_no_mapping_and_no_memory_in_use() {
    let files = || fs::read_dir("/proc/self/fd").expect("there is /proc").count();
    let resident = || {
        let statm = fs::read_to_string("/proc/self/statm").expect("there is /proc");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("it is a number") * 4096
    };
    let mapped =
        || fs::read_to_string("/proc/self/maps").expect("there is /proc").matches("memfd:lib").count();
    let cycle = || {
        let loaded = load(&folder().join("libuppercase.so"));
        in_a_thread(|| {
            assert_eq!(run(&loaded, &serde_json::json!({}), "{\"text\":\"a\"}"), "{\"text\":\"A\"}");
        });
    };
    (0..5).for_each(|_| cycle());
    let before = (files(), resident(), mapped());
    (0..100).for_each(|_| cycle());
    let after = (files(), resident(), mapped());
    assert_eq!((after.0, after.2), (before.0, before.2), "files or libraries stay open");
    assert_eq!(after.2, 0, "libraries stay mapped");
    assert!(after.1 < before.1 + (2 << 20), "memory grows: {before:?} {after:?}");
}

#[test]
fn a_hundred_times_loading_and_unloading_leaves_nothing_behind() {
    folder();
    in_a_process(
        "plugins::libraries::loading_and_unloading_a_hundred_times_leaves_no_file_no_mapping_and_no_memory_in_use",
    );
}

/// A plugin in C with a thread-local value, whose destructor is in the library.
fn keyed() -> String {
    c_count()
        .replace(
            "static const TidegateStep steps[]",
            "#include <pthread.h>\nstatic pthread_key_t key;\n\
             static void forget(void *value) { *(volatile char *)value = 1; free(value); }\n\
             __attribute__((constructor)) static void prepare(void) { pthread_key_create(&key, forget); }\n\
             static const TidegateStep steps[]",
        )
        .replace("static int32_t process(", "static void keep(void);\nstatic int32_t process(")
        .replace("counter->seen++;", "counter->seen++; keep();")
        + "static void keep(void) { pthread_setspecific(key, malloc(1)); }\n"
}

/// Runs in a process of its own, which a destructor in a closed library would end.
#[test]
#[ignore = "is run by another test"]
fn libraries_are_closed_after_the_last_thread_that_ran_their_code() {
    let temp = TempDir::new().expect("a temporary folder can be made");
    let path = temp.path().join("libkeyed.so");
    compile(&keyed(), &path, &["-pthread"]);
    let slow = serde_json::json!({ "slow_drop_ms": 1 });
    for (path, config, job) in [
        (path, serde_json::json!({}), "{\"id\":1}"),
        (folder().join("libflaky.so"), slow, "{\"do\":\"thread_local\"}"),
    ] {
        let image = Image::read(&path).expect("it was built");
        for _ in 0..200 {
            let plugin = open(&image).expect("the library can be loaded");
            // The thread is the last holder, and ends after that.
            let config = &config;
            in_a_thread(move || assert!(!run_step(&plugin.offers()[0], config, job).is_empty()));
        }
    }
}

#[test]
fn a_library_is_closed_only_when_every_thread_that_ran_its_code_has_ended() {
    folder();
    in_a_process("plugins::libraries::libraries_are_closed_after_the_last_thread_that_ran_their_code");
}

#[test]
fn a_run_ends_well_whatever_its_threads_keep_of_a_library() {
    let project = project("run = \"plugin:flaky\"\nconfig = { slow_drop_ms = 5 }");
    for number in 1..=10 {
        project.append("in.ndjson", "{\"do\":\"thread_local\"}\n");
        project.run().done();
        assert_eq!(project.read("out.ndjson").lines().count(), number);
    }
}

/// Runs `run` on a thread that has ended when this returns.
fn in_a_thread(run: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"));
}

#[test]
fn a_library_that_is_cut_short_anywhere_is_never_loaded() {
    let temp = TempDir::new().expect("a temporary folder can be made");
    let path = temp.path().join("libc_count.so");
    compile(&c_count(), &path, &[]);
    let whole = fs::read(&path).expect("it was compiled");
    for length in (0..whole.len()).filter(|length| *length < 200 || length % 7 == 0) {
        assert!(Image::of(&path, whole[..length].to_vec()).is_err(), "of {length} bytes");
    }
    assert!(Image::of(&path, whole).is_ok());
}

#[test]
fn headers_that_lie_end_no_process() {
    let temp = TempDir::new().expect("a temporary folder can be made");
    let path = temp.path().join("libc_count.so");
    compile(&c_count(), &path, &[]);
    let whole = fs::read(&path).expect("it was compiled");
    // Inverts each byte of the headers: the file is refused, or the checks still hold.
    for at in 0..64 + 56 * 4 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let _ = Image::of(&path, bytes); // must not panic, with any result
    }
}

/// The output of `check` for a plugin built from this C code.
fn checked(name: &str, source: &str) -> String {
    let project =
        Project::pipeline(&format!("[step.work]\nfrom = \"in\"\nrun = \"plugin:{name}\"\nto = \"out\"\n"))
            .file("tidegate.toml", "[runner]\nplugins = \"plugins\"\n");
    project.write("plugins/readme", "");
    compile(source, &project.path().join(format!("plugins/lib{name}.so")), &[]);
    project.stable(&project.tidegate(&["check", "."]).failed(78).stderr)
}

#[test]
fn a_library_that_is_no_plugin_of_this_version_is_told_at_the_line_that_names_it() {
    let told = [
        checked("nothing", "int other(void) { return 1; }\n"),
        checked("newer", &c_count().replace(".abi_version = TIDEGATE_ABI_VERSION", ".abi_version = 9")),
        checked("small", &c_count().replace(".size = sizeof(TidegatePlugin)", ".size = 16")),
        checked("null", "const void *tidegate_plugin(void) { return 0; }\n"),
        checked("sulky", &c_count().replace(".steps = steps,", ".init = sulk, .steps = steps,").replace(
            "static const TidegatePlugin plugin",
            "static int32_t sulk(const TidegateAnswer *answer) { answer->say(answer->target, text(\"no licence\")); return TIDEGATE_FAILED; }\nstatic const TidegatePlugin plugin",
        )),
        checked("needy", "int nowhere_to_be_found(void);\nconst void *tidegate_plugin(void) { nowhere_to_be_found(); return 0; }\n"),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_is_no_library_is_told_at_the_line_that_names_it() {
    let project = Project::pipeline(
        "[step.a]\nfrom = \"in\"\nrun = \"plugin:text\"\n[step.b]\nfrom = \"in\"\nrun = \"plugin:short\"\n\
         [step.c]\nfrom = \"in\"\nrun = \"plugin:machine\"\n[step.d]\nfrom = \"in\"\nrun = \"plugin:program\"\n\
         [step.e]\nfrom = \"in\"\nrun = \"plugin:shrot\"\n[step.f]\nfrom = \"in\"\nrun = \"plugin:../up\"\nto = \"out\"\n\
         [step.g]\nfrom = \"in\"\nrun = \"plugin:count/cuont\"\n[step.h]\nfrom = \"in\"\nrun = \"x.rhai\"\nisolate = \"process\"\n",
    )
    .file("x.rhai", "fn process(job) { job }")
    .file("tidegate.toml", "[runner]\nplugins = \"plugins\"\n")
    .file("plugins/text.so", "not a library");
    let library = project.path().join("plugins/libcount.so");
    compile(&c_count(), &library, &[]);
    let whole = fs::read(&library).expect("it was compiled");
    project.write("plugins/short.so", &whole[..30]);
    let mut other = whole.clone();
    other[18..20].copy_from_slice(&8_u16.to_le_bytes());
    project.write("plugins/machine.so", &other);
    let mut program = whole;
    program[16..18].copy_from_slice(&2_u16.to_le_bytes());
    project.write("plugins/program.so", &program);
    let told = project.stable(&project.tidegate(&["check", "."]).failed(78).stderr);
    let here = format!("this one needs {}", if cfg!(target_arch = "x86_64") { "x86-64" } else { "AArch64" });
    insta::assert_snapshot!(told.replace(&here, "this one needs ANOTHER"));
}

#[test]
fn without_a_folder_the_way_to_name_one_is_told() {
    let project = Project::pipeline("[step.a]\nfrom = \"in\"\nrun = \"plugin:geo\"\nto = \"out\"\n");
    project.tidegate(&["check", "."]).failed(78).says("`[runner] plugins = \"folder\"` in tidegate.toml");
}

#[test]
fn a_config_that_does_not_fit_is_told_with_each_place() {
    let project = project("run = \"plugin:geo\"\nconfig = { latt = \"y\", lon = 7, within_km = 0.5 }");
    insta::assert_snapshot!(project.stable(&project.tidegate(&["check", "."]).failed(78).stderr));
}

#[test]
fn a_pinned_library_must_be_that_very_file() {
    let project = project("run = \"plugin:uppercase\"").file("in.ndjson", "{\"text\":\"a\"}\n");
    let right = Image::read(&folder().join("libuppercase.so")).expect("it was built").sha256().to_owned();
    let settings = project.read("tidegate.toml");
    let pinned = |hash: &str| {
        project.write("tidegate.toml", format!("{settings}[plugin.uppercase]\nsha256 = \"{hash}\"\n"));
    };
    pinned(&right.to_uppercase());
    project.run().done();
    pinned(&right.replace(char::is_alphabetic, "0"));
    let refused = project.run().failed(78);
    for part in ["does not match the one pinned in `[plugin.uppercase]`", &right, "p.toml", "pinned here"] {
        assert!(refused.stderr.contains(part), "`{part}` is missing in\n{}", refused.stderr);
    }
    pinned("abc");
    project.run().failed(78).says("`sha256` must be 64 hexadecimal digits");
}

#[test]
fn checking_leaves_no_private_copies() {
    let project = project("run = \"plugin:uppercase\"").file("in.ndjson", jobs(1..=1));
    project.write("tmp/readme", "");
    let mut command = project.command(&["check", "."]);
    let status = command.env("TMPDIR", project.path().join("tmp")).output().expect("it can be started");
    assert!(status.status.success());
    assert_eq!(fs::read_dir(project.path().join("tmp")).expect("it is there").count(), 1);
    let library = open(&Image::read(&folder().join("libgeo.so")).expect("it was built"));
    assert_eq!(library.expect("it can be opened").offers()[0].name(), "nearest");
}
