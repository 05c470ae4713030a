//! Time and memory of reading an index: of 1, 10 and 60 MiB, or of the sizes given in MiB.
//!
//! Each size has two processes of its own, so that no figure holds another's memory: one writes a document
//! like those of large public repositories into a temporary directory and serves it, one reads it. The
//! growth is the reader's VmHWM after the reading less that before, when its runtime and client stood; it
//! holds the catalogue that was read. What reading takes besides shows where one version per chart is kept.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use windlass_addons::helm::{Limits, Reading, read};
use windlass_addons::{Source, catalogue::InUse};
use windlass_api::addon::RepositorySpec;
use windlass_cluster::clock;

type Outcome = Result<(), Box<dyn Error>>;

const MEBIBYTE: u64 = 1024 * 1024;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["serve", mebibytes, path] => serve(mebibytes.parse()?, Path::new(path)),
        ["read", url, kept] => {
            let measured = measure(url, kept.parse()?);
            tokio::runtime::Runtime::new()?.block_on(measured)
        }
        [] => table(&["1", "10", "60"]),
        sizes => table(sizes),
    }
}

fn table(sizes: &[&str]) -> Outcome {
    println!(
        "| MiB | kept of each chart | charts | versions | omitted | seconds | peak growth, MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for size in sizes {
        let path =
            std::env::temp_dir().join(format!("windlass-index-{}-{size}", std::process::id()));
        let outcome = row(size, &path);
        drop(std::fs::remove_file(&path));
        outcome?;
    }
    Ok(())
}

fn row(size: &str, path: &PathBuf) -> Outcome {
    let mut server = Server::start(size, path)?;
    let url = server.url()?;
    for kept in ["250", "1"] {
        let reader = Command::new(std::env::current_exe()?)
            .args(["read", &url, kept])
            .stderr(Stdio::inherit())
            .output()?;
        let figures = String::from_utf8(reader.stdout)?;
        println!("| {size} | {kept} {}", figures.trim());
    }
    Ok(())
}

/// The process that serves; it ends with this value.
struct Server(Child);

impl Server {
    fn start(size: &str, path: &PathBuf) -> Result<Self, Box<dyn Error>> {
        let child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(size)
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    fn url(&mut self) -> Result<String, Box<dyn Error>> {
        let output = self.0.stdout.as_mut().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn measure(url: &str, max_versions: i32) -> Outcome {
    clock::install_crypto();
    let spec = RepositorySpec {
        url: url.to_owned(),
        max_versions: Some(max_versions),
        ..RepositorySpec::default()
    };
    let source = Source::of(&spec, None, None)?;
    let (in_use, limits) = (InUse::new(), Limits::default());
    // The client's own memory is no part of a reading's.
    drop(windlass_addons::http::Http::new(&source)?);
    let before = peak()?;
    let begun = clock::monotonic();
    let reading = read(&source, &in_use, None, &limits).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let Reading::Read { catalogue, .. } = &reading else {
        return Err("nothing was read".into());
    };
    let growth = peak()?.saturating_sub(before) as f64 / 1024.0;
    let versions: usize = catalogue
        .charts
        .values()
        .map(|chart| chart.versions.len())
        .sum();
    let omitted: usize = catalogue.charts.values().map(|chart| chart.omitted).sum();
    let charts = catalogue.charts.len();
    println!("| {charts} | {versions} | {omitted} | {seconds:.2} | {growth:.1} |");
    Ok(())
}

/// The process's peak resident memory, in KiB.
fn peak() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.ok_or("no VmHWM")?.parse()?)
}

fn serve(mebibytes: u64, path: &Path) -> Outcome {
    write_index(mebibytes * MEBIBYTE, path)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    for connection in listener.incoming() {
        answer(connection?, path)?;
    }
    Ok(())
}

fn answer(mut connection: TcpStream, path: &Path) -> Outcome {
    let mut request = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    )?;
    std::io::copy(&mut file, &mut connection)?;
    drop(connection.flush());
    drop(request.read(&mut [0]));
    Ok(())
}

/// Charts of 120 versions each, with all that a real entry has, until the size is reached.
fn write_index(size: u64, path: &Path) -> Outcome {
    let mut file = BufWriter::new(File::create(path)?);
    let mut written = 0;
    let mut put = |text: &str| {
        written += text.len() as u64;
        file.write_all(text.as_bytes()).map(|()| written)
    };
    put("apiVersion: v1\nentries:\n")?;
    for chart in 0.. {
        put(&format!("  chart-{chart:04}:\n"))?;
        for version in (0..120).rev() {
            if put(&entry(chart, version))? >= size {
                put("generated: \"2026-01-01T00:00:00.000000000Z\"\n")?;
                return Ok(());
            }
        }
    }
    Ok(())
}

fn entry(chart: u32, version: u32) -> String {
    let (minor, patch) = (version / 10, version % 10);
    format!(
        r#"  - annotations:
      category: Database
      images: |
        - name: chart-{chart:04}
          image: registry.example/library/chart-{chart:04}:{minor}.{patch}-debian-12-r{version}
        - name: os-shell
          image: registry.example/library/os-shell:12-debian-12-r{version}
      licenses: Apache-2.0
    apiVersion: v2
    appVersion: {minor}.{patch}.0
    created: "2025-03-{:02}T09:41:58.784319561Z"
    dependencies:
    - name: common
      repository: oci://registry.example/charts
      tags:
      - library-common
      version: 2.x.x
    description: Chart {chart} is an open source object-relational database known for reliability
      and data integrity. ACID-compliant, it supports foreign keys, joins, views, triggers
      and stored procedures.
    digest: {:064x}
    home: https://example.com/charts/chart-{chart:04}
    icon: https://example.com/assets/stacks/chart-{chart:04}/img/stack-220x234.png
    keywords:
    - database
    - replication
    - cluster
    maintainers:
    - name: Somebody
      url: https://example.com/charts
    name: chart-{chart:04}
    sources:
    - https://example.com/charts/tree/main/chart-{chart:04}
    urls:
    - https://charts.example.com/archives/chart-{chart:04}-1.{minor}.{patch}.tgz
    version: 1.{minor}.{patch}
"#,
        version % 28 + 1,
        u64::from(chart) * 1000 + u64::from(version),
    )
}
