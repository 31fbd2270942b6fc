//! `Readings`: keeps the declarations of the files of pipelines, so that a reload interprets only files that have
//! changed.
//!
//! The meaning of a file is a function of its text and of what it asks for: other files, and variables. If it gets the
//! same answers again, it means the same. A file that depends on the disk in another way is interpreted each time.
//! So is one with a mistake or a warning.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::parse::interpolate::Lookup;
use crate::parse::text_reader::{FileRead, TextReader};
use crate::sections::pipeline::PipelineDeclaration;
use tidegate_model::Secret;

/// The readings of the last load. Without any, all files are interpreted.
#[derive(Debug, Default)]
pub struct Readings {
    by_file: BTreeMap<PathBuf, Reading>,
}

/// The declarations of a file, and the answers that they depend on.
#[derive(Debug)]
pub(crate) struct Reading {
    answers: Answers,
    pub(crate) pipelines: Vec<Arc<PipelineDeclaration>>,
    /// The values of all `${…}`.
    pub(crate) inserted: Vec<Secret>,
}

/// Everything that a file asked for when it was interpreted.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The file itself, and the files that it reads, in order.
    files: Vec<FileRead>,
    /// The variables, with their values. `None`: it was not set.
    variables: BTreeMap<String, Option<String>>,
}

impl Answers {
    pub(crate) fn new(mut files: Vec<FileRead>, variables: BTreeMap<String, Option<String>>) -> Self {
        let mut seen = BTreeSet::new();
        // A missing file may have been written between two answers. Then they cannot be the same again.
        files.retain(|(path, text)| seen.insert((path.clone(), text.is_some())));
        Self { files, variables }
    }

    /// Asks again, in the same order and up to the first other answer. So it reads no file that a reading would not read.
    fn are_the_same(&self, files: &mut TextReader, env: &Lookup) -> bool {
        self.variables.iter().all(|(name, value)| env(name) == *value)
            && self.files.iter().all(|read| files.is_as_before(read))
    }
}

impl Reading {
    pub(crate) fn new(answers: Answers, pipelines: &[Arc<PipelineDeclaration>], inserted: &[Secret]) -> Self {
        Self { answers, pipelines: pipelines.to_vec(), inserted: inserted.to_vec() }
    }
}

impl Readings {
    /// The reading of `file`, if it means the same as before.
    pub(crate) fn take(&mut self, file: &Path, files: &mut TextReader, env: &Lookup) -> Option<Reading> {
        self.by_file.remove(file).filter(|reading| reading.answers.are_the_same(files, env))
    }

    pub(crate) fn insert(&mut self, file: &Path, reading: Reading) {
        self.by_file.insert(file.to_owned(), reading);
    }

    /// Without readings of files that a configuration left.
    pub(crate) fn retain(&mut self, files: &[PathBuf]) {
        let files: BTreeSet<&PathBuf> = files.iter().collect();
        self.by_file.retain(|file, _| files.contains(file));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::load::{LoadOptions, load, load_again};

    /// Asks for texts of files and for variables.
    const KEPT: &str = r#"
        [source.in]
        type = "http"
        schema = "hook.json"
        accept = "accept.rhai"

        [step.a]
        from = "in"
        to = "out"
        run = "${SCRIPT:-a}.rhai"
        config = { kind = "${KIND:int:-1}" }

        [table.names]
        path = "names.csv"
        key = "id"

        [sink.out]
        type = "file"
        path = "kept.ndjson"
        format = "ndjson"
    "#;

    const STEP: &str = "[step.b]\nfrom = \"in\"\nto = \"out\"\nrun = \"b.rhai\"\n";

    /// Files that depend on the disk in other ways, or have a warning, without [`STEP`].
    const READ_EACH_TIME: [(&str, &str); 6] = [
        (
            "command.toml",
            r#"
            [source.in]
            type = "exec"
            command = ["./lines.sh"]
            cwd = "work"
            "#,
        ),
        (
            "token.toml",
            r#"
            [source.in]
            type = "http"
            [step.b.config]
            token = "${file:token.txt}"
            "#,
        ),
        (
            "pattern.toml",
            r#"
            [source.in]
            type = "file"
            path = "in[.ndjson"
            format = "ndjson"
            "#,
        ),
        (
            "zone.toml",
            r#"
            [source.in]
            type = "schedule"
            cron = "0 9 * * *"
            time_zone = "Europe/Berlin"
            "#,
        ),
        (
            "doubtful.toml",
            r#"
            [source.in]
            type = "http"
            [sink.out]
            type = "file"
            path = "$HOME.ndjson"
            format = "ndjson"
            "#,
        ),
        (
            "tested.toml",
            r#"
            [source.in]
            type = "http"
            [[test]]
            name = "a job"
            step = "b"
            given = "jobs.ndjson"
            expect = { out = [{}] }
            "#,
        ),
    ];

    const OTHER: &str =
        "[source.in]\ntype = \"http\"\n[step.c]\nfrom = \"in\"\nto = \"out\"\nrun = \"b.rhai\"\n";

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let script = "fn process(job) { job }";
        for (name, text) in READ_EACH_TIME {
            fs::write(folder.path().join(name), format!("{text}\n{STEP}")).unwrap();
        }
        for (name, text) in [
            ("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n"),
            ("kept.toml", KEPT),
            ("other.toml", OTHER),
            (
                "a.rhai",
                "import \"shared\" as s;\nimport \"missing\" as m;\nfn process(job) { lookup(\"names\", job.id); s::f(job) }",
            ),
            ("a2.rhai", script),
            ("b.rhai", script),
            ("accept.rhai", "fn accept(request) { request }"),
            ("shared.rhai", "fn f(job) { job }"),
            ("hook.json", "{}"),
            ("lines.sh", "#!/bin/sh"),
            ("token.txt", "one"),
            ("in[.ndjson", "{}"),
            ("names.csv", "id,name\n1,a\n"),
            ("jobs.ndjson", "{}\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::set_permissions(folder.path().join("lines.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        folder
    }

    fn options(variables: &'static [(&str, &str)]) -> LoadOptions {
        let value = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        LoadOptions { env: Box::new(value), ..LoadOptions::default() }
    }

    /// The only pipeline of a file whose reading is kept.
    fn kept(readings: &Readings, file: &Path) -> Option<Arc<PipelineDeclaration>> {
        readings.by_file.get(file)?.pipelines.first().cloned()
    }

    #[test]
    fn only_files_that_have_changed_are_read_again() {
        let folder = folder();
        let mut readings = Readings::default();
        let draft = load_again(folder.path(), &options(&[]), &mut readings);
        assert!(!draft.diagnostics.has_errors(), "{}", draft.diagnostics);
        let file = |name: &str| folder.path().join(name);
        assert!(kept(&readings, &file("kept.toml")).is_some());
        for (name, _) in READ_EACH_TIME {
            assert!(kept(&readings, &file(name)).is_none(), "{name}");
        }
        let [first, importing] =
            ["other.toml", "kept.toml"].map(|name| kept(&readings, &file(name)).unwrap());
        fs::write(file("shared.rhai"), "fn f(job) { 1 }").unwrap();
        let _ = load_again(folder.path(), &options(&[]), &mut readings);
        assert!(Arc::ptr_eq(&kept(&readings, &file("other.toml")).unwrap(), &first));
        assert!(!Arc::ptr_eq(&kept(&readings, &file("kept.toml")).unwrap(), &importing));
        fs::write(file("b.rhai"), "fn process(job) { 1 }").unwrap();
        let _ = load_again(folder.path(), &options(&[]), &mut readings);
        assert!(!Arc::ptr_eq(&kept(&readings, &file("other.toml")).unwrap(), &first));
        fs::remove_file(file("other.toml")).unwrap();
        let _ = load_again(folder.path(), &options(&[]), &mut readings);
        assert!(kept(&readings, &file("other.toml")).is_none());
    }

    #[test]
    fn a_text_that_stays_as_it_is_written_is_interpreted_again() {
        let folder = folder();
        let unset = OTHER.replace("b.rhai", "${NONE}.rhai");
        fs::write(folder.path().join("other.toml"), unset).unwrap();
        let mut readings = Readings::default();
        let options = LoadOptions { keeps_unset: true, ..options(&[]) };
        let _ = load_again(folder.path(), &options, &mut readings);
        assert!(kept(&readings, &folder.path().join("kept.toml")).is_some());
        assert!(kept(&readings, &folder.path().join("other.toml")).is_none());
    }

    #[test]
    fn a_file_that_appeared_between_two_answers_is_not_as_before() {
        let script = PathBuf::from("m.rhai");
        let read =
            vec![(script.clone(), None), (script.clone(), Some(Arc::from("text"))), (script.clone(), None)];
        let answers = Answers::new(read, BTreeMap::new());
        for texts in [BTreeMap::new(), BTreeMap::from([(script, "text".to_owned())])] {
            assert!(!answers.are_the_same(&mut TextReader::recorded(texts), &|_| None));
        }
    }

    #[test]
    fn whatever_has_changed_a_second_reading_is_like_a_first_one() {
        // A file and its text afterwards; `None`: it is removed.
        let changes = [
            ("token.txt", Some("one")),
            ("kept.toml", Some(OTHER)),
            ("third.toml", Some(OTHER)),
            ("a.rhai", Some("fn process(job) { 2 }")),
            ("shared.rhai", Some("import \"more\" as m; fn f(job) { 2 }")),
            ("missing.rhai", Some("fn f(job) { 3 }")),
            ("accept.rhai", Some("fn accept(request) { 1 }")),
            ("hook.json", Some("{\"type\": \"object\"}")),
            ("token.txt", Some("two")),
            ("names.csv", Some("id,name\n1,a\n2,b\n")),
            ("names.csv", Some("no key\n")),
            ("jobs.ndjson", Some("{}\n{}\n")),
            ("a.rhai", None),
            ("shared.rhai", None),
            ("hook.json", None),
            ("token.txt", None),
            ("names.csv", None),
            ("jobs.ndjson", None),
            ("lines.sh", None),
            ("in[.ndjson", None),
            ("other.toml", None),
            ("work/", None),
        ];
        let environments: [&'static [(&str, &str)]; 4] =
            [&[], &[("SCRIPT", "a2")], &[("SCRIPT", "")], &[("KIND", "7")]];
        for (name, text) in changes {
            for variables in environments {
                let folder = folder();
                let mut readings = Readings::default();
                let _ = load_again(folder.path(), &options(&[]), &mut readings);
                let path = folder.path().join(name);
                match text {
                    Some(text) => fs::write(path, text).unwrap(),
                    None if name.ends_with('/') => fs::remove_dir(path).unwrap(),
                    None => fs::remove_file(path).unwrap(),
                }
                for time in ["second", "third"] {
                    let again = load_again(folder.path(), &options(variables), &mut readings);
                    let anew = load(folder.path(), &options(variables));
                    assert_eq!(
                        format!("{again:?}"),
                        format!("{anew:?}"),
                        "{name} {text:?} {variables:?} {time}"
                    );
                }
            }
        }
    }
}
