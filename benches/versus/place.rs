//! Where and with what a run took place, so that its table can be quoted.

/// One line: the processor, its threads, the compiler's target, and the release of each peer, named as in the lock file.
pub(crate) fn line(peers: &[&str]) -> String {
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "an unnamed processor".into());
    let peers: Vec<String> = peers
        .iter()
        .filter_map(|name| Some(format!("{name} {}", release(name)?)))
        .collect();
    format!(
        "{processor}, {threads} threads, {} {}; {}",
        std::env::consts::OS,
        std::env::consts::ARCH,
        peers.join(", ")
    )
}

/// The release of a package in the lock file; the newest one where there are several.
fn release(name: &str) -> Option<&'static str> {
    const LOCK: &str = include_str!("../../Cargo.lock");
    let wanted = format!("name = \"{name}\"");
    let mut lines = LOCK.lines();
    let mut found = None;
    while let Some(line) = lines.next() {
        if line == wanted {
            let version = lines.next()?;
            found = version
                .strip_prefix("version = \"")
                .and_then(|rest| rest.strip_suffix('"'));
        }
    }
    found
}
