//! What the process itself uses, under the names that every Prometheus client gives it. Read from `/proc`
//! by hand: the client's own feature brings a crate for all of procfs along. Elsewhere than on Linux there
//! is nothing to read, and the series are absent.

use std::path::{Path, PathBuf};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Registry};

/// Ticks per second in which the kernel tells of CPU time: fixed, whatever its own timer does.
const TICKS: f64 = 100.0;

/// Shows memory, CPU time, open files and the start of the process in a registry.
///
/// # Errors
/// When it has metrics of the same names.
pub fn process(registry: &Registry) -> Result<(), prometheus::Error> {
    registry.register(Box::new(Process::new(PathBuf::from("/proc"))?))
}

struct Process {
    proc: PathBuf,
    memory: Gauge,
    cpu: Counter,
    files: Gauge,
    started: Gauge,
}

impl Process {
    fn new(proc: PathBuf) -> Result<Self, prometheus::Error> {
        Ok(Self {
            proc,
            memory: Gauge::new(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            )?,
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            files: Gauge::new("process_open_fds", "Number of open file descriptors.")?,
            started: Gauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
        })
    }

    fn cpu_and_start(&self) -> Option<(f64, f64)> {
        let stat = std::fs::read_to_string(self.proc.join("self/stat")).ok()?;
        let boot = field(&self.proc.join("stat"), "btime")?;
        let (cpu, started) = times(&stat)?;
        Some((cpu, boot + started))
    }
}

/// CPU time, and start since boot, in seconds. The name of the program, in parentheses, may hold anything.
fn times(stat: &str) -> Option<(f64, f64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Numbered as in proc(5), where the first field after the name is the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(((field(14)? + field(15)?) / TICKS, field(22)? / TICKS))
}

/// The number after a word at the beginning of a line.
fn field(file: &Path, word: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.memory.desc();
        all.extend(self.cpu.desc());
        all.extend(self.files.desc());
        all.extend(self.started.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        if let Some(kibibytes) = field(&self.proc.join("self/status"), "VmRSS:") {
            self.memory.set(kibibytes * 1024.0);
            families.extend(self.memory.collect());
        }
        if let Some((cpu, started)) = self.cpu_and_start() {
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.started.set(started);
            families.extend(self.cpu.collect());
            families.extend(self.started.collect());
        }
        if let Ok(files) = std::fs::read_dir(self.proc.join("self/fd")) {
            self.files.set(files.count() as f64);
            families.extend(self.files.collect());
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let registry = Registry::new();
        process(&registry).unwrap();
        let value = |name: &str| {
            let families = registry.gather();
            let family = families.iter().find(|f| f.name() == name).unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(process(&registry).is_err(), "once per registry");
    }

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 4200 20";
        assert_eq!(times(stat), Some((2.0, 42.0)));
        assert_eq!(times("7 (a) R 1"), None);
        assert_eq!(times(""), None);
    }

    #[test]
    fn without_proc_there_are_no_series() {
        let process = Process::new(PathBuf::from("/nonexistent")).unwrap();
        assert!(process.collect().is_empty());
        assert_eq!(process.desc().len(), 4);
    }
}
