//! Lines of a reader, none of them held beyond a bound.

use std::io::{self, BufRead};

#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    /// The line at hand, or as much of it as may be held.
    pub(super) text: Vec<u8>,
    /// Its number, from 1.
    pub(super) number: u64,
    /// The rest of a line that was too long is still to be passed over.
    in_tail: bool,
}

pub(super) enum Step {
    Line,
    /// Its start is in `text`; its end, if it has one, has not been looked for.
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self {
            reader,
            text: Vec::new(),
            number: 0,
            in_tail: false,
        }
    }

    pub(super) fn advance(&mut self) -> io::Result<Step> {
        while self.in_tail {
            self.in_tail = self.take()?.is_none();
        }
        self.text.clear();
        self.number += 1;
        let ended = loop {
            match self.take()? {
                None if self.text.len() > LONGEST => break false,
                None => {}
                Some(newline) if newline || !self.text.is_empty() => break true,
                Some(_) => {
                    self.number -= 1;
                    return Ok(Step::End);
                }
            }
        };
        if self.number == 1 && self.text.starts_with(b"\xEF\xBB\xBF") {
            self.text.drain(..3);
        }
        self.in_tail = !ended;
        let long = self.text.len() > LONGEST;
        Ok(if long { Step::TooLong } else { Step::Line })
    }

    /// Takes what the reader has of this line; at its end, says whether by a newline or by the end of the file.
    fn take(&mut self) -> io::Result<Option<bool>> {
        let chunk = loop {
            match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Asked again, as the borrow of the first answer would last too long.
                Ok(_) => break self.reader.fill_buf()?,
            }
        };
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        let ended = newline
            .is_some()
            .then_some(true)
            .or(chunk.is_empty().then_some(false));
        if !self.in_tail {
            let room = (LONGEST + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(&part[..part.len().min(room)]);
        }
        let used = part.len() + usize::from(newline.is_some());
        self.reader.consume(used);
        Ok(ended)
    }
}

/// Longest line that is read; servers refuse longer request lines.
pub(super) const LONGEST: usize = 64 * 1024;
