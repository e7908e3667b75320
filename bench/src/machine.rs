//! What the numbers were measured on.

use std::fs;
use std::process::Command;

use serde::Serialize;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub date: String,
    pub commit: String,
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    pub rustc: String,
    pub load_average: String,
}

impl Machine {
    pub fn describe() -> Self {
        Self {
            date: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: output("git", &["describe", "--always", "--dirty"]),
            processor: proc_field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: proc_field("/proc/meminfo", "MemTotal")
                .split_whitespace()
                .next()
                .and_then(|kib| kib.parse::<f64>().ok())
                .map_or(0.0, |kib| kib / 1024.0 / 1024.0),
            kernel: output("uname", &["-sr"]),
            rustc: output("rustc", &["--version"]),
            load_average: fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .split(' ')
                .next()
                .unwrap_or("?")
                .into(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} cores of {}, {:.0} GiB, {}, {}\n{}, commit {}, load average before the run: {}",
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.rustc,
            self.date,
            self.commit,
            self.load_average
        )
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let ended = Command::new(program).args(arguments).output();
    let text = ended.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if text.is_empty() { "unknown".into() } else { text }
}

fn proc_field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
    line.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}
