//! Floor: the bare loop that every path is compared with.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use rhai::packages::{Package as _, StandardPackage};
use rhai::{CallFnOptions, Dynamic, Engine, Scope};
use tidegate_components::script::json;

use crate::paths::SCRIPT;

pub(crate) fn floor(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let mut engine = Engine::new_raw();
    StandardPackage::new().register_into_engine(&mut engine);
    let ast = engine.compile(SCRIPT)?;
    let mut scope = Scope::new();
    let mut input = BufReader::with_capacity(1 << 18, File::open(folder.join("in.ndjson"))?);
    let mut output = BufWriter::with_capacity(1 << 18, File::create(folder.join("floor.ndjson"))?);
    let (mut line, mut buffer, mut jobs) = (Vec::new(), Vec::new(), 0);
    while input.read_until(b'\n', &mut line)? > 0 {
        let job = json::read(&line)?;
        let options = CallFnOptions::new().eval_ast(false).rewind_scope(true);
        let made: Dynamic = engine
            .call_fn_with_options(options, &mut scope, &ast, "process", (job,))
            .map_err(|error| error.to_string())?;
        buffer.clear();
        json::write(&made, &mut buffer)?;
        buffer.push(b'\n');
        output.write_all(&buffer)?;
        line.clear();
        jobs += 1;
    }
    output.into_inner().map_err(|error| error.to_string())?.sync_all()?;
    Ok(jobs)
}
