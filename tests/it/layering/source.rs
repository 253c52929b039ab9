//! A source file as tokens and paths: as much of Rust's grammar as the layering rules need.

use std::fmt;

/// A word or a sign, outside comments and literals.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    text: String,
    pub(crate) line: usize,
    /// Within something that is compiled for unit tests only.
    pub(crate) in_test: bool,
    /// Modules written within the file around this token.
    modules: Vec<String>,
}

/// One path that the source names; groups in braces are taken apart.
#[derive(Debug)]
pub(crate) struct UsePath {
    root: &'static str,
    segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) in_test: bool,
}

impl UsePath {
    /// The segment at `index`, or nothing beyond the end.
    pub(crate) fn segment(&self, index: usize) -> &str {
        self.segments.get(index).map_or("", String::as_str)
    }

    pub(crate) fn starts_with(&self, segments: &[&str]) -> bool {
        self.segments.iter().zip(segments).all(|(a, b)| a == b)
            && self.segments.len() >= segments.len()
    }
}

impl fmt::Display for UsePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = (!self.root.is_empty()).then_some(self.root);
        let segments = self.segments.iter().map(String::as_str);
        let all: Vec<&str> = root.into_iter().chain(segments).collect();
        f.write_str(&all.join("::"))
    }
}

pub(crate) struct Source {
    tokens: Vec<Token>,
    /// The file's own module, counted from the root of the crate.
    module: Vec<String>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: Vec<String> = inner.split('/').map(String::from).collect();
        if module.len() > 1 {
            module.pop_if(|last| last == "mod");
        }
        let test_file = module.last().is_some_and(|last| last == "tests");
        let mut tokens = lex(text);
        place(&mut tokens, test_file);
        Self { tokens, module }
    }

    /// File or folder right under `src`.
    pub(crate) fn room(&self) -> &str {
        &self.module[0]
    }

    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Token> {
        self.tokens.iter().filter(move |token| token.text == name)
    }

    /// Lines on which these tokens follow each other.
    pub(crate) fn sequence(&self, texts: &[&str]) -> Vec<usize> {
        self.tokens
            .windows(texts.len())
            .filter(|window| window.iter().zip(texts).all(|(a, b)| a.text == *b))
            .map(|window| window[0].line)
            .collect()
    }

    /// Paths that begin with `root`, with that root as their first segment.
    pub(crate) fn paths(&self, root: &str) -> Vec<UsePath> {
        let mut found = Vec::new();
        for start in self.starts().filter(|at| self.text(*at) == root) {
            self.expand(start, Vec::new(), "", &mut found);
        }
        found
    }

    /// Paths into this crate, counted from its root, whether written with `crate`, `self` or `super`.
    pub(crate) fn crate_paths(&self) -> Vec<UsePath> {
        let mut found = Vec::new();
        for start in self.starts() {
            let mut base = match self.text(start) {
                "crate" => Vec::new(),
                "self" | "super" => self.module_at(start),
                _ => continue,
            };
            let mut at = start;
            while ["crate", "self", "super"].contains(&self.text(at)) {
                if self.text(at) == "super" {
                    base.pop();
                }
                at += 2;
            }
            self.expand(at, base, "crate", &mut found);
        }
        found
    }

    /// Tokens at which a path of two segments or more may begin.
    fn starts(&self) -> impl Iterator<Item = usize> {
        (0..self.tokens.len()).filter(|at| {
            self.text(at + 1) == "::" && (*at == 0 || self.text(at.wrapping_sub(1)) != "::")
        })
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn module_at(&self, at: usize) -> Vec<String> {
        let inline = self.tokens[at].modules.iter().cloned();
        self.module.iter().cloned().chain(inline).collect()
    }

    /// Reads the rest of a path, or of each path of a group, and returns the token after it.
    fn expand(
        &self,
        mut at: usize,
        mut segments: Vec<String>,
        root: &'static str,
        found: &mut Vec<UsePath>,
    ) -> usize {
        let first = at.min(self.tokens.len() - 1);
        loop {
            match self.text(at) {
                "{" => {
                    at += 1;
                    while !["}", ""].contains(&self.text(at)) {
                        at = self.expand(at, segments.clone(), root, found).max(at + 1);
                        // Over `as name` and the comma.
                        while ![",", "}", ""].contains(&self.text(at)) {
                            at += 1;
                        }
                        at += usize::from(self.text(at) == ",");
                    }
                    return at + 1;
                }
                "self" | "*" => at += 1,
                word if is_word(word) => {
                    segments.push(word.to_string());
                    at += 1;
                }
                _ => {}
            }
            if self.text(at) != "::" {
                break;
            }
            at += 1;
        }
        let Token { line, in_test, .. } = self.tokens[first];
        found.push(UsePath {
            root,
            segments,
            line,
            in_test,
        });
        at
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Tells each token in which inline module it stands, and whether that is for tests only.
fn place(tokens: &mut [Token], test_file: bool) {
    let mut open: Vec<(Option<String>, bool)> = Vec::new();
    let mut for_test = false;
    for at in 0..tokens.len() {
        let in_test = test_file || open.iter().any(|(_, test)| *test);
        tokens[at].in_test = in_test || for_test;
        tokens[at].modules = open.iter().filter_map(|(name, _)| name.clone()).collect();
        let before = |back: usize| at.checked_sub(back).map_or("", |at| &tokens[at].text);
        match tokens[at].text.as_str() {
            "cfg" if before(1) == "[" => {
                let attribute = tokens[at..].iter().map(|token| token.text.as_str());
                let words: Vec<&str> = attribute.take_while(|text| *text != "]").collect();
                for_test |= words.contains(&"test") && !words.contains(&"not");
            }
            "{" => {
                let name = (before(2) == "mod").then(|| before(1).to_string());
                open.push((name, for_test));
                for_test = false;
            }
            "}" => {
                open.pop();
                for_test = false;
            }
            ";" => for_test = false,
            _ => {}
        }
    }
}

/// Splits a source into words and signs; comments and literals are left out.
fn lex(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let rest = &chars[at..];
        let length = match skipped(rest) {
            Some(length) => length.min(rest.len()),
            None => {
                let length = match rest {
                    [':', ':', ..] => 2,
                    [first, ..] if is_word(&first.to_string()) => word(rest),
                    _ => 1,
                };
                tokens.push(Token {
                    text: rest[..length].iter().collect(),
                    line,
                    in_test: false,
                    modules: Vec::new(),
                });
                length
            }
        };
        line += rest[..length].iter().filter(|c| **c == '\n').count();
        at += length;
    }
    tokens
}

/// Length of the space, comment or literal that stands here, if one does.
fn skipped(rest: &[char]) -> Option<usize> {
    let until = |from: usize, end: char| rest.iter().skip(from).take_while(|c| **c != end).count();
    Some(match rest {
        [c, ..] if c.is_whitespace() => 1,
        ['/', '/', ..] => until(0, '\n'),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => string(rest),
        ['\'', '\\', ..] => 4 + until(3, '\''),
        ['\'', _, '\'', ..] => 3,
        ['r', ..] | ['b' | 'c', 'r', ..] => {
            let prefix = word(rest);
            let hashes = rest.iter().skip(prefix).take_while(|c| **c == '#').count();
            let open = prefix + hashes;
            if prefix > 2 || rest.get(open) != Some(&'"') {
                return None;
            }
            let end: Vec<char> = ['"'].into_iter().chain(vec!['#'; hashes]).collect();
            let body = rest[open + 1..].windows(end.len());
            open + 1 + body.take_while(|window| *window != end).count() + end.len()
        }
        _ => return None,
    })
}

fn word(rest: &[char]) -> usize {
    let is_part = |c: &&char| c.is_alphanumeric() || **c == '_';
    rest.iter().take_while(is_part).count()
}

/// Block comments nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}
