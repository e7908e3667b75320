//! Processes that end with the scenario, also when the scenario is killed itself.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::wait::WAIT_MAX;

const POLL: Duration = Duration::from_millis(5);

/// A process. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    guard: Guard,
}

impl Process {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let guard = Guard::new("kill -9 \"$0\"", &child.id().to_string());
        Self { child, guard }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end; none if it does not end by itself.
    pub async fn ended(mut self) -> Option<ExitStatus> {
        let ended = async {
            loop {
                match self.status() {
                    Some(status) => return status,
                    None => tokio::time::sleep(POLL).await,
                }
            }
        };
        tokio::time::timeout(WAIT_MAX, ended).await.ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard goes first: once the process is waited for, its number may be that of another.
        self.guard.dismiss();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does something when this process ends in a way that lets nothing be dropped: a shell that waits for our end of a
/// pipe to close.
pub(crate) struct Guard(Child);

impl Guard {
    /// `duty` is a shell command about `$0`.
    pub fn new(duty: &str, about: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read -r _; {duty}"), about]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Its duty is done by others.
    pub fn dismiss(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a process ended, and all that it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
}

/// Runs a command that is expected to end by itself.
pub async fn run_to_end(mut command: Command) -> Ended {
    let folder = TempDir::with_prefix("flare-test-").unwrap();
    let file = folder.path().join("output");
    let output = File::create(&file).unwrap();
    let process = Process::start(command.stdout(output.try_clone().unwrap()).stderr(output));
    let status = process.ended().await;
    let output = fs::read_to_string(file).unwrap();
    Ended { status: status.unwrap_or_else(|| panic!("does not end: {command:?}\n{output}")), output }
}
