//! Which decoder is used: ours, or libipt in its place.

use anyhow::Result;
use decoder::{OwnDecoder, SegmentDecoder};

use crate::args::DecoderChoice;

impl DecoderChoice {
    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "func_latency",
            Self::Libipt => "libipt",
        }
    }

    /// The decoder itself.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn decoder(self) -> Result<Box<dyn SegmentDecoder>> {
        match self {
            Self::Own => Ok(Box::new(OwnDecoder::default())),
            Self::Libipt => libipt(),
        }
    }
}

#[cfg(feature = "libipt")]
fn libipt() -> Result<Box<dyn SegmentDecoder>> {
    use crate::exit::{Exit, failure};

    match libipt::Libipt::new() {
        Ok(libipt) => Ok(Box::new(libipt)),
        Err(error) => Err(failure(Exit::NotPossible, error.to_string())),
    }
}

#[cfg(not(feature = "libipt"))]
fn libipt() -> Result<Box<dyn SegmentDecoder>> {
    use crate::exit::{Exit, failure};

    let remedy = "--decoder libipt: this func_latency was built without it; install libipt-dev and build with \
                  cargo build --release --features libipt";
    Err(failure(Exit::NotPossible, remedy))
}
