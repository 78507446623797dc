//! A recording as a line that can be walked in both directions.
