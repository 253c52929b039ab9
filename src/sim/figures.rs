//! Numbers as people read them.

/// A time for people: three digits and the unit they expect.
pub(super) fn brief(seconds: f64) -> String {
    let millis = seconds * 1e3;
    match millis {
        _ if !seconds.is_finite() => "never".to_owned(),
        0.0 => "0 ms".to_owned(),
        ..0.1 => format!("{:.1} us", millis * 1e3),
        ..10.0 => format!("{millis:.2} ms"),
        ..100.0 => format!("{millis:.1} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        ..100_000.0 => format!("{seconds:.2} s"),
        ..7_200_000.0 => format!("{:.1} min", seconds / 60.0),
        ..172_800_000.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// A share for people: what is not zero is not shown as zero.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent @ ..0.01 => format!("{percent:.1e} %"),
        percent @ ..1.0 => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}
