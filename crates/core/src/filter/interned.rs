//! Equal texts share one program: ten thousand subscriptions with the same filter compile it once and keep it once.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{FilterError, Program};

/// The table is swept when it has grown to this, and then whenever it has doubled.
const SWEEP_AT_MIN: usize = 1024;

#[derive(Default)]
struct Table {
    programs: HashMap<Box<str>, Weak<Program>>,
    sweep_at: usize,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

/// The program of this text if one is in use, otherwise a new one.
pub(super) fn get_or_compile(
    text: &str,
    compile: impl FnOnce() -> Result<Program, FilterError>,
) -> Result<Arc<Program>, FilterError> {
    if let Some(program) = lock().get(text) {
        return Ok(program);
    }
    // Compiled without the lock: others need not wait for it.
    let program = Arc::new(compile()?);
    let mut table = lock();
    if let Some(program) = table.get(text) {
        return Ok(program);
    }
    table.programs.insert(text.into(), Arc::downgrade(&program));
    table.sweep();
    Ok(program)
}

/// Nothing panics while it holds the lock in a state that matters.
fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn get(&self, text: &str) -> Option<Arc<Program>> {
        self.programs.get(text).and_then(Weak::upgrade)
    }

    /// Forgets programs that nobody uses any more.
    fn sweep(&mut self) {
        if self.programs.len() >= self.sweep_at.max(SWEEP_AT_MIN) {
            self.programs.retain(|_, program| program.strong_count() > 0);
            self.sweep_at = 2 * self.programs.len();
        }
    }
}
