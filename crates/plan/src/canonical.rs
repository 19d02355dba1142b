//! Any value as a sequence of bytes that is the same wherever and whenever it is made: each part with a
//! mark of its kind and, where it can differ, its length. For digests only; it is never read back.

use std::fmt::{self, Display};

use serde::ser::{self, Serialize};

/// Hands the bytes of `value` to `sink`, in order.
pub(crate) fn write(value: &impl Serialize, sink: &mut dyn FnMut(&[u8])) {
    let mut writer = Writer { sink };
    if let Err(Refused(words)) = value.serialize(&mut writer) {
        // No type of this crate refuses to be written; one that did would still have a digest.
        writer.text(b'!', &words);
    }
}

/// A type's own words why it cannot be written.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: Display>(words: T) -> Self {
        Self(words.to_string())
    }
}

pub(crate) struct Writer<'s> {
    sink: &'s mut dyn FnMut(&[u8]),
}

impl Writer<'_> {
    fn number(&mut self, mark: u8, number: u64) {
        (self.sink)(&[mark]);
        (self.sink)(&number.to_le_bytes());
    }

    fn text(&mut self, mark: u8, text: &str) {
        self.bytes(mark, text.as_bytes());
    }

    fn bytes(&mut self, mark: u8, bytes: &[u8]) {
        self.number(mark, bytes.len() as u64);
        (self.sink)(bytes);
    }
}

macro_rules! whole {
    ($($method:ident: $type:ty),+) => {$(
        fn $method(self, value: $type) -> Result<(), Refused> {
            self.bytes(b'n', &value.to_le_bytes());
            Ok(())
        }
    )+};
}

impl ser::Serializer for &mut Writer<'_> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    whole!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64);
    whole!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);
    whole!(serialize_f32: f32, serialize_f64: f64);

    fn serialize_bool(self, value: bool) -> Result<(), Refused> {
        self.number(b'b', value.into());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Refused> {
        self.number(b'c', u32::from(value).into());
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Refused> {
        self.text(b's', value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Refused> {
        self.bytes(b'y', value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Refused> {
        (self.sink)(b"-");
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        (self.sink)(b"+");
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        (self.sink)(b"0");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Refused> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Refused> {
        self.text(b'v', variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.text(b'v', variant);
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refused> {
        (self.sink)(b"[");
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        self.text(b'v', variant);
        self.serialize_seq(None)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Refused> {
        (self.sink)(b"{");
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self, Refused> {
        self.text(b'v', variant);
        self.serialize_map(None)
    }
}

/// Items one after another, and a mark at their end.
macro_rules! items {
    ($($trait:ident, $method:ident);+) => {$(
        impl ser::$trait for &mut Writer<'_> {
            type Ok = ();
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Refused> {
                (self.sink)(b"]");
                Ok(())
            }
        }
    )+};
}

items!(
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field
);

macro_rules! fields {
    ($($trait:ident),+) => {$(
        impl ser::$trait for &mut Writer<'_> {
            type Ok = ();
            type Error = Refused;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Refused> {
                self.text(b'f', name);
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Refused> {
                (self.sink)(b"}");
                Ok(())
            }
        }
    )+};
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for &mut Writer<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Refused> {
        (self.sink)(b"}");
        Ok(())
    }
}
