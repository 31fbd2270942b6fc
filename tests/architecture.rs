//! Architecture: files of a crate import each other in one direction only, without circles.
//!
//! Crates use only the crates that one table allows, which is also that of the documents.
//!
//! A module may use the modules inside it: `store.rs` with its folder `store/` is read as one. Every other
//! arc counts, also that from a module up to its parent. Re-exports are followed to the file that defines the
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names of modules, from the root of the crate on.
type Module = Vec<String>;

struct Source {
    file: PathBuf,
    uses: Vec<Import>,
}

/// One name that a `use` imports.
struct Import {
    line: usize,
    path: Vec<String>,
    /// The name under which it is re-exported, if it is.
    exported: Option<String>,
}

struct Arc {
    to: Module,
    line: usize,
}

#[test]
fn no_file_imports_itself_through_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let crates = crates(&root);
    assert!(crates.iter().any(|folder| folder.ends_with("runner/src")), "{crates:?}");
    for folder in crates {
        let sources = read(&folder);
        let arcs = arcs(&sources);
        if let Some(circle) = circle(&arcs) {
            let lines = circle.iter().map(|(from, arc)| {
                let shown = |module| {
                    sources[module].file.strip_prefix(&root).expect("a file below the root").display()
                };
                format!("  {}:{} imports {}", shown(*from), arc.line, shown(&arc.to))
            });
            panic!("files import each other in a circle:\n{}", lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The root files of crates.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// The folders of sources of all crates.
fn crates(root: &Path) -> Vec<PathBuf> {
    let folders = ["", "runner/crates", "plugins"].map(|folder| fs::read_dir(root.join(folder)));
    let packages = folders.into_iter().flatten().flatten().map(|entry| entry.expect("an entry").path());
    let sources = packages.map(|package| package.join("src"));
    sources.filter(|sources| ROOTS.iter().any(|file| sources.join(file).exists())).collect()
}

/// The sources of a crate by module, without tests.
fn read(folder: &Path) -> BTreeMap<Module, Source> {
    let mut sources = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).expect("a folder").flatten() {
            let file = entry.path();
            if file.is_dir() {
                folders.push(file);
                continue;
            }
            let path = file.strip_prefix(folder).expect("a file in the folder").to_path_buf();
            let names = path.with_extension("");
            let names: Module = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            if path.extension().is_none_or(|end| end != "rs") || names.iter().any(|name| name == "tests") {
                continue;
            }
            let is_root = ROOTS.iter().any(|file| path == Path::new(file));
            let module = if is_root { Vec::new() } else { names };
            let uses = uses(&fs::read_to_string(&file).expect("a source"));
            sources.insert(module, Source { file, uses });
        }
    }
    sources
}

/// The imports of the file, without its tests.
fn uses(text: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(|(_, next)| next.ends_with('{')) {
            break;
        }
        let (exported, rest) = match line.trim().split_once("use ") {
            Some(("", rest)) => (false, rest),
            Some((before, rest)) if before.starts_with("pub") && !before.contains('=') => (true, rest),
            _ => continue,
        };
        let mut whole = rest.to_owned();
        while !whole.contains(';') {
            let Some((_, next)) = lines.next() else { break };
            whole.push_str(next.split("//").next().unwrap_or(next));
        }
        let tree = whole.split(';').next().unwrap_or(&whole);
        for (path, name) in names(tree) {
            let exported = exported.then_some(name);
            imports.push(Import { line: number + 1, path, exported });
        }
    }
    imports
}

/// The paths of a `use` tree, each with the name that it gives.
fn names(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let name =
            alias.map_or_else(|| path.last().cloned().unwrap_or_default(), |alias| alias.trim().to_owned());
        return vec![(path, name)];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, char) in inner.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[begin..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| names(&format!("{prefix}{}", part.trim()))).collect()
}

/// The arcs that count, by module.
fn arcs(sources: &BTreeMap<Module, Source>) -> BTreeMap<Module, Vec<Arc>> {
    let arcs_of = |(module, source): (&Module, &Source)| {
        let arcs = source.uses.iter().filter_map(|import| {
            let to = defined_in(sources, module, &import.path, &mut BTreeSet::new())?;
            (!to.starts_with(module)).then_some(Arc { to, line: import.line })
        });
        (module.clone(), arcs.collect())
    };
    sources.iter().map(arcs_of).collect()
}

/// The module that defines the name of `path` in `module`; `None` if another crate does.
fn defined_in(
    sources: &BTreeMap<Module, Source>,
    module: &Module,
    path: &[String],
    seen: &mut BTreeSet<Module>,
) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        "self" => module.clone(),
        name if sources.contains_key(&[module.as_slice(), &[name.to_owned()]].concat()) => {
            [module.as_slice(), &[name.to_owned()]].concat()
        }
        _ => return None,
    };
    let mut rest = &path[1..];
    while let Some((name, behind)) = rest.split_first() {
        if name == "super" {
            at.pop();
        } else {
            let inner = [at.as_slice(), std::slice::from_ref(name)].concat();
            if !sources.contains_key(&inner) {
                break;
            }
            at = inner;
        }
        rest = behind;
    }
    let Some(name) = rest.first() else { return Some(at) };
    let exported = sources.get(&at)?.uses.iter().find(|import| import.exported.as_ref() == Some(name));
    match exported {
        Some(import) if seen.insert([at.as_slice(), std::slice::from_ref(name)].concat()) => {
            defined_in(sources, &at, &import.path, seen).or(Some(at))
        }
        _ => Some(at),
    }
}

/// A circle of arcs, if one exists.
fn circle(arcs: &BTreeMap<Module, Vec<Arc>>) -> Option<Vec<(&Module, &Arc)>> {
    let mut done = BTreeSet::new();
    arcs.keys().find_map(|module| walk(arcs, module, &mut Vec::new(), &mut done))
}

fn walk<'a>(
    arcs: &'a BTreeMap<Module, Vec<Arc>>,
    module: &'a Module,
    way: &mut Vec<(&'a Module, &'a Arc)>,
    done: &mut BTreeSet<&'a Module>,
) -> Option<Vec<(&'a Module, &'a Arc)>> {
    if let Some(begin) = way.iter().position(|(from, _)| *from == module) {
        return Some(way.split_off(begin));
    }
    if done.contains(module) {
        return None;
    }
    for arc in arcs.get(module)? {
        way.push((module, arc));
        if let Some(circle) = walk(arcs, &arc.to, way, done) {
            return Some(circle);
        }
        way.pop();
    }
    done.insert(module);
    None
}

/// Public types that two crates may call the same: the documentation of `tidegate-model` gives the reason.
const SHARED_NAMES: [&str; 3] = ["ReadError", "Settings", "Step"];

#[test]
fn two_public_types_share_a_name_only_across_the_plugin_boundary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let mut defined: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for folder in crates(&root).into_iter().filter(|folder| !folder.starts_with(root.join("plugins"))) {
        for source in read(&folder).into_values() {
            let text = fs::read_to_string(&source.file).expect("a file of sources");
            let types = text.lines().filter_map(|line| {
                let mut words = line.strip_prefix("pub ")?.split(|c: char| !c.is_alphanumeric());
                let is_type = matches!(words.next()?, "struct" | "enum" | "trait" | "type");
                is_type.then(|| words.next().unwrap_or_default().to_owned())
            });
            for name in types {
                defined.entry(name).or_default().push(source.file.clone());
            }
        }
    }
    defined.retain(|_, files| files.len() > 1);
    let names: Vec<&str> = defined.keys().map(String::as_str).collect();
    assert_eq!(names, SHARED_NAMES, "{defined:#?}");
    for files in defined.values() {
        assert!(files.iter().any(|file| file.starts_with(root.join("plugin-api"))), "{files:#?}");
    }
}

#[test]
fn the_table_of_folders_in_the_documents_is_that_of_the_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let page = fs::read_to_string(root.join("docs/architecture.md")).expect("the page");
    let table =
        page.split_once("## Folders").and_then(|(_, rest)| rest.split_once("\n## ")).expect("the table").0;
    let mut documented = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let mut words = row.split('`').skip(1).step_by(2).map(str::to_owned);
        documented.insert(words.next().expect("a crate"), words.collect::<BTreeSet<String>>());
    }
    let mut found = BTreeMap::new();
    for sources in crates(&root).into_iter().filter(|sources| sources.starts_with(root.join("runner"))) {
        let name = match sources.strip_prefix(root.join("runner/crates")) {
            Ok(inner) => inner.iter().next().expect("a crate").to_string_lossy().into_owned(),
            Err(_) => "tidegate".to_owned(),
        };
        let folders =
            fs::read_dir(sources).expect("a folder").flatten().filter(|entry| entry.path().is_dir());
        let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.insert(name, names.filter(|name| name != "snapshots").collect::<BTreeSet<String>>());
    }
    assert_eq!(found, documented);
}

#[test]
fn a_circle_is_found_through_re_exports_and_named_with_its_lines() {
    let source = |text: &str| Source { file: PathBuf::from("x.rs"), uses: uses(text) };
    let module = |name: &str| -> Module { name.split("::").map(str::to_owned).collect() };
    let sources = BTreeMap::from([
        (Vec::new(), source("mod a;\nmod b;\npub use a::A;\npub use b::{B, Other as C};\n")),
        (module("a"), source("use std::fmt;\n\nuse crate::{\n    C,\n};\n")),
        (module("b"), source("mod inner;\nuse inner::I;\nuse super::A;\n#[cfg(test)]\nmod tests {\n")),
        (module("b::inner"), source("use super::B;\n")),
    ]);
    let arcs = arcs(&sources);
    let circle = circle(&arcs).unwrap();
    let found: Vec<_> =
        circle.iter().map(|(from, arc)| (from.join("::"), arc.line, arc.to.join("::"))).collect();
    assert_eq!(found, [("a".into(), 3, "b".into()), ("b".into(), 3, "a".into())]);
}

/// The crates of the runner from the lowest one up, each with those that it may use. Siblings do not know each other:
/// decisions, configuration and storage meet in the engine, and components for external systems have no store.
const MAY_USE: [(&str, &[&str]); 7] = [
    ("model", &[]),
    ("dispatch", &["model"]),
    ("config", &["model"]),
    ("store", &["model"]),
    ("components", &["model", "config"]),
    ("engine", &["model", "dispatch", "config", "store", "components"]),
    ("tidegate", &["model", "dispatch", "config", "store", "components", "engine"]),
];

#[test]
fn each_crate_uses_only_those_below_it_and_the_plugin_interface() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    for (name, may_use) in MAY_USE {
        let folder = if name == "tidegate" { "runner".into() } else { format!("runner/crates/{name}") };
        let used = used_crates(&root.join(&folder));
        let allowed: BTreeSet<_> = may_use.iter().chain(&["plugin"]).map(|&name| name.to_owned()).collect();
        let others: Vec<_> = used.difference(&allowed).collect();
        assert!(others.is_empty(), "{folder}/Cargo.toml names {others:?}, which `{name}` must not use");
    }
    let named: BTreeSet<_> = MAY_USE.iter().map(|&(name, _)| name.to_owned()).collect();
    for entry in fs::read_dir(root.join("runner/crates")).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(named.contains(&name), "no rule lists the crates that `{name}` may use");
    }
    // The plugin interface is below all: its tests name only itself.
    assert_eq!(used_crates(&root.join("plugin-api")), BTreeSet::from(["plugin".to_owned()]));
    for entry in fs::read_dir(root.join("plugins")).expect("a folder").flatten() {
        if entry.path().join("Cargo.toml").exists() {
            let used = used_crates(&entry.path());
            assert_eq!(used, BTreeSet::from(["plugin".to_owned()]), "{}", entry.path().display());
        }
    }
}

#[test]
fn the_table_of_crates_in_the_documents_is_what_the_crates_may_use() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/architecture.md");
    let page = fs::read_to_string(page).expect("the page on the architecture");
    let rows = page.lines().skip_while(|line| !line.starts_with("| crate | holds | may use |")).skip(2);
    let mut above = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, may_use] = cells[..] else { panic!("{row}") };
        let name = name.split('`').nth(1).expect("the name of a crate").to_owned();
        let named = may_use.split('`').skip(1).step_by(2).map(str::to_owned);
        let listed = if may_use == "all above" { above.clone() } else { named.collect::<Vec<_>>() };
        let rule = MAY_USE.get(above.len()).expect("a rule for each row");
        assert_eq!((name.as_str(), listed), (rule.0, rule.1.iter().map(|&name| name.to_owned()).collect()));
        above.push(name);
    }
    assert_eq!(above.len(), MAY_USE.len(), "a row for each crate");
}

/// The crates of this workspace that the manifest names, also those that only its tests use.
fn used_crates(package: &Path) -> BTreeSet<String> {
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
    let mut used = BTreeSet::new();
    let mut dependencies = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            dependencies = line.ends_with("dependencies]");
        } else if let Some(name) = line.strip_prefix("tidegate-").filter(|_| dependencies) {
            used.insert(name.split(['.', ' ', '=']).next().unwrap_or(name).to_owned());
        }
    }
    used
}
