//! Waits until the machine is quiet, as far as process accounting can tell.

use std::time::{Duration, Instant};

/// Waits for up to half a minute until others use less than a tenth of a core; `false` if they never do.
pub(crate) fn wait() -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let before = busy_ticks();
        std::thread::sleep(Duration::from_millis(200));
        let (Some(before), Some(after)) = (before, busy_ticks()) else {
            return true;
        };
        // A tick is a hundredth of a second: two in 200 ms are a tenth of a core.
        if after.saturating_sub(before) <= 2 {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
    }
}

/// Ticks that all cores have worked; `None` where that cannot be read.
fn busy_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system; idle and waiting for disks are not work.
    Some(fields.iter().take(3).sum::<u64>() + fields.iter().skip(5).take(2).sum::<u64>())
}
