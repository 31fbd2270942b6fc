//! `tidegate plugin new`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cli::PluginNew;
use super::exit::{self, Exit};
use super::find::print_text;

const MANIFEST: &str = include_str!("plugin_new/Cargo.toml.txt");
const LIBRARY: &str = include_str!("plugin_new/lib.rs.txt");
/// Where this program was built, `tidegate-plugin` stands beside the runner.
const BUILT_BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-api");

pub(super) fn new(command: &PluginNew) -> Exit {
    let name = &command.name;
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return exit::misuse(format_args!(
            "`{name}` is no name for a plugin: use lowercase letters, digits and `-`, a letter first"
        ));
    }
    let folder = Path::new(name);
    if folder.exists() {
        return exit::fail(format_args!("`{name}` is there already"));
    }
    let api =
        command.api.clone().or_else(|| Some(PathBuf::from(BUILT_BESIDE)).filter(|folder| folder.is_dir()));
    if let Err(error) = write(folder, name, api.as_deref()) {
        return exit::fail(format_args!("`{name}` cannot be written: {error}"));
    }
    let file = name.replace('-', "_");
    print_text(&format!(
        "{name}/src/lib.rs is a step that counts the words of a text. To build and test it:\n\n    \
         cd {name} && cargo test && cargo build --release\n\n\
         Then put target/release/lib{file}.so where `[runner] plugins` says, and write `run = \"plugin:{name}\"`."
    ));
    Exit::Done
}

fn write(folder: &Path, name: &str, api: Option<&Path>) -> io::Result<()> {
    let api = match api {
        // A text of TOML, with its escapes.
        Some(api) => format!("path = {:?}", fs::canonicalize(api)?.display().to_string()),
        None => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
    };
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), MANIFEST.replace("{{name}}", name).replace("{{api}}", &api))?;
    fs::write(folder.join(".gitignore"), "/target\n")?;
    fs::write(folder.join("src/lib.rs"), LIBRARY.replace("{{name}}", name))
}
