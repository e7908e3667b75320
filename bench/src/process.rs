//! Child processes that never outlive the driver, and what the kernel knows about a process.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// Linux reports CPU time to programs in hundredths of a second on every architecture.
const MICROS_PER_TICK: u64 = 10_000;

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    pub cpu_micros: u64,
    pub rss_bytes: u64,
    pub rss_bytes_max: u64,
    /// Bytes sent to the disk, not to sockets.
    pub written_bytes: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Self> {
        let status = read(pid, "status")?;
        Ok(Self {
            cpu_micros: cpu_micros(&read(pid, "stat")?).context("read the CPU time")?,
            rss_bytes: field(&status, "VmRSS:").unwrap_or(0) * 1024,
            rss_bytes_max: field(&status, "VmHWM:").unwrap_or(0) * 1024,
            written_bytes: field(&read(pid, "io")?, "write_bytes:").unwrap_or(0),
        })
    }
}

/// CPU time that the whole machine has spent so far.
pub fn machine_cpu_micros() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_whitespace().skip(1).flat_map(str::parse).collect();
    // user nice system idle iowait irq softirq steal
    [0, 1, 2, 5, 6, 7].iter().filter_map(|column| ticks.get(*column)).sum::<u64>() * MICROS_PER_TICK
}

fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("process {pid} has ended"))
}

fn cpu_micros(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything; utime and stime are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks * MICROS_PER_TICK)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// A child that ends when this value is dropped, or when the driver dies: then its standard input closes.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<pipe::Receiver>,
    name: String,
}

impl Process {
    pub fn start(command: &mut Command, name: &str) -> Result<Self> {
        let mut child = command
            // A group of its own: Ctrl-C reaches the driver alone, which then ends the rest.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("a child without output")?;
        let output = BufReader::new(pipe::Receiver::from_owned_fd(OwnedFd::from(output))?);
        Ok(Self { child, input, output, name: name.into() })
    }

    /// Starts a part of this binary.
    pub fn part(arguments: &[String]) -> Result<Self> {
        let name = arguments.first().map_or("part", String::as_str).to_owned();
        Self::start(Command::new(std::env::current_exe()?).arg("part").args(arguments), &name)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line of output, which must come within the limit.
    pub async fn line(&mut self, limit: Duration) -> Result<String> {
        let mut line = String::new();
        let read = timeout(limit, self.output.read_line(&mut line)).await;
        let bytes = read.map_err(|_| anyhow!("{} said nothing in {limit:?}", self.name))??;
        ensure!(bytes > 0, "{} ended without a result", self.name);
        Ok(line)
    }

    pub async fn json<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let line = self.line(limit).await?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))
    }
}

/// How long a child may take to end by itself once its input is closed.
const END_TIME_MAX: Duration = Duration::from_secs(2);
const END_POLL: Duration = Duration::from_millis(2);

impl Drop for Process {
    fn drop(&mut self) {
        // Closing the input first lets the guard of `flare` kill it; then the child itself is killed.
        drop(self.input.take());
        let start = std::time::Instant::now();
        while start.elapsed() < END_TIME_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(END_POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_spaces_and_parentheses() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0";
        assert_eq!(cpu_micros(stat), Some(150 * MICROS_PER_TICK));
    }

    #[test]
    fn this_process_can_be_measured() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.rss_bytes > 0 && usage.rss_bytes_max >= usage.rss_bytes);
    }
}
