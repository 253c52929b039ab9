//! Where it plays: a folder of its own for the files, and how fast the machine is.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::database::Database;

/// A fresh folder among the temporary files, removed when dropped unless it is kept.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: PathBuf,
    keep: bool,
}

impl Stage {
    /// Makes the folder.
    ///
    /// # Errors
    /// A message that names it.
    pub(crate) fn create(keep: bool) -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let folder = parent.join(format!("protect-database-{}", std::process::id()));
        // Never into a folder that is there already: it would be removed at the end.
        fs::create_dir(&folder).map_err(|error| {
            format!(
                "cannot make the folder {} for the database: {error} (TMPDIR says where)",
                folder.display()
            )
        })?;
        Ok(Self { folder, keep })
    }

    /// Makes a database in it.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn database(
        &self,
        name: &str,
        connections: usize,
        history: i64,
    ) -> Result<Database, String> {
        let path = self.folder.join(name);
        Database::create(path.clone(), connections, history)
            .map_err(|error| format!("cannot make the database {}: {error}", path.display()))
    }

    /// Finds how long a transaction takes that has the file to itself, and how many past payments it takes for that.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn rehearse(&self) -> Result<Rehearsal, String> {
        let mut history = HISTORY;
        loop {
            let trial = self.database(TRIAL, 1, history)?;
            let timed = trial.time_alone(TRIALS);
            let alone = timed.map_err(|error| format!("cannot write to {TRIAL}: {error}"))?;
            // Its log goes into the file, and away, when the only connection is closed.
            drop(trial);
            let removed = fs::remove_file(self.folder.join(TRIAL));
            removed.map_err(|error| format!("cannot remove {TRIAL}: {error}"))?;
            if alone >= LEAST_TIME || history == MOST_HISTORY {
                return Ok(Rehearsal { history, alone });
            }
            // A machine so fast has a shop with a longer past.
            let longer = USUAL_TIME.as_secs_f64() / alone.as_secs_f64();
            history = ((history as f64 * longer) as i64).min(MOST_HISTORY);
        }
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it stays.
    pub(crate) fn is_kept(&self) -> bool {
        self.keep
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.keep {
            // Nobody is left to tell if the folder of a finished run cannot be removed.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// What the rehearsal found out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehearsal {
    /// Past payments in the file.
    pub(crate) history: i64,
    /// Mean time of a write that has the file to itself, as fast as the machine is just now.
    pub(crate) alone: Duration,
}

impl Rehearsal {
    /// Rate that leaves the database idle for most of its time, within bounds.
    pub(crate) fn rate(&self) -> u64 {
        let rate = (SHARE / self.alone.as_secs_f64()) as u64;
        (rate / 10 * 10).clamp(LEAST_RATE, MOST_RATE)
    }
}

const TRIAL: &str = "trial.db";
const TRIALS: u32 = 100;
/// Past payments, which each write reads: that takes 2 to 3 ms, so one file takes 300 to 500 writes in a second.
const HISTORY: i64 = 100_000;
const MOST_HISTORY: i64 = 2_000_000;
const LEAST_TIME: Duration = Duration::from_millis(2);
const USUAL_TIME: Duration = Duration::from_micros(2_500);
/// Share of its time that the database may be busy with what the queue lets out: the rest is for a machine that has
/// more to do now and then.
const SHARE: f64 = 0.25;
/// A burst of 2,000 still ends within a minute.
const LEAST_RATE: u64 = 60;
const MOST_RATE: u64 = 100;
