//! Rows that wait to be written, column by column.

use parquet::basic::{Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;

/// The maximum number of bytes of a text. Longer ones are cut, as values of a program may be long.
const TEXT_LIMIT_BYTES: usize = 4096;

/// A cell of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Flag(bool),
    Text(ByteArray),
}

impl Cell {
    /// Returns a cell with a number, or null if the number does not fit into a signed integer of 64
    /// bits.
    pub(super) fn number(number: impl TryInto<i64>) -> Self {
        number.try_into().map_or(Self::Null, Self::Integer)
    }

    /// Returns the cell, or null for `None`.
    pub(super) fn or_null(cell: Option<Self>) -> Self {
        cell.unwrap_or(Self::Null)
    }

    /// Returns a cell with a text, which is cut at [`TEXT_LIMIT_BYTES`].
    pub(super) fn text(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > TEXT_LIMIT_BYTES {
            let mut ends = (0..=TEXT_LIMIT_BYTES).rev();
            text.truncate(ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        }
        Self::Text(ByteArray::from(text.into_bytes()))
    }
}

/// The waiting cells of a column, in the type in which Parquet stores them; `Small` are integers of
/// 32 bits.
enum Values {
    Small(Vec<i32>),
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

/// A column of the waiting rows: the values of the cells that are not null.
struct Column {
    values: Values,
    /// The definition levels of Parquet: for each row 1, or 0 if the cell is null. `None` for a
    /// column that allows no null.
    levels: Option<Vec<i16>>,
}

/// Rows of a table that are not written yet, column by column.
pub(super) struct Columns {
    all: Vec<Column>,
    /// The number of rows, and their approximate size.
    rows: usize,
    bytes: usize,
}

impl Columns {
    pub(super) fn new(schema: &Type) -> Self {
        let columns = schema.get_fields().iter().map(|field| {
            let is_optional = field.get_basic_info().repetition() == Repetition::OPTIONAL;
            let values = match field.get_physical_type() {
                Physical::INT32 => Values::Small(Vec::new()),
                Physical::DOUBLE => Values::Reals(Vec::new()),
                Physical::BOOLEAN => Values::Flags(Vec::new()),
                Physical::BYTE_ARRAY => Values::Texts(Vec::new()),
                _ => Values::Integers(Vec::new()),
            };
            Column { values, levels: is_optional.then(Vec::new) }
        });
        Self { all: columns.collect(), rows: 0, bytes: 0 }
    }

    /// Returns the approximate size of the rows that are not written yet.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row. Fails if the number of cells or the type of one is not that of the columns: then
    /// the row may be there in part, and the rows cannot be written any more.
    pub(super) fn push(&mut self, row: Vec<Cell>) -> Result<(), ParquetError> {
        if row.len() != self.all.len() {
            return Err(ParquetError::General(format!("a row has {} cells", row.len())));
        }
        for (column, cell) in self.all.iter_mut().zip(row) {
            self.bytes += column.push(cell)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes the rows to `file` as a row group, and clears them. Does nothing if there are none.
    /// After an error, the file and the rows are not whole.
    pub(super) fn write_row_group<W: Write + Send>(
        &mut self,
        file: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = file.next_row_group()?;
        for column in &mut self.all {
            let Some(mut writer) = group.next_column()? else { break };
            let levels = column.levels.as_deref();
            match &column.values {
                Values::Small(all) => writer.typed::<Int32Type>().write_batch(all, levels, None),
                Values::Integers(all) => writer.typed::<Int64Type>().write_batch(all, levels, None),
                Values::Reals(all) => writer.typed::<DoubleType>().write_batch(all, levels, None),
                Values::Flags(all) => writer.typed::<BoolType>().write_batch(all, levels, None),
                Values::Texts(all) => {
                    writer.typed::<ByteArrayType>().write_batch(all, levels, None)
                }
            }?;
            writer.close()?;
            column.clear();
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Column {
    /// Adds a cell. Returns its approximate size in bytes. Fails if the cell is not of the column's
    /// type, or is null in a column without nulls.
    fn push(&mut self, cell: Cell) -> Result<usize, ParquetError> {
        let is_known = cell != Cell::Null;
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(is_known));
        }
        let wrong = || ParquetError::General("a cell is not of its column's type".to_owned());
        let size_bytes = match (&mut self.values, cell) {
            (_, Cell::Null) if self.levels.is_some() => 2,
            (Values::Small(all), Cell::Integer(number)) => {
                all.push(i32::try_from(number).map_err(|_| wrong())?);
                4
            }
            (Values::Integers(all), Cell::Integer(number)) => {
                all.push(number);
                8
            }
            (Values::Reals(all), Cell::Real(number)) => {
                all.push(number);
                8
            }
            (Values::Flags(all), Cell::Flag(flag)) => {
                all.push(flag);
                1
            }
            (Values::Texts(all), Cell::Text(text)) => {
                let size_bytes = size_of::<ByteArray>() + text.len();
                all.push(text);
                size_bytes
            }
            _ => return Err(wrong()),
        };
        Ok(size_bytes)
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Small(all) => all.clear(),
            Values::Integers(all) => all.clear(),
            Values::Reals(all) => all.clear(),
            Values::Flags(all) => all.clear(),
            Values::Texts(all) => all.clear(),
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
    }
}
