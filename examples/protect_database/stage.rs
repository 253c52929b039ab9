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
    pub(crate) fn database(&self, name: &str, connections: usize) -> Result<Database, String> {
        let path = self.folder.join(name);
        Database::create(path.clone(), connections)
            .map_err(|error| format!("cannot make the database {}: {error}", path.display()))
    }

    /// Finds how long one transaction takes that has the file to itself.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn time_alone(&self) -> Result<Duration, String> {
        let tried = self.database(TRIAL, 1)?.time_alone(TRIALS);
        let time = tried.map_err(|error| format!("cannot write to {TRIAL}: {error}"))?;
        // Its log went into the file, and away, when the only connection was closed.
        let removed = fs::remove_file(self.folder.join(TRIAL));
        removed.map_err(|error| format!("cannot remove {TRIAL}: {error}"))?;
        Ok(time)
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

/// Rate that suits a database whose transactions take a time: 200/s up to 3.5 ms, less where disks are slow.
pub(crate) fn rate(alone: Duration) -> u64 {
    ((SHARE / alone.as_secs_f64()) as u64).clamp(LEAST_RATE, USUAL_RATE)
}

const TRIAL: &str = "trial.db";
const TRIALS: usize = 40;
/// Share of its time that the database may be busy with what the queue lets out.
const SHARE: f64 = 0.7;
const USUAL_RATE: u64 = 200;
/// A burst of 2,000 still ends within a minute.
const LEAST_RATE: u64 = 40;
