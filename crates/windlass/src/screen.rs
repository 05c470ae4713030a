//! What is followed, shown: on a terminal drawn anew, elsewhere a line per change.

use std::io::{ErrorKind, IsTerminal, Write};

use jiff::Timestamp;

use crate::cli::Failure;

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs: an object per thing that is shown; while something is followed, one per line and change.
    Json,
}

/// Something that is followed, as it is now.
pub trait Shown {
    /// All of it, for a terminal.
    fn whole(&self, now: Timestamp) -> String;
    /// In a line, for people.
    fn line(&self) -> String;
    /// In a line, for programs.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    fn json(&self) -> Result<String, Failure>;
}

/// Who reads what is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    Present,
    Gone,
}

/// Where something is shown.
pub struct Screen {
    output: Output,
    pub is_terminal: bool,
    /// What stands there.
    last: String,
}

impl Screen {
    /// Of standard output.
    pub fn here(output: Output) -> Self {
        Self::new(output, std::io::stdout().is_terminal())
    }

    pub fn new(output: Output, is_terminal: bool) -> Self {
        Self {
            output,
            // A terminal may well be read by a program, by way of jq.
            is_terminal: is_terminal && output == Output::Table,
            last: String::new(),
        }
    }

    /// Shows it, unless nothing has changed.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn show(&mut self, shown: &dyn Shown, now: Timestamp) -> Result<Reader, Failure> {
        let Some(text) = self.next(shown, now)? else {
            return Ok(Reader::Present);
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(Reader::Present),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// What has to be written; none when nothing has changed.
    pub fn next(&mut self, of: &dyn Shown, now: Timestamp) -> Result<Option<String>, Failure> {
        let shown = match (self.is_terminal, self.output) {
            (true, _) => of.whole(now),
            (false, Output::Table) => of.line(),
            (false, Output::Json) => of.json()?,
        };
        if shown == self.last {
            return Ok(None);
        }
        let text = match (self.is_terminal, self.output) {
            (true, _) => redrawn(&self.last, &shown),
            (false, Output::Table) => format!("{} {shown}\n", now.strftime("%H:%M:%S")),
            (false, Output::Json) => format!("{shown}\n"),
        };
        self.last = shown;
        Ok(Some(text))
    }
}

/// Puts one text in the place of another. Lines are not wrapped meanwhile, so that each is one line.
fn redrawn(old: &str, new: &str) -> String {
    let up = match old.lines().count() {
        0 => String::new(),
        lines => format!("\x1b[{lines}A"),
    };
    format!("\x1b[?7l{up}\x1b[J{new}\x1b[?7h")
}
