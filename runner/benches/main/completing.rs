//! Rate of completions: an external system completes jobs over several connections. The runner is a process
//! of its own, and a load generator runs beside it, on the same machine.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tidegate_config::{LoadOptions, load};
use tidegate_model::delivery_hash;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::http::{self, CONNECTIONS, Runner};
use crate::paths;

/// With an HTTP source the runner continues until it is stopped.
const PIPELINE: &str = "[source.more]\ntype = \"http\"\n[sink.more-out]\nfrom = \"more\"\ntype = \"null\"\n\
                        [source.in]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
                        [step.submit]\nfrom = \"in\"\nrun = \"submit.rhai\"\nto = \"out\"\n\
                        [sink.out]\ntype = \"null\"\n";
const SUBMIT: &str = "fn process(job) { pending(job.id) }";

/// Jobs that are completed durably, per second.
pub(crate) fn rate(folder: &Path, jobs: u64, rounds: u64) -> Result<f64, Box<dyn Error>> {
    let folder = tempfile::TempDir::new_in(folder)?;
    let folder = folder.path();
    let jobs = (jobs / 10 / CONNECTIONS).max(1) * CONNECTIONS;
    fs::write(folder.join("tidegate.toml"), http::SETTINGS)?;
    fs::write(folder.join("p.toml"), PIPELINE)?;
    fs::write(folder.join("submit.rhai"), SUBMIT)?;
    paths::write_input(&folder.join("in.ndjson"), jobs)?;
    let rates: Result<Vec<_>, _> = (0..rounds).map(|_| finish(folder, jobs)).collect();
    let mut rates = rates?;
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    eprintln!("    completions: {median:.0} jobs/s");
    Ok(median)
}

fn finish(folder: &Path, jobs: u64) -> Result<f64, Box<dyn Error>> {
    paths::begin_anew(folder)?;
    let handed_on = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", ".", "--until-idle"])
        .current_dir(folder)
        .stderr(Stdio::null())
        .status()?;
    if !handed_on.success() {
        return Err("the jobs do not become pending".into());
    }
    let tokens = tokens(folder, jobs)?;
    let runner = Runner::start(folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let begun = Instant::now();
    runtime.block_on(async {
        let each = tokens.len() / usize::try_from(CONNECTIONS)?;
        let tasks: Vec<_> = tokens
            .chunks(each.max(1))
            .map(|tokens| tokio::spawn(send(runner.address.clone(), tokens.to_vec())))
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs are far below 2^52")]
    let rate = jobs as f64 / begun.elapsed().as_secs_f64();
    Ok(rate)
}

/// The jobs, each with its token.
fn tokens(folder: &Path, jobs: u64) -> Result<Vec<(u64, String)>, Box<dyn Error>> {
    let loaded = load(folder, &LoadOptions::default()).finish();
    let (configuration, _) = loaded.map_err(|diagnostics| diagnostics.render(false))?;
    let (store, _writer) = tidegate_store::open(&configuration.data)?;
    let key = store.token_key()?.ok_or("the store has no key")?;
    let hash = |index: u64| delivery_hash("p", "submit", [("p/in", &[index][..])]);
    Ok((1..=jobs).map(|index| (index, key.token(hash(index)))).collect())
}

/// Completes one job after the other, each when the one before was accepted.
async fn send(address: String, tokens: Vec<(u64, String)>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::new();
    for (index, token) in tokens {
        let request = format!(
            "POST /jobs/p/in/{index}/complete HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        http::expect(&mut stream, b"HTTP/1.1 200", &mut answer).await?;
    }
    Ok(())
}
