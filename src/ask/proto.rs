//! Messages of Protocol Buffers, field by field, as its encoding describes them
//! (protobuf.dev/programming-guides/encoding).

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    /// Adds a field with an integer.
    pub(super) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds a field with bytes, or with a message that is encoded already.
    pub(super) fn raw(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a field with a text.
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.raw(field, text.as_bytes())
    }

    /// Adds a field with a message, which `fill` writes.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.raw(field, &inner.0)
    }

    /// Adds a packed repeated field of integers.
    pub(super) fn packed(&mut self, field: u32, values: &[u64]) -> &mut Self {
        let mut inner = Self::default();
        for value in values {
            inner.varint(*value);
        }
        self.raw(field, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn messages_have_the_bytes_of_the_documentation() {
        // The examples of protobuf.dev/programming-guides/encoding.
        let mut message = Message::default();
        message.number(1, 150).text(2, "testing").message(3, |inner| {
            inner.number(1, 150);
        });
        message.packed(6, &[3, 270, 86_942]);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
        ];
        assert_eq!(message.bytes(), expected.concat());
    }
}
