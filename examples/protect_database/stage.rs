//! Where it plays: a folder of its own for the files, and transactions that take the same time on any machine.

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
        history: i64,
        connections: usize,
    ) -> Result<Database, String> {
        let path = self.folder.join(name);
        Database::create(path.clone(), history, connections)
            .map_err(|error| format!("cannot make the database {}: {error}", path.display()))
    }

    /// Finds how many payments to read in each transaction so that one takes [`TARGET`] by itself.
    ///
    /// Without it a fast machine would shrug the burst off, and a slow one could not keep the default rate.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn calibrate(&self) -> Result<Calibration, String> {
        let alone = |history: i64| {
            let tried = self.database(TRIAL, history, 1)?.time_alone(TRIALS);
            let time = tried.map_err(|error| format!("cannot write to {TRIAL}: {error}"))?;
            // Its log went into the file, and away, when the only connection was closed.
            let removed = fs::remove_file(self.folder.join(TRIAL));
            removed.map_err(|error| format!("cannot remove {TRIAL}: {error}"))?;
            Ok::<_, String>(time)
        };
        let bare = alone(0)?;
        let mut history = PROBE;
        for _ in 0..ROUNDS {
            let reading = alone(history)?.saturating_sub(bare).as_secs_f64().max(1e-6);
            let wanted = TARGET.saturating_sub(bare).as_secs_f64();
            history = ((history as f64 * wanted / reading) as i64).clamp(1, MOST_HISTORY);
        }
        Ok(Calibration {
            history,
            alone: alone(history)?,
        })
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

/// What a transaction does, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calibration {
    /// Payments in the file, all read by each transaction.
    pub(crate) history: i64,
    /// Time of a transaction that has the file to itself.
    pub(crate) alone: Duration,
}

impl Calibration {
    /// Transactions per second of one writer alone.
    pub(crate) fn capacity(&self) -> f64 {
        1.0 / self.alone.as_secs_f64()
    }

    /// Rate that leaves the database idle for two fifths of its time or more: 250/s where a write takes 2 ms, less where disks are slow.
    pub(crate) fn rate(&self) -> u64 {
        ((self.capacity() * SHARE) as u64).clamp(LEAST_RATE, USUAL_RATE)
    }
}

/// Time of a transaction alone; about 500/s, so that a burst of 1,000/s is too much.
const TARGET: Duration = Duration::from_micros(2_000);
const TRIAL: &str = "trial.db";
const TRIALS: usize = 40;
/// Payments of the first trial, and how often the number is bettered from there.
const PROBE: i64 = 20_000;
const ROUNDS: usize = 2;
/// 20 MB of payments; beyond it a file takes longer to make than to kill.
const MOST_HISTORY: i64 = 400_000;
/// Share of its time that the database is busy with what the queue lets out.
const SHARE: f64 = 0.6;
const USUAL_RATE: u64 = 250;
/// A burst of 2,000 still ends within a minute.
const LEAST_RATE: u64 = 40;
