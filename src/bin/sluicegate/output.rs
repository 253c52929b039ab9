//! Files that are written whole or not at all.

use std::fs;
use std::path::Path;

pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), String> {
    let name = path.display();
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.tmp", std::process::id()));
    let draft = Path::new(&draft);
    let written = fs::write(draft, text).and_then(|()| fs::rename(draft, path));
    written.map_err(|error| {
        let _ = fs::remove_file(draft);
        format!("{name} cannot be written: {error}")
    })
}
