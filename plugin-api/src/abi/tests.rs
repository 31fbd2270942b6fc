//! Tests of the ABI: the C header equals this crate's declarations.

use std::path::Path;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tidegate_plugin.h");

const TRAILER: &str = "/*
 Whether a struct that the runner hands over has this field: a runner that is older than this header may not.
 Not needed for fields of the first version, which all but `token` of `TidegateHost` and `word` of
 `TidegateAnswer` are. `TIDEGATE_HAS(answer, word)`, with a pointer.
 */
#define TIDEGATE_HAS(pointer, field) \\
  ((size_t)((const char *)&(pointer)->field - (const char *)(pointer)) + sizeof (pointer)->field \\
   <= (pointer)->size)

#if defined(__GNUC__)
#define TIDEGATE_EXPORT __attribute__((visibility(\"default\")))
#else
#define TIDEGATE_EXPORT
#endif

#ifdef __cplusplus
extern \"C\" {
#endif

/*
 The function that a plugin defines and exports, also if it is compiled with `-fvisibility=hidden`.
 */
TIDEGATE_EXPORT const struct TidegatePlugin *tidegate_plugin(void);

#ifdef __cplusplus
}
#endif

#endif  /* TIDEGATE_PLUGIN_H */";

/// `TIDEGATE_WRITE_HEADER=1 cargo test -p tidegate-plugin` writes it again.
#[test]
fn the_header_is_up_to_date() {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C,
        documentation_length: cbindgen::DocumentationLength::Full,
        header: Some(
            "/* C header: declares the plugin interface of Tidegate. Generated from plugin-api/src/abi.rs.\n * Neither \
             side frees memory of the other. Bytes are borrowed until the call returns.\n * An instance stays on one \
             thread. `TidegateHost` may be called from any thread,\n * `TidegateAnswer` only within its call. */\n\n#ifndef TIDEGATE_PLUGIN_H\n\
             #define TIDEGATE_PLUGIN_H"
                .into(),
        ),
        trailer: Some(TRAILER.into()),
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
