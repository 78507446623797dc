//! The recording on disk: format, writer, reader. Does not decode.
