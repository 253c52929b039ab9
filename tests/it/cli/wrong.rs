//! What is wrong is refused by name, with exit code 2 and nothing on standard output.

use std::fs;

use super::{Folder, GATE, refuses, simulated};

#[test]
fn wrong_traces_are_refused_by_name() {
    let folder = Folder::new("traces");
    let mut far = String::new();
    (0..70_000).for_each(|second| far.push_str(&format!("{}\n", 1000 + second)));
    far.push_str("1\n");
    let files: [(&str, Vec<u8>, &str); 7] = [
        ("empty", Vec::new(), "is empty"),
        (
            "packed",
            b"\x1f\x8b\x08\x00rest".to_vec(),
            "is gzip data; unpack it first (gunzip)",
        ),
        ("junk", b"\x7fELF\x00\x00\x01".to_vec(), "is binary"),
        (
            "prose",
            b"once upon a time\n".to_vec(),
            "has no time in its first 1 lines",
        ),
        ("far", far.into_bytes(), "line 70001 lies"),
        ("endless", vec![b'a'; 1 << 20], "is longer than 65536 bytes"),
        ("nul", vec![0; 1 << 20], "is binary"),
    ];
    for (name, bytes, part) in files {
        let file = folder.file(name, bytes);
        refuses(
            &["simulate", "--config", GATE, "--trace", &file],
            &[&file, part],
        );
    }
    let file = folder.file("one.csv", "time,a\n2024-01-01 00:00:00,5\n");
    refuses(
        &[
            "simulate", "--config", GATE, "--trace", &file, "--cost", "b",
        ],
        &["has no column \"b\"; it has time, a"],
    );
    refuses(
        &[
            "simulate", "--config", GATE, "--trace", &file, "--from", "1h",
        ],
        &["no arrivals in the part"],
    );
    refuses(
        &["simulate", "--config", GATE, "--trace", "no/such"],
        &["no/such no such file"],
    );
    refuses(
        &["simulate", "--config", GATE],
        &["--trace FILE or --generate PATTERN"],
    );
    let json = simulated(&["--config", GATE, "--trace", &file]);
    assert_eq!(
        (
            &json["runs"][0]["arrivals"],
            &json["runs"][0]["outcomes"]["served"]
        ),
        (&1.into(), &1.into())
    );
    assert_eq!(json["runs"][0]["goodput_per_s"], 0.0);
}

#[test]
fn an_endless_line_ends_in_a_message() {
    let folder = Folder::new("endless");
    let path = folder.0.join("sparse.csv");
    let file = fs::File::create(&path).expect("a temporary file");
    // 4 GB that take no room on the disk, and no newline.
    file.set_len(4 << 30).expect("a sparse file");
    refuses(
        &[
            "simulate",
            "--config",
            GATE,
            "--trace",
            &path.display().to_string(),
        ],
        &["is binary"],
    );
}

#[test]
fn wrong_configurations_are_refused_at_their_line() {
    let folder = Folder::new("configs");
    let file = folder.file("a.toml", "[queue]\nrate = \"200 per second\"\n");
    refuses(
        &["check", &file],
        &[
            "a.toml: line 2, column 8",
            "expected a rate like \"200/s\"",
            "^^^",
        ],
    );
    let file = folder.file("b.toml", b"\x1f\x8b\x08");
    refuses(&["check", &file], &["is gzip data"]);
    let file = folder.file("c.toml", b"\xff\xfe[");
    refuses(&["check", &file], &["is no UTF-8 text"]);
    refuses(&["check", "no.toml"], &["no.toml no such file"]);
    refuses(&["check", "examples"], &["is a directory"]);
    let file = folder.file(
        "d.toml",
        "[queue]\nrate = \"200/s\"\nmax_depth = 10\nwatermarks = [2, 9]\n",
    );
    let sweep = |values: &str| {
        refuses(
            &[
                "simulate",
                "--config",
                &file,
                "--generate",
                "poisson 1/s",
                "--sweep",
                values,
            ],
            &["watermarks"],
        )
    };
    sweep("max_depth=5..10:5");
}

#[test]
fn wrong_options_are_told_what_would_be_right() {
    let size = ["size", "--rate", "1000/s", "--deadline", "1s"];
    refuses(&size, &["--offered RATE"]);
    refuses(&[&size[..], &["--edge", "5"]].concat(), &["180/s,50"]);
    refuses(&[&size[..], &["--offered", "much"]].concat(), &["200/s"]);
    refuses(
        &[
            "size",
            "--rate",
            "0/s",
            "--deadline",
            "1s",
            "--offered",
            "1/s",
        ],
        &["200/s"],
    );
    refuses(
        &["simulate", "--config", GATE, "--generate", "normal 5/s"],
        &["poisson 900/s"],
    );
    refuses(
        &[
            "simulate",
            "--config",
            GATE,
            "--generate",
            "poisson 5/s",
            "--speedup",
            "0",
        ],
        &["above 0"],
    );
    refuses(
        &[
            "simulate",
            "--config",
            GATE,
            "--generate",
            "poisson 5/s",
            "--sweep",
            "rate=5",
        ],
        &["rate=100..500:50"],
    );
    refuses(
        &[
            "simulate",
            "--config",
            GATE,
            "--generate",
            "poisson 5/s",
            "--latency",
            "20ms",
        ],
        &["fixed 20ms"],
    );
    refuses(&["frob"], &["frob"]);
    refuses(&[], &["Usage"]);
}
