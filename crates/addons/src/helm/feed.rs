//! From a document's bytes to its pieces: JSON if it begins with `{`, else YAML.
//!
//! References (`*name`) to scalars are followed. Those to maps and lists are not: nothing that a document
//! repeats is ever unfolded, however it is nested.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, InputIoError, Parser, ScalarStyle, ScanError};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::index::{Index, Piece, Trouble};

/// Longest scalar or other stretch without structure, in characters: it has to be in memory as a whole.
const LONGEST: usize = 1024 * 1024;
const BUFFER: usize = 64 * 1024;
/// How deep the YAML parser goes by itself; the index stops earlier.
const DEEPEST: usize = 128;
/// Most references in one document.
const REFERENCES: usize = 1000;
/// Most characters of the scalars that are remembered for them.
const REMEMBERED: usize = 256 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Feeds a document to an index.
pub(super) fn feed(document: impl Read, index: &mut Index<'_>) -> Result<(), Trouble> {
    let mut document = BufReader::with_capacity(BUFFER, document);
    let first = first_byte(&mut document).map_err(|error| Trouble::no_index(error.to_string()))?;
    match first {
        None => Err(Trouble::no_index("it is empty")),
        Some(b'<') => Err(Trouble::no_index("it is a web page or XML")),
        Some(b'{') => json(document, index),
        Some(_) => yaml(document, index),
    }
}

/// The first byte that is no space; what is before it stays, for it may be indentation.
fn first_byte(document: &mut impl BufRead) -> io::Result<Option<u8>> {
    if document.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        document.consume(BYTE_ORDER_MARK.len());
    }
    loop {
        let available = document.fill_buf()?;
        if available.is_empty() {
            return Ok(None);
        }
        let blank = available
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
        let blank = blank.count();
        if let Some(byte) = available.get(blank) {
            return Ok(Some(*byte));
        }
        document.consume(blank);
    }
}

fn yaml(document: impl Read, index: &mut Index<'_>) -> Result<(), Trouble> {
    let stretch = Rc::new(Cell::new(0));
    let chars = Chars {
        document: Watched::new(document, &stretch),
    };
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
    };
    let parser = Parser::new_from_fallible_iter_with_options(chars, options);
    let mut scalars: HashMap<usize, (String, ScalarStyle)> = HashMap::new();
    let (mut references, mut remembered) = (0, 0);
    for event in parser {
        let (event, _) = event.map_err(|error| Trouble::NoIndex(explain(&error)))?;
        stretch.set(0);
        match &event {
            Event::MappingStart(..) => index.take(Piece::Map)?,
            Event::SequenceStart(..) => index.take(Piece::List)?,
            Event::MappingEnd | Event::SequenceEnd => index.take(Piece::End)?,
            Event::Scalar(text, style, anchor, _) => {
                index.take(scalar(text, *style))?;
                let fits = remembered + text.len() <= REMEMBERED && scalars.len() < REFERENCES;
                if *anchor != 0 && fits {
                    remembered += text.len();
                    scalars.insert(*anchor, (text.to_string(), *style));
                }
            }
            Event::Alias(anchor) => {
                references += 1;
                if references > REFERENCES {
                    let message = format!("it has more than {REFERENCES} references");
                    return Err(Trouble::NoIndex(message));
                }
                let piece = scalars.get(anchor);
                let piece = piece.map(|(text, style)| scalar(text, *style));
                index.take(piece.unwrap_or(Piece::Unknown))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn scalar(text: &str, style: ScalarStyle) -> Piece<'_> {
    let null = matches!(text, "" | "~" | "null" | "Null" | "NULL");
    if null && style == ScalarStyle::Plain {
        Piece::Null
    } else {
        Piece::Text(text)
    }
}

/// What the parser says, with the innermost cause where that is one of reading.
fn explain(error: &ScanError) -> String {
    match error.kind() {
        ErrorKind::InputIo { error } => error.message().to_owned(),
        _ => format!("{error}"),
    }
}

/// Characters of a document in UTF-8.
struct Chars<R> {
    document: Watched<R>,
}

impl<R: Read> Iterator for Chars<R> {
    type Item = Result<char, ErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.document.byte()? {
            Ok(byte) => byte,
            Err(error) => return Some(Err(unreadable(error))),
        };
        let length = match first {
            0..0x80 => return Some(Ok(char::from(first))),
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let mut bytes = [first, 0, 0, 0];
        for byte in bytes.iter_mut().take(length).skip(1) {
            match self.document.byte() {
                Some(Ok(next)) => *byte = next,
                Some(Err(error)) => return Some(Err(unreadable(error))),
                None => break,
            }
        }
        let text = bytes
            .get(..length)
            .and_then(|bytes| str::from_utf8(bytes).ok());
        let found = text.and_then(|text| text.chars().next());
        Some(found.ok_or_else(|| ErrorKind::InputDecoding {
            message: "it is no UTF-8".to_owned(),
        }))
    }
}

fn unreadable(error: io::Error) -> ErrorKind {
    ErrorKind::InputIo {
        error: InputIoError::from(error),
    }
}

/// Counts what is read between two pieces, and stops where that gets too long.
struct Watched<R> {
    document: R,
    stretch: Rc<Cell<usize>>,
}

impl<R> Watched<R> {
    fn new(document: R, stretch: &Rc<Cell<usize>>) -> Self {
        Self {
            document,
            stretch: Rc::clone(stretch),
        }
    }
}

impl<R: Read> Watched<R> {
    /// The next byte; none at the end.
    fn byte(&mut self) -> Option<io::Result<u8>> {
        let mut byte = [0];
        match self.read(&mut byte) {
            Ok(0) => None,
            Ok(_) => Some(Ok(byte[0])),
            Err(error) => Some(Err(error)),
        }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.document.read(buffer)?;
        let stretch = self.stretch.get() + length;
        self.stretch.set(stretch);
        if stretch > LONGEST {
            return Err(io::Error::other("it has a text of more than 1 MiB"));
        }
        Ok(length)
    }
}

fn json(document: impl Read, index: &mut Index<'_>) -> Result<(), Trouble> {
    let stretch = Rc::new(Cell::new(0));
    let document = Watched::new(document, &stretch);
    let mut deserializer = serde_json::Deserializer::from_reader(document);
    let mut trouble = None;
    let feeder = Feeder {
        index,
        stretch: &stretch,
        trouble: &mut trouble,
    };
    let fed = feeder.deserialize(&mut deserializer);
    let fed = fed.and_then(|()| deserializer.end());
    match (trouble, fed) {
        (Some(trouble), _) => Err(trouble),
        (None, Err(error)) => Err(Trouble::no_index(error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// Feeds one JSON value to an index.
struct Feeder<'f, 'i> {
    index: &'f mut Index<'i>,
    stretch: &'f Cell<usize>,
    trouble: &'f mut Option<Trouble>,
}

impl<'i> Feeder<'_, 'i> {
    fn take<E: Error>(&mut self, piece: Piece<'_>) -> Result<(), E> {
        self.stretch.set(0);
        self.index.take(piece).map_err(|trouble| {
            *self.trouble = Some(trouble);
            E::custom("stopped")
        })
    }

    fn again(&mut self) -> Feeder<'_, 'i> {
        Feeder {
            index: self.index,
            stretch: self.stretch,
            trouble: self.trouble,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Feeder<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Feeder<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        self.take(Piece::Null)
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<(), E> {
        self.take(Piece::Text(if value { "true" } else { "false" }))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<(), E> {
        self.take(Piece::Text(&value.to_string()))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<(), E> {
        self.take(Piece::Text(&value.to_string()))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<(), E> {
        self.take(Piece::Text(&value.to_string()))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<(), E> {
        self.take(Piece::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.take(Piece::List)?;
        while list.next_element_seed(self.again())?.is_some() {}
        self.take(Piece::End)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.take(Piece::Map)?;
        while map.next_key_seed(self.again())?.is_some() {
            map.next_value_seed(self.again())?;
        }
        self.take(Piece::End)
    }
}
