//! Tests of documents: every block of the README and of docs/ is run or checked, every link has a target, and
//! every sentence follows the rules.
//!
//! The configuration and script blocks below one heading are the files of one folder, which `tidegate check`
//! must accept. The first line of a block names its file; a block without a name gets one. The kinds of
//! blocks are those of `check`, and a block of another kind is a failure.
//!
//! | block | check |
//! | --- | --- |
//! | `toml` | `tidegate check` accepts it. Missing scripts are added, except on the README and the recipes, which are complete |
//! | `toml mistaken` | the output of `tidegate check` contains the next block, `text check` |
//! | `rhai` | a step, gate, monitor or import of the section's folder |
//! | `sh` | the shell reads it; its commands, options and addresses exist; the commands of the README are run |
//! | `json` | it is JSON |
//! | `text graph=FOLDER` | it is the output of `tidegate graph FOLDER` |
//! | `text quickstart` | it is the end of the quick start, except for its speed |
//! | `text example` | a drawing, or an output that depends on time |

mod page;
mod prose;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use page::{Block, Page, Section, all, repository};
use tidegate_model::log_target;

use crate::plugins;
use crate::project::{Outcome, Project};

/// A script for a page that shows only the configuration around it.
const FILLED_IN: &str = "fn process(job) { job }\nfn open(answer) { true }\nfn status(jobs) { () }\n\
                         fn accept(job) { true }\n";

/// Pages without gaps: a reader copies from them.
const COMPLETE: [&str; 2] = ["README.md", "docs/recipes.md"];

#[test]
fn every_block_has_a_kind_that_is_checked() {
    for page in all() {
        for section in &page.sections {
            for block in &section.blocks {
                let known = match (block.language(), block.check()) {
                    ("toml" | "rhai" | "sh" | "json", "")
                    | ("toml", "mistaken")
                    | ("text", "check" | "quickstart" | "example") => true,
                    ("text", graph) => graph.starts_with("graph="),
                    _ => false,
                };
                assert!(known, "{}:{}: no test knows a block `{}`", page.name, block.line, block.info);
            }
        }
    }
}

#[test]
fn every_configuration_and_script_of_the_documents_is_accepted() {
    let mut checked = 0;
    for page in all() {
        for section in page.sections.iter().filter(|section| section.is_a_configuration()) {
            let folder = folder(&page, section);
            let outcome = folder.tidegate(&["check", "."]);
            assert_eq!(outcome.code, Some(0), "{}: {}\n{}", page.name, section.heading, outcome.stderr);
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} sections were found");
}

#[test]
fn every_test_of_the_documents_passes() {
    let mut ran = 0;
    for page in all() {
        let has_tests =
            |section: &&Section| section.blocks.iter().any(|block| block.text.contains("[[test]]"));
        for section in page.sections.iter().filter(has_tests) {
            let outcome = folder(&page, section).tidegate(&["test", "."]);
            assert_eq!(outcome.code, Some(0), "{}: {}\n{}", page.name, section.heading, outcome.stdout);
            ran += 1;
        }
    }
    assert!(ran > 1, "only {ran} sections have tests");
}

#[test]
fn every_mistaken_configuration_has_the_diagnostic_that_its_page_shows() {
    let mut checked = 0;
    for page in all() {
        for blocks in page.sections.iter().flat_map(|section| section.blocks.windows(2)) {
            let [block, shown] = blocks else { continue };
            if block.check() != "mistaken" {
                continue;
            }
            assert_eq!(shown.info, "text check", "{}:{}", page.name, shown.line);
            let folder = Project::new().file(block.file().expect("it names its file"), &block.text);
            let outcome = folder.tidegate(&["check", "."]).failed(78);
            let stderr = outcome.stderr;
            assert!(stderr.contains(shown.text.trim_end()), "{}:{}\n{stderr}", page.name, shown.line);
            checked += 1;
        }
    }
    assert!(checked > 0, "there is no mistaken configuration");
}

#[test]
fn the_commands_of_the_readme_do_what_it_shows() {
    let readme = readme();
    let project = demonstrations(&["quickstart"]);
    for block in readme.blocks(&["toml", "rhai"]) {
        project.write(block.file().expect("the files of the README have names"), &block.text);
    }
    let commands: String = readme.blocks(&["sh"]).map(|block| block.text.as_str()).collect();
    let outcome = shell(&project, &commands).done();
    for block in readme.blocks(&["text"]) {
        let shown = block.text.trim_end();
        if block.check() == "quickstart" {
            // The duration differs.
            let (first, rest) = shown.split_once('\n').expect("it has more than one line");
            let done = first.split(" in ").next().expect("it begins with the number of jobs");
            assert!(outcome.stderr.contains(done) && outcome.stderr.contains(rest), "{}", outcome.stderr);
        } else {
            assert!(outcome.stdout.contains(shown), "{}", outcome.stdout);
        }
    }
    assert_eq!(project.read("shop/out/ledger.ndjson").lines().count(), 2);
    assert_eq!(project.read("shop/out/alerts.ndjson").lines().count(), 1);
    assert!(outcome.stdout.contains("order 3 has no price"), "{}", outcome.stdout);
}

#[test]
fn the_test_command_of_the_readme_is_in_the_continuous_integration() {
    let ci = fs::read_to_string(repository().join(".ci/run")).expect("it can be read");
    let readme = readme();
    let tests: Vec<&str> = readme
        .blocks(&["sh"])
        .flat_map(|block| block.text.lines())
        .filter(|line| line.contains("cargo test"))
        .collect();
    assert!(!tests.is_empty(), "the README names no command for its tests");
    for command in tests {
        assert!(ci.lines().any(|line| line.starts_with(command)), "`{command}` is not in .ci/run");
    }
}

#[test]
fn every_graph_is_what_the_command_draws() {
    let mut drawn = 0;
    for page in all().iter().filter(|page| page.name != "README.md") {
        for block in page.blocks(&["text"]) {
            let Some(folder) = block.check().strip_prefix("graph=") else { continue };
            let name = folder.strip_prefix("configs/").expect("it is of a demonstration");
            let graph = demonstrations(&[name]).tidegate(&["graph", folder]).done().stdout;
            assert_eq!(graph.trim_end(), block.text.trim_end(), "{}:{}", page.name, block.line);
            drawn += 1;
        }
    }
    assert!(drawn > 0, "there is no graph");
}

#[test]
fn every_example_in_json_is_json() {
    for page in all() {
        for block in page.blocks(&["json"]) {
            let read: Result<serde_json::Value, _> = serde_json::from_str(&block.text);
            assert!(read.is_ok(), "{}:{}: {read:?}", page.name, block.line);
        }
    }
}

#[test]
fn every_command_of_the_documents_exists_with_its_options() {
    let project = Project::new();
    for page in all() {
        for section in &page.sections {
            for block in section.blocks.iter().filter(|block| block.language() == "sh") {
                let place = format!("{}:{}", page.name, block.line);
                let syntax = Command::new("sh").args(["-n", "-c", &block.text]).status();
                assert!(syntax.expect("there is a shell").success(), "{place}: no shell reads it");
                for command in commands(&block.text) {
                    command_exists(&project, section, &command, &place);
                }
            }
        }
    }
}

/// Compares the first column of the table of commands with the help.
#[test]
fn the_table_of_commands_names_every_command_and_only_those() {
    let pages = all();
    let page = pages.iter().find(|page| page.name == "docs/operating.md").expect("there is the page");
    let project = Project::new();
    let mut named = BTreeSet::new();
    for cell in &page.prose {
        let Some(command) = cell.text.strip_prefix("`tidegate ").and_then(|text| text.split('`').next())
        else {
            continue;
        };
        let words = command.split_whitespace();
        let words: Vec<&str> =
            words.take_while(|word| word.bytes().all(|b| b.is_ascii_lowercase())).collect();
        project.tidegate(&[words.as_slice(), &["--help"]].concat()).done();
        named.extend(words.first().map(|word| (*word).to_owned()));
    }
    let help = project.tidegate(&["--help"]).done().stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let listed: BTreeSet<String> = listed.filter(|word| *word != "help").map(str::to_owned).collect();
    assert_eq!(named, listed);
}

#[test]
fn every_link_leads_to_a_file_and_an_anchor() {
    let pages = all();
    for page in &pages {
        for (line, target) in page.links() {
            if target.starts_with("https://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let from = Path::new(&page.name);
            let path = match path {
                "" => from.to_owned(),
                path => from.parent().expect("a page has a folder").join(path),
            };
            let found = repository().join(&path).canonicalize();
            let found = found.unwrap_or_else(|error| panic!("{}:{line}: {target}: {error}", page.name));
            if anchor.is_empty() {
                continue;
            }
            let other = pages.iter().find(|other| {
                repository().join(&other.name).canonicalize().is_ok_and(|other| other == found)
            });
            let has = other.is_some_and(|other| other.anchors().iter().any(|it| it == anchor));
            assert!(has, "{}:{line}: there is no `{target}`", page.name);
        }
    }
}

#[test]
fn every_page_is_linked_from_the_readme() {
    let links: Vec<String> = readme().links().into_iter().map(|(_, target)| target).collect();
    for page in all().iter().skip(1) {
        assert!(links.contains(&page.name), "the README does not link {}", page.name);
    }
}

/// A reader who searches for a term of the field finds it on its page.
#[test]
fn the_words_of_the_field_are_found_on_their_pages() {
    for (word, page) in [
        ("dead letter queue", "docs/operating.md"),
        ("dead letter queue", "docs/recipes.md"),
        ("backpressure", "docs/http.md"),
        ("backpressure", "docs/recipes.md"),
        ("exactly-once", "docs/delivery.md"),
        ("at-least-once", "docs/delivery.md"),
        ("at-most-once", "docs/delivery.md"),
        ("group commit", "docs/delivery.md"),
        ("retention", "docs/delivery.md"),
        ("idempotency key", "docs/delivery.md"),
        ("idempotency key", "docs/http.md"),
        ("webhook", "docs/http.md"),
        ("cron", "docs/sources.md"),
        ("log rotation", "docs/sources.md"),
        ("rate limit", "docs/queuers.md"),
        ("delayed job", "docs/retries.md"),
        ("jitter", "docs/retries.md"),
        ("redelivery", "docs/concepts.md"),
        ("in flight", "docs/performance.md"),
        ("backlog", "docs/operating.md"),
        ("visibility timeout", "docs/limits.md"),
        ("consumer group", "docs/limits.md"),
        ("saga", "docs/recipes.md"),
        ("mock", "docs/testing.md"),
        ("virtual clock", "docs/testing.md"),
    ] {
        let text = fs::read_to_string(repository().join(page)).expect("it can be read");
        // A term may span two lines.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        assert!(text.contains(word), "{page}: a reader who searches for `{word}` does not find it");
    }
}

#[test]
fn the_readme_is_read_in_one_sitting() {
    let text = fs::read_to_string(repository().join("README.md")).expect("it can be read");
    assert!(text.lines().count() <= 250, "it has {} lines", text.lines().count());
}

#[test]
fn every_sentence_follows_the_rules() {
    let faults: Vec<String> = all().iter().flat_map(prose::faults).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_figures_of_the_readme_are_those_of_the_page_on_performance() {
    let read = |name: &str| fs::read_to_string(repository().join(name)).expect("it can be read");
    let (readme, performance) = (read("README.md"), read("docs/performance.md"));
    let rows: Vec<&str> = readme.lines().filter(|line| line.ends_with("| met |")).collect();
    assert_eq!(rows.len(), 5);
    for row in rows {
        assert!(performance.lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn the_table_of_libraries_names_every_dependency() {
    let pages = all();
    let page = pages.iter().find(|page| page.name == "docs/architecture.md").expect("there is the page");
    let named: BTreeSet<&str> = page.prose.iter().flat_map(|prose| prose.text.split(", ")).collect();
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).expect("it can be read");
    let dependencies = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    for line in dependencies.take_while(|line| !line.starts_with('[')) {
        let Some((name, value)) = line.split_once(" = ") else { continue };
        if !value.contains("path = ") {
            assert!(named.contains(name), "docs/architecture.md lacks `{name}`");
        }
    }
}

#[test]
fn the_table_of_log_targets_names_each_of_them() {
    let pages = all();
    let page = pages.iter().find(|page| page.name == "docs/operating.md").expect("there is the page");
    let cells = page.prose.iter().map(|cell| cell.text.trim_matches('`'));
    let named: BTreeSet<&str> = cells
        .filter(|cell| *cell == "tidegate" || cell.starts_with("tidegate::") && !cell.contains(' '))
        .collect();
    let targets = [
        log_target::RUNNER,
        log_target::CONFIG,
        log_target::SUMMARY,
        log_target::PANIC,
        log_target::ENGINE,
        log_target::STORE,
        log_target::SOURCE,
        log_target::SINK,
        log_target::SCRIPT,
        log_target::PLUGIN,
        log_target::EXEC,
        log_target::HTTP,
    ];
    assert_eq!(named, BTreeSet::from(targets));
}

/// Recipes are run if they need neither a port nor a schedule.
#[test]
fn the_recipe_of_a_dead_letter_queue_sets_failures_aside_with_their_reasons() {
    let project = recipe("A dead letter queue");
    project.change("orders.toml", "\"1s\"", "\"1ms\"");
    // The run then waits for the last attempt and ends.
    project.change("orders.toml", "follow = true", "follow = false");
    project.write("orders.ndjson", "{\"id\":1,\"amount\":5}\n{\"id\":2}\n{\"id\":3,\"amount\":-2}\n");
    project.tidegate(&["run", "."]).done();
    assert_eq!(project.read("out/charged.ndjson"), "{\"id\":1,\"amount\":5}\n");
    assert_eq!(project.read("out/reports.ndjson").lines().count(), 2);
    let outcome = project.tidegate(&["errors", "show", "orders/dead/1"]).done();
    assert!(outcome.stdout.contains("order 2 has no amount"), "{}", outcome.stdout);
    project.tidegate(&["errors", "retry", "orders/dead", "--kind", "failed", "--yes"]).done();
    project.tidegate(&["errors", "drop", "orders/dead/1", "--yes"]).done();
}

#[test]
fn the_recipe_of_a_delayed_job_keeps_it_until_it_is_due() {
    let project = recipe("A delayed job");
    project.write("carts.ndjson", "{\"id\":1,\"mail\":\"ada@example.org\"}\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read_if_there("out/mails.ndjson"), "");
    project.tidegate(&["delayed", "now", "carts/plan", "--yes"]).done();
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert!(project.read("out/mails.ndjson").contains("Your cart 1 is waiting"));
}

#[test]
fn the_recipe_of_one_worker_a_customer_gives_each_job_its_lane() {
    let project = recipe("One worker a customer");
    project.write("orders.ndjson", "{\"id\":1,\"amount\":5,\"customer\":{\"id\":\"a\"}}\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read("out/invoices.ndjson"), "{\"amount\":5,\"customer\":\"a\",\"order\":1}\n");
}

#[test]
fn the_recipe_of_log_rotation_reads_only_what_is_new() {
    let project = recipe("Log rotation");
    project.write("logs/app.log", "1 ERROR old\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    project.append("logs/app.log", "2 ERROR new\n3 INFO new\n");
    fs::rename(project.path().join("logs/app.log"), project.path().join("logs/app.log.1"))
        .expect("it can be moved");
    project.write("logs/app.log", "4 ERROR rotated\n");
    project.tidegate(&["run", ".", "--until-idle"]).done();
    assert_eq!(project.read("out/errors.log"), "2 ERROR new\n4 ERROR rotated\n");
}

impl Page {
    fn blocks(&self, languages: &[&str]) -> impl Iterator<Item = &Block> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        blocks.filter(move |block| languages.contains(&block.language()))
    }
}

impl Section {
    fn is_a_configuration(&self) -> bool {
        self.blocks.iter().any(|block| ["toml", "rhai"].contains(&block.info.as_str()))
    }
}

fn readme() -> Page {
    all().into_iter().next().expect("the README is the first page")
}

fn recipe(heading: &str) -> Project {
    let pages = all();
    let page = pages.iter().find(|page| page.name == "docs/recipes.md").expect("there is the page");
    let section = page.sections.iter().find(|section| section.heading == heading);
    folder(page, section.unwrap_or_else(|| panic!("there is no recipe `{heading}`")))
}

/// Copies of demonstrations, in `configs` as in the repository.
fn demonstrations(names: &[&str]) -> Project {
    let project = Project::new();
    for name in names {
        fs::create_dir_all(project.path().join("configs")).expect("folders can be made");
        let copied = Command::new("cp")
            .args(["-r", &format!("{}/configs/{name}", repository().display())])
            .arg(project.path().join("configs"))
            .status();
        assert!(copied.expect("there is `cp`").success(), "configs/{name} cannot be copied");
        for left in ["out", ".tidegate"] {
            // A run in the repository may have left these folders.
            let _ = fs::remove_dir_all(project.path().join("configs").join(name).join(left));
        }
    }
    project
}

/// The folder with the blocks of the section as files.
fn folder(page: &Page, section: &Section) -> Project {
    let project = Project::new();
    let mut files = BTreeSet::new();
    let (mut everything, mut scripts) = (String::new(), Vec::new());
    for block in &section.blocks {
        let is_part = matches!((block.language(), block.check()), ("toml" | "rhai" | "sh", ""));
        if !is_part || (block.language() == "sh" && block.file().is_none()) {
            continue;
        }
        let unnamed = format!("block-{}.{}", block.line, block.language());
        let name = block.file().map_or(unnamed, |name| {
            Path::new(name).file_name().expect("it names a file").display().to_string()
        });
        let secrets = project.path().join("secrets").display().to_string();
        project.write(&name, block.text.replace("/run/secrets", &secrets));
        assert!(files.insert(name.clone()), "{}:{}: two blocks are `{name}`", page.name, block.line);
        everything.push_str(&block.text);
        if block.language() == "rhai" {
            scripts.push((name, &block.text));
        }
    }
    // A script that a configuration of the section names is compiled with its tables.
    for (name, text) in scripts.iter().filter(|(name, _)| !everything.contains(&format!("\"{name}\""))) {
        project.write(format!("{name}.toml"), runs(name, text));
    }
    fill_in(page, &project, &files, &everything);
    project
}

/// A pipeline that runs a script, so that it is compiled.
fn runs(name: &str, script: &str) -> String {
    let (pipeline, from) = ("[pipeline]\nname = \"", "from = \"jobs\"\n");
    let title = name.replace('.', "-");
    if script.contains("fn open(") {
        let gate = format!("[gate.g]\nrun = \"{name}\"\nevery = \"5s\"\n");
        return format!("{pipeline}{title}\"\n{gate}[step.it]\n{from}gate = \"g\"\nto = \"done\"\n");
    }
    if script.contains("fn accept(") {
        let source = format!("[source.posts]\ntype = \"http\"\naccept = \"{name}\"\n");
        return format!("{pipeline}{title}\"\n{source}[step.it]\nfrom = \"posts\"\nto = \"done\"\n");
    }
    let process = if script.contains("fn process(") { format!("run = \"{name}\"\n") } else { String::new() };
    format!("{pipeline}{title}\"\n[step.it]\n{from}{process}to = \"done\"\n")
}

/// Adds scripts, schemas, commands, secrets and plugins that a page names and does not show.
fn fill_in(page: &Page, project: &Project, files: &BTreeSet<String>, text: &str) {
    for quoted in text.split('"').filter(|quoted| is_script(quoted) && !files.contains(*quoted)) {
        assert!(!COMPLETE.contains(&page.name.as_str()), "{}: `{quoted}` is missing", page.name);
        project.write(quoted, FILLED_IN);
    }
    if text.contains("fn accept(") && !files.contains("tidegate.toml") {
        project.write("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n");
    }
    for schema in text.split('"').filter(|quoted| quoted.ends_with(".schema.json")) {
        project.write(schema, "{}");
    }
    for command in text.split('"').filter(|quoted| quoted.starts_with("./")) {
        project.write(command, "#!/bin/sh\n");
        let path = project.path().join(command);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    for table in text.split("[table.").skip(1) {
        let value = |key: &str| table.split(&format!("\n{key} = \"")).nth(1)?.split('"').next();
        if let (Some(path), Some(key)) = (value("path"), value("key")) {
            project.write(path, format!("{key}\n"));
        }
    }
    for secret in text.split("/run/secrets/").skip(1).filter_map(|rest| rest.split('}').next()) {
        project.write(Path::new("secrets").join(secret), "secret");
    }
    if text.contains("plugin:") {
        let library = "libgeo.so";
        let built = plugins::folder().join(library);
        project.write(Path::new("plugins").join(library), fs::read(built).expect("it was built"));
    }
}

fn is_script(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rhai")
}

/// Runs commands as in a clone of the repository: `cargo run` is the executable, and `cargo test` is skipped.
fn shell(project: &Project, commands: &str) -> Outcome {
    let cargo =
        "cargo() { case \"$1\" in run) shift 3; \"$TIDEGATE\" \"$@\";; test) ;; *) return 64;; esac; }";
    let output = Command::new("sh")
        .args(["-e", "-c", &format!("{cargo}\n{commands}")])
        .current_dir(project.path())
        .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate"))
        .output();
    output.expect("there is a shell").into()
}

/// The commands of a block: each a list of words, without comments.
fn commands(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    lines
        .map(|line| words(line.split(" # ").next().unwrap_or(line)))
        .filter(|words: &Vec<_>| !words.is_empty())
        .collect()
}

fn command_exists(project: &Project, section: &Section, command: &[String], place: &str) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    // Variables of the environment are first.
    let first = words.iter().position(|word| !word.contains('=')).unwrap_or(0);
    match &words[first..] {
        ["tidegate", arguments @ ..] | ["cargo", "run", "--release", "--", arguments @ ..] => {
            options_exist(project, arguments, place);
        }
        ["cargo", "install", "--locked", "--path", path, "--profile", profile] => {
            assert!(
                repository().join(path).join("Cargo.toml").exists(),
                "{place}: there is no package {path}"
            );
            let workspace = fs::read_to_string(repository().join("Cargo.toml")).expect("it can be read");
            assert!(workspace.contains(&format!("[profile.{profile}]\n")), "{place}: no profile {profile}");
        }
        ["cargo", "test" | "bench", ..]
        | ["printf" | "cat" | "tar" | "echo" | "if" | "fi" | "exec" | "set", ..] => {}
        ["curl", arguments @ ..] => address_exists(section, arguments, place),
        other => panic!("{place}: no test knows the command {other:?}"),
    }
}

fn options_exist(project: &Project, arguments: &[&str], place: &str) {
    let is_command = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    let mut named: Vec<&str> = arguments.iter().take_while(is_command).copied().collect();
    // A folder may resemble a command.
    if named.first().is_some_and(|word| ["run", "check", "graph", "status", "replay"].contains(word)) {
        named.truncate(1);
    }
    named.push("--help");
    let help = project.tidegate(&named);
    assert_eq!(help.code, Some(0), "{place}: there is no `tidegate {}`", arguments.join(" "));
    for option in arguments.iter().filter(|word| word.starts_with("--")) {
        assert!(help.stdout.contains(option), "{place}: `{option}` is no option of it");
    }
    for config in arguments.iter().filter(|word| word.starts_with("configs/")) {
        assert!(repository().join(config).exists(), "{place}: there is no {config}");
    }
}

/// Checks that the port knows this kind of address. Its source, queue or step must be in the section or in
/// the demonstration of this name, if one exists.
fn address_exists(section: &Section, arguments: &[&str], place: &str) {
    let address = arguments.iter().find_map(|word| word.trim_matches('"').strip_prefix("localhost:8484/"));
    let address = address.unwrap_or_else(|| panic!("{place}: no address of the port in {arguments:?}"));
    let path = address.split_once('?').map_or(address, |(path, _)| path);
    let parts: Vec<&str> = path.split('/').collect();
    let (table, pipeline, name) = match parts.as_slice() {
        ["sources" | "jobs", pipeline, source] => ("source", pipeline, source),
        ["monitor", pipeline, step] => ("step", pipeline, step),
        ["jobs", pipeline, queue, index] | ["jobs", pipeline, queue, index, "complete"] => {
            assert!(index.parse::<u64>().is_ok(), "{place}: `{index}` is no index");
            ("", pipeline, queue)
        }
        _ => panic!("{place}: the port knows no /{address}"),
    };
    let shown = section.blocks.iter().filter(|block| block.language() == "toml");
    let mut text: String = shown.map(|block| block.text.as_str()).collect();
    let demonstration = repository().join("configs").join(pipeline).join(format!("{pipeline}.toml"));
    text.push_str(&fs::read_to_string(demonstration).unwrap_or_default());
    if text.is_empty() {
        return;
    }
    let declared = match table {
        "" => text.contains(&format!(".{name}]")) || text.contains(&format!("\"{name}\"")),
        table => text.contains(&format!("[{table}.{name}]")),
    };
    assert!(declared, "{place}: {pipeline} has no `{name}`");
}
