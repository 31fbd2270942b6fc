//! Sources for authors of plugins: the crate `tidegate-plugin` and the C header, embedded in this program.

/// The header for plugins in C.
pub(crate) const HEADER: &str = include_str!("../../../../plugin-api/include/tidegate_plugin.h");

/// The manifest of the crate outside of the repository.
const MANIFEST: &str = include_str!("api.toml.txt");

/// Its files, without their tests.
const SOURCES: &[(&str, &str)] = &[
    ("src/abi.rs", include_str!("../../../../plugin-api/src/abi.rs")),
    ("src/borrowed.rs", include_str!("../../../../plugin-api/src/borrowed.rs")),
    ("src/context.rs", include_str!("../../../../plugin-api/src/context.rs")),
    ("src/export.rs", include_str!("../../../../plugin-api/src/export.rs")),
    ("src/failure.rs", include_str!("../../../../plugin-api/src/failure.rs")),
    ("src/field.rs", include_str!("../../../../plugin-api/src/field.rs")),
    ("src/finite.rs", include_str!("../../../../plugin-api/src/finite.rs")),
    ("src/host.rs", include_str!("../../../../plugin-api/src/host.rs")),
    ("src/host/answer.rs", include_str!("../../../../plugin-api/src/host/answer.rs")),
    ("src/host/description.rs", include_str!("../../../../plugin-api/src/host/description.rs")),
    ("src/host/instance.rs", include_str!("../../../../plugin-api/src/host/instance.rs")),
    ("src/host/line.rs", include_str!("../../../../plugin-api/src/host/line.rs")),
    ("src/host/output.rs", include_str!("../../../../plugin-api/src/host/output.rs")),
    ("src/json.rs", include_str!("../../../../plugin-api/src/json.rs")),
    ("src/json/mistake.rs", include_str!("../../../../plugin-api/src/json/mistake.rs")),
    ("src/level.rs", include_str!("../../../../plugin-api/src/level.rs")),
    ("src/lib.rs", include_str!("../../../../plugin-api/src/lib.rs")),
    ("src/outlet.rs", include_str!("../../../../plugin-api/src/outlet.rs")),
    ("src/outputs.rs", include_str!("../../../../plugin-api/src/outputs.rs")),
    ("src/payloads.rs", include_str!("../../../../plugin-api/src/payloads.rs")),
    ("src/plugin_step.rs", include_str!("../../../../plugin-api/src/plugin_step.rs")),
    ("src/schema.rs", include_str!("../../../../plugin-api/src/schema.rs")),
    ("src/schema/keys.rs", include_str!("../../../../plugin-api/src/schema/keys.rs")),
    ("src/step.rs", include_str!("../../../../plugin-api/src/step.rs")),
    ("src/testing.rs", include_str!("../../../../plugin-api/src/testing.rs")),
    ("src/words.rs", include_str!("../../../../plugin-api/src/words.rs")),
];

/// All files of the crate, as paths in its folder.
pub(crate) fn files() -> impl Iterator<Item = (&'static str, String)> {
    let manifest = MANIFEST.replace("{{version}}", env!("CARGO_PKG_VERSION"));
    let sources = SOURCES.iter().map(|&(path, text)| (path, text.to_owned()));
    [("Cargo.toml", manifest), ("include/tidegate_plugin.h", HEADER.to_owned())].into_iter().chain(sources)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const API: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-api");

    fn list(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() {
                list(&path, found);
            } else if !is_test {
                found.insert(path.strip_prefix(API).unwrap().display().to_string());
            }
        }
    }

    #[test]
    fn no_file_of_the_crate_is_left_out() {
        let mut there = BTreeSet::new();
        list(&Path::new(API).join("src"), &mut there);
        let written: BTreeSet<String> = SOURCES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(written, there);
    }

    /// The lines of a section, without comments.
    fn section<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
        let lines = text.lines().skip_while(|line| *line != name).skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }

    #[test]
    fn the_manifest_of_the_plugin_crate_agrees_with_that_of_the_repository() {
        let read = |path: &str| std::fs::read_to_string(Path::new(API).join(path)).unwrap();
        let (own, workspace) = (read("Cargo.toml"), read("../Cargo.toml"));
        assert_eq!(section(MANIFEST, "[features]"), section(&own, "[features]"));
        // Each dependency is optional; the workspace gives its version.
        let shared = section(&workspace, "[workspace.dependencies]");
        let expected: Vec<String> = section(&own, "[dependencies]")
            .into_iter()
            .map(|line| {
                let name = line.strip_suffix(" = { workspace = true, optional = true }").unwrap();
                let version_of =
                    |line: &&str| line.strip_prefix(name)?.strip_prefix(" = ").map(str::to_owned);
                let version = shared.iter().find_map(version_of).unwrap();
                let table =
                    if version.starts_with('"') { format!("{{ version = {version} }}") } else { version };
                format!("{name} = {}, optional = true }}", table.strip_suffix(" }").unwrap())
            })
            .collect();
        assert_eq!(section(MANIFEST, "[dependencies]"), expected);
        let package = section(MANIFEST, "[package]");
        let shared = section(&workspace, "[workspace.package]");
        assert!(
            shared.iter().all(|line| line.starts_with("version") || package.contains(line)),
            "{package:?}"
        );
        let lint = section(MANIFEST, "[lints.rust]");
        assert!(lint.iter().all(|line| section(&workspace, "[workspace.lints.rust]").contains(line)));
    }
}
