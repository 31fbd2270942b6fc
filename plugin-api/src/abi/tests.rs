//! The C header says what this file says.

use std::path::Path;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tidegate_plugin.h");

/// `TIDEGATE_WRITE_HEADER=1 cargo test -p tidegate-plugin` writes it anew.
#[test]
fn the_header_is_up_to_date() {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        include_guard: Some("TIDEGATE_PLUGIN_H".into()),
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C,
        documentation_length: cbindgen::DocumentationLength::Full,
        header: Some(
            "/* Generated from plugin-api/src/abi.rs, whose first lines hold too:\n * nothing is freed by the other \
             side; bytes are borrowed until the call returns; an instance stays on one\n * thread; `TidegateHost` \
             may be called from any thread, `TidegateAnswer` only within its call. */"
                .into(),
        ),
        trailer: Some(
            "/* What a plugin defines and exports. */\n#ifdef __cplusplus\nextern \"C\"\n#endif\nconst struct \
             TidegatePlugin *tidegate_plugin(void);"
                .into(),
        ),
        style: cbindgen::Style::Both,
        export: cbindgen::ExportConfig {
            include: ["TidegatePlugin", "TidegateSetup"].map(str::to_owned).to_vec(),
            ..cbindgen::ExportConfig::default()
        },
        ..cbindgen::Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap();
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    if std::env::var_os("TIDEGATE_WRITE_HEADER").is_some() {
        std::fs::write(HEADER, &generated).unwrap();
    }
    let written = std::fs::read_to_string(HEADER).unwrap_or_default();
    assert!(written == generated, "{HEADER} is old: write it with TIDEGATE_WRITE_HEADER=1");
}
