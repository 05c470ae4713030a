//! What is followed, shown: on a terminal drawn anew, elsewhere a line per change.

use std::io::{ErrorKind, IsTerminal, Write};

use jiff::Timestamp;

use crate::cli::Failure;

/// Lines of a terminal that does not say how many it has.
const HEIGHT: usize = 24;

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
    /// Lines of the terminal.
    height: fn() -> Option<usize>,
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
            height: || terminal_size::terminal_size().map(|(_, rows)| rows.0.into()),
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
        let lines = (self.height)().unwrap_or(HEIGHT).saturating_sub(1).max(2);
        let shown = match (self.is_terminal, self.output) {
            (true, _) => fitting(&of.whole(now), lines),
            (false, Output::Table) => of.line(),
            (false, Output::Json) => of.json()?,
        };
        if shown == self.last {
            return Ok(None);
        }
        let text = match (self.is_terminal, self.output) {
            (true, _) => redrawn(self.last.lines().count().min(lines), &shown),
            (false, Output::Table) => format!("{} {shown}\n", now.strftime("%H:%M:%S")),
            (false, Output::Json) => format!("{shown}\n"),
        };
        self.last = shown;
        Ok(Some(text))
    }
}

/// So much of a text as a terminal has lines for: beyond its top nothing can be drawn anew.
fn fitting(text: &str, lines: usize) -> String {
    let all = text.lines().count();
    if all <= lines {
        return text.to_owned();
    }
    let shown = lines.saturating_sub(1);
    let mut cut = String::new();
    for line in text.lines().take(shown) {
        cut.push_str(line);
        cut.push('\n');
    }
    cut + &format!(
        "... and {} more lines; the terminal is too small\n",
        all - shown
    )
}

/// Puts a text in the place of the last lines. Lines are not wrapped meanwhile, so that each is one line.
fn redrawn(lines: usize, new: &str) -> String {
    let up = match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}A"),
    };
    format!("\x1b[?7l{up}\x1b[J{new}\x1b[?7h")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(usize, &'static str);

    impl Shown for Lines {
        fn whole(&self, _: Timestamp) -> String {
            (0..self.0).map(|n| format!("{} {n}\n", self.1)).collect()
        }

        fn line(&self) -> String {
            unreachable!("it is a terminal")
        }

        fn json(&self) -> Result<String, Failure> {
            unreachable!("it is a terminal")
        }
    }

    #[test]
    fn what_is_drawn_anew_fits_on_the_terminal() {
        // Lines of the terminal; of a text and of that in its place: those drawn, and how far up it goes.
        for (height, first, second) in [
            (Some(10), (4, 4), (5, 5, 4)),
            (Some(10), (9, 9), (9, 9, 9)),
            (Some(10), (50, 9), (60, 9, 9)),
            (Some(10), (50, 9), (3, 3, 9)),
            (None, (50, 23), (50, 23, 23)),
            (Some(1), (50, 2), (50, 2, 2)),
        ] {
            let mut screen = Screen::new(Output::Table, true);
            screen.height = match height {
                Some(10) => || Some(10),
                Some(_) => || Some(1),
                None => || None,
            };
            let mut draw = |lines, word| {
                let text = screen
                    .next(&Lines(lines, word), Timestamp::UNIX_EPOCH)
                    .unwrap();
                text.unwrap()
            };
            let text = draw(first.0, "old");
            assert_eq!(text.lines().count() - 1, first.1, "{text:?}");
            assert!(!text.contains("A\x1b[J"), "{text:?}");
            assert_eq!(text.contains("more lines"), first.0 > first.1, "{text:?}");
            let text = draw(second.0, "new");
            assert_eq!(text.lines().count() - 1, second.1, "{text:?}");
            assert!(
                text.contains(&format!("\x1b[{}A\x1b[J", second.2)),
                "{text:?}"
            );
        }
    }
}
