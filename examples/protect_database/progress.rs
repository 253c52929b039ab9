//! A line that moves while a run goes on, on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::measure::Measure;

/// The line of one run; it goes away when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    task: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows commits and failures of a run until dropped.
    pub(crate) fn show(name: &'static str, jobs: u64, measure: &Arc<Measure>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self {
                bar: ProgressBar::hidden(),
                task: None,
            };
        }
        let style = ProgressStyle::with_template("{msg:>28} {wide_bar} {pos}/{len} {elapsed}");
        let bar = ProgressBar::new(jobs).with_style(style.expect("the template is well formed"));
        let (shown, measure) = (bar.clone(), Arc::clone(measure));
        let task = tokio::spawn(async move {
            loop {
                let (committed, failed) = measure.settled();
                shown.set_message(format!("{name}: {failed} failed"));
                shown.set_position(committed + failed);
                tokio::time::sleep(REDRAW).await;
            }
        });
        Self {
            bar,
            task: Some(task),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.bar.finish_and_clear();
    }
}

const REDRAW: Duration = Duration::from_millis(100);
