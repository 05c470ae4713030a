//! The body of an answer as a thread reads it: from a channel, unpacked, counted and hashed.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc::Receiver;
use windlass_status::Digest;

/// How many chunks lie between the connection and the parser.
pub(super) const CHUNKS: usize = 4;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A piece of a body, or the word that it is complete: a channel that closes without has broken off.
pub(super) enum Chunk {
    Bytes(Vec<u8>),
    End,
}

/// Reads what comes through a channel.
pub(super) struct Body {
    chunks: Receiver<Chunk>,
    chunk: Vec<u8>,
    read: usize,
    ended: bool,
}

impl Body {
    pub(super) fn new(chunks: Receiver<Chunk>) -> Self {
        Self {
            chunks,
            chunk: Vec::new(),
            read: 0,
            ended: false,
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(buffer.len());
        let (target, source) = (buffer.split_at_mut(length).0, available.split_at(length).0);
        target.copy_from_slice(source);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.read >= self.chunk.len() && !self.ended {
            match self.chunks.blocking_recv() {
                Some(Chunk::Bytes(chunk)) => (self.chunk, self.read) = (chunk, 0),
                Some(Chunk::End) => self.ended = true,
                None => return Err(io::Error::other("the body broke off")),
            }
        }
        Ok(self.chunk.get(self.read..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount;
    }
}

/// A body whose first bytes were looked at.
type Start = io::Chain<io::Cursor<Vec<u8>>, Body>;

enum Packing {
    None(Start),
    Gzip(Box<MultiGzDecoder<BufReader<Start>>>),
}

/// The document in a body: unpacked if it begins as gzip does, no longer than its limit.
pub(super) struct Decoded {
    packing: Packing,
    hasher: Sha256,
    bytes: u64,
    limit: u64,
}

impl Decoded {
    /// # Errors
    ///
    /// If the body breaks off at its very beginning.
    pub(super) fn new(mut body: Body, limit: u64) -> io::Result<Self> {
        let mut start = Vec::new();
        while start.len() < GZIP.len() {
            let available = body.fill_buf()?;
            let taken = available.len().min(GZIP.len() - start.len());
            start.extend(available.iter().take(taken));
            if taken == 0 {
                break;
            }
            body.consume(taken);
        }
        let packed = start == GZIP;
        let whole = io::Cursor::new(start).chain(body);
        let packing = if packed {
            Packing::Gzip(Box::new(MultiGzDecoder::new(BufReader::new(whole))))
        } else {
            Packing::None(whole)
        };
        Ok(Self {
            packing,
            hasher: Sha256::new(),
            bytes: 0,
            limit,
        })
    }

    /// Whether the document is longer than its limit.
    pub(super) fn is_over(&self) -> bool {
        self.bytes > self.limit
    }

    /// Digest and size of what was read.
    pub(super) fn finish(self) -> (Digest, u64) {
        (Digest::of_hash(self.hasher.finalize().into()), self.bytes)
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = match &mut self.packing {
            Packing::None(body) => body.read(buffer)?,
            Packing::Gzip(decoder) => decoder.read(buffer)?,
        };
        self.bytes += length as u64;
        if self.is_over() {
            return Err(io::Error::other("the document is too large"));
        }
        self.hasher.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}
