//! Decompression as a reader, in bounded memory: gzip's window has 32 KiB; a zstd file states its
//! own, believed up to [`ZSTD_WINDOW_BYTES_MAX`], and so does an xz file ([`XZ_KIB_MAX`]).

use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder as Lz4Decoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::file::Compression;

/// The compression that a file with these first bytes has.
pub(crate) fn by_magic(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or one to skip (RFC 8878 sections 3.1.1 and 3.1.2).
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0x04, 0x22, 0x4d, 0x18, ..] => Compression::Lz4,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        _ => Compression::None,
    }
}

/// What `source` is when decompressed. All members or frames of a file count, one after the other.
pub(crate) fn reader(
    compression: Compression,
    source: impl Read + Send + 'static,
) -> Box<dyn Read + Send> {
    match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(MultiGzDecoder::new(source)),
        Compression::Zstd => Box::new(Zstd::new(source)),
        Compression::Lz4 => Box::new(Lz4::new(source)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(source, true, XZ_KIB_MAX)),
    }
}

/// LZ4 frames, one after the other. Their blocks have 8 MiB at most.
struct Lz4<R: Read>(Lz4Decoder<BufReader<R>>);

impl<R: Read> Lz4<R> {
    fn new(source: R) -> Self {
        let source = BufReader::with_capacity(SOURCE_BUFFER_BYTES, source);
        Self(Lz4Decoder::new(source))
    }
}

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let bytes = self.0.read(buffer)?;
            // Nothing is also the end of a frame that others follow.
            if bytes > 0 || buffer.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(bytes);
            }
        }
    }
}

/// Zstandard frames.
struct Zstd<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    within_frame: bool,
    /// Why the frame cannot be read on; said when all that was readable is handed out.
    failed: Option<io::Error>,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            source: BufReader::with_capacity(SOURCE_BUFFER_BYTES, source),
            decoder,
            within_frame: false,
            failed: None,
        }
    }

    /// Begins the next frame; false where the file ends.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(u64::from(length))?,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(bytes), &mut io::sink())?;
        if skipped < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Decodes until there is something to hand out or the frame is at its end.
    fn decode(&mut self) {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let one = BlockDecodingStrategy::UptoBlocks(1);
            if let Err(error) = self.decoder.decode_blocks(&mut self.source, one) {
                self.failed = Some(io::Error::other(error));
                // The decoder keeps a window's worth of what it decoded until the frame ends.
                let _ = self
                    .decoder
                    .decode_blocks(END_OF_FRAME, BlockDecodingStrategy::All);
                return;
            }
        }
    }

    /// A frame that is at its end must be what was compressed, where it says.
    fn check(&self) -> io::Result<()> {
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            let text = "what was decompressed has another checksum than was compressed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.within_frame && !self.begin()? {
                break;
            }
            self.within_frame = true;
            self.decode();
            let bytes = self.decoder.read(buffer)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.check()?;
            self.within_frame = false;
        }
        Ok(0)
    }
}

/// An empty last block, and four bytes in the place of a checksum.
const END_OF_FRAME: &[u8] = &[1, 0, 0, 0, 0, 0, 0];
/// What zstd itself takes without being told to (ZSTD_WINDOWLOG_LIMIT_DEFAULT is 27).
const ZSTD_WINDOW_BYTES_MAX: u64 = 1 << 27;
/// What xz -9 needs for decompression, and some more.
const XZ_KIB_MAX: u32 = 128 * 1024;
/// Some reads from the file for each block of 128 KiB.
const SOURCE_BUFFER_BYTES: usize = 64 * 1024;
