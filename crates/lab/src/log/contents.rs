//! What a first pass over a log finds: the legend, the frames, and how the file ends.

use link::record::{Block, End, FrameRecord, ReadError, Reader, Row};

use super::legend::Legend;

/// A log, its frames at hand. Decisions stay in the file and are read in a second pass.
#[derive(Clone, Debug)]
pub(crate) struct Contents<'a> {
    reader: Reader<'a>,
    pub(crate) legend: Legend,
    /// In the order of their numbers.
    frames: Vec<FrameRecord<'a>>,
    pub(crate) end: Option<End>,
    pub(crate) truncated_at: Option<u64>,
    pub(crate) malformed_blocks: u64,
}

impl<'a> Contents<'a> {
    pub(crate) fn read(reader: Reader<'a>) -> Self {
        let mut contents = Self {
            reader: reader.clone(),
            legend: Legend::default(),
            frames: Vec::new(),
            end: None,
            truncated_at: None,
            malformed_blocks: 0,
        };
        for block in reader {
            contents.take(block);
        }
        // Mostly sorted as they come. The first of several with one number stays the first.
        contents.frames.sort_by_key(|frame| frame.number);
        contents
    }

    fn take(&mut self, block: Result<Block<'a>, ReadError>) {
        match block {
            Ok(Block::Legend(json)) => match Legend::read(json) {
                Some(legend) => self.legend = legend,
                None => self.malformed_blocks += 1,
            },
            Ok(Block::Frame(frame)) => self.frames.push(frame),
            Ok(Block::End(end)) => self.end = Some(end),
            Err(ReadError::Truncated { at }) => self.truncated_at = Some(at),
            Err(_) => self.malformed_blocks += 1,
            Ok(_) => {}
        }
    }

    /// The frame of that number, if it is in the log.
    pub(crate) fn frame(&self, number: u64) -> Option<&FrameRecord<'a>> {
        let at = self.frames.partition_point(|frame| frame.number < number);
        self.frames.get(at).filter(|frame| frame.number == number)
    }

    /// The place of that frame among all.
    pub(crate) fn place(&self, number: u64) -> Option<u32> {
        let at = self.frames.partition_point(|frame| frame.number < number);
        let found = self.frames.get(at).filter(|frame| frame.number == number);
        found.and_then(|_| u32::try_from(at).ok())
    }

    /// All frames in the order of their numbers.
    pub(crate) fn frames(&self) -> &[FrameRecord<'a>] {
        &self.frames
    }

    /// All decisions in the file's order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> + use<'a> {
        self.reader
            .clone()
            .filter_map(Result::ok)
            .flat_map(|block| {
                let rows = match block {
                    Block::Decisions(rows) => Some(rows),
                    _ => None,
                };
                rows.into_iter().flatten()
            })
    }
}
