//! `tidegate plugin new` and `tidegate plugin header`: write every file that authors of plugins need.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::PluginNew;
use crate::client::print_text;
use crate::output::exit;
use crate::output::exit::Exit;

pub(crate) mod api;

const MANIFEST: &str = include_str!("plugin_new/Cargo.toml.txt");
const LIBRARY: &str = include_str!("plugin_new/lib.rs.txt");
const IN_C: &str = include_str!("plugin_new/plugin.c.txt");
/// The name of the crate that is written beside the plugin.
const CRATE: &str = "tidegate-plugin";

/// `tidegate plugin header`
pub(crate) fn header() -> Exit {
    print_text(api::HEADER.trim_end());
    Exit::Done
}

pub(crate) fn new(command: &PluginNew) -> Exit {
    let name = &command.name;
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return exit::misuse(format_args!(
            "`{name}` is not a valid plugin name: use lowercase letters, digits and `-`, a letter first"
        ));
    }
    if name == CRATE {
        return exit::misuse(format_args!("`{name}` is the name of the crate for plugins: choose another"));
    }
    let folder = Path::new(name);
    if folder.exists() {
        return exit::fail(format_args!("`{name}` already exists"));
    }
    let api = match command.api.as_deref().map(crate_in).transpose() {
        Ok(api) => api,
        Err(why) => return exit::fail(why),
    };
    let file = name.replace('-', "_");
    let written = if command.c { write_c(folder, name, &file) } else { write(folder, name, api.as_deref()) };
    if let Err(error) = written {
        return exit::fail(format_args!("`{name}` cannot be written: {error}"));
    }
    print_text(&if command.c { about_c(name, &file) } else { about(name, &file) });
    Exit::Done
}

/// The folder given for the crate, as an absolute path.
fn crate_in(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|error| {
        format!("`--api {shown}` is not a folder of the crate `{CRATE}`: `{}`: {error}", manifest.display())
    })?;
    let named = text.lines().any(|line| {
        line.split_once('=')
            .is_some_and(|(key, value)| key.trim() == "name" && value.trim().trim_matches('"') == CRATE)
    });
    if !named {
        return Err(format!(
            "`--api {shown}` is not the crate `{CRATE}`: its Cargo.toml does not name `{CRATE}`"
        ));
    }
    fs::canonicalize(folder).map_err(|error| format!("`--api {shown}` cannot be found: {error}"))
}

fn about(name: &str, file: &str) -> String {
    format!(
        "{name}/src/lib.rs is a step that counts the words of a text. To build and test it:\n\n    cd {name} && cargo \
         test && cargo build --release\n\nThen copy target/release/lib{file}.so to the folder of `[runner] plugins`, and write \
         `run = \"plugin:{name}\"`."
    )
}

fn about_c(name: &str, file: &str) -> String {
    format!(
        "{name}/{file}.c is a step that passes on texts that are not empty. To build it:\n\n    cd {name} && cc -shared -fPIC \
         -O2 -Wall -Wextra -I . -o lib{file}.so {file}.c\n\nThen copy lib{file}.so to the folder of `[runner] plugins`, and \
         write `run = \"plugin:{name}\"`."
    )
}

fn write(folder: &Path, name: &str, api: Option<&Path>) -> io::Result<()> {
    let path = match api {
        // A text of TOML, with its escapes.
        Some(api) => format!("{:?}", api.display().to_string()),
        None => format!("\"{CRATE}\""),
    };
    fs::create_dir_all(folder.join("src"))?;
    let manifest = MANIFEST.replace("{{name}}", name).replace("{{path}}", &path);
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join(".gitignore"), "/target\n")?;
    fs::write(folder.join("src/lib.rs"), LIBRARY.replace("{{name}}", name))?;
    if api.is_none() {
        for (path, text) in api::files() {
            let path = folder.join(CRATE).join(path);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(path, text)?;
        }
    }
    Ok(())
}

fn write_c(folder: &Path, name: &str, file: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("tidegate_plugin.h"), api::HEADER)?;
    fs::write(folder.join(format!("{file}.c")), IN_C.replace("{{name}}", name).replace("{{file}}", file))
}
