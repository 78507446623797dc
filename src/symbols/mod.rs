//! Address to function, file, line and inline frames, and back.
