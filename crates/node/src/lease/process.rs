//! A process as others on the same machine can know it, so that one that was killed is not waited for.

use std::fs;

use serde::{Deserialize, Serialize};

/// Where numbers of processes mean the same, and the process there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ProcessId {
    /// This start of the machine.
    boot: String,
    /// The namespace of the numbers: containers have their own.
    namespace: String,
    number: u32,
    /// When it began, in ticks since the machine did: numbers are used again.
    began: u64,
}

impl ProcessId {
    /// This process; none where the system does not say.
    pub fn own() -> Option<Self> {
        let number = std::process::id();
        Some(Self {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned(),
            namespace: fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned(),
            number,
            began: began(number)?,
        })
    }

    /// Whether the process has ended, for certain.
    pub fn has_ended(&self) -> bool {
        Self::own().is_some_and(|own| {
            own.boot == self.boot && own.namespace == self.namespace && began(self.number) != Some(self.began)
        })
    }
}

/// The name in parentheses may hold anything; the start is the twentieth field after it.
fn began(number: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A zombie does nothing any more.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_when_its_number_is_free_or_used_again() {
        let own = ProcessId::own().unwrap();
        assert!(!own.has_ended());
        assert!(ProcessId { began: own.began + 1, ..own.clone() }.has_ended());
        assert!(ProcessId { number: u32::MAX, ..own.clone() }.has_ended());
        assert!(!ProcessId { boot: "another".into(), number: u32::MAX, ..own.clone() }.has_ended());
        assert!(!ProcessId { namespace: "another".into(), number: u32::MAX, ..own }.has_ended());
    }
}
