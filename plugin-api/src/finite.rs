//! Finite numbers: finds the number without a JSON form, for which `serde_json` silently writes `null`.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// # Errors
/// The number, and the path to it, as a sentence fragment.
pub(crate) fn check(value: &impl Serialize) -> Result<(), String> {
    let mut path = Vec::new();
    value.serialize(Walk { path: &mut path }).map_err(|Found(what)| match &path[..] {
        [] => what,
        path => format!("{what} (in `{}`)", path.join(".")),
    })
}

/// Visits a value, and stops at the first number that is not finite.
struct Walk<'w> {
    /// The path to the number.
    path: &'w mut Vec<String>,
}

/// The message about the number.
#[derive(Debug)]
struct Found(String);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Found {}

impl serde::ser::Error for Found {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// The content of a list or a table.
struct Inside<'w> {
    path: &'w mut Vec<String>,
    position: usize,
    key: String,
    /// The name of the variant that contains it.
    outer: bool,
}

impl<'w> Walk<'w> {
    fn inside(self, variant: Option<&str>) -> Inside<'w> {
        self.path.extend(variant.map(str::to_owned));
        Inside { path: self.path, position: 0, key: String::new(), outer: variant.is_some() }
    }
}

impl Inside<'_> {
    fn enter<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), Found> {
        self.path.push(key);
        value.serialize(Walk { path: &mut *self.path })?;
        self.path.pop();
        Ok(())
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        self.position += 1;
        self.enter((self.position - 1).to_string(), value)
    }

    fn leave(self) {
        if self.outer {
            self.path.pop();
        }
    }
}

macro_rules! fine {
    ($($name:ident($($argument:ty),*)),+ $(,)?) => {
        $(fn $name(self, $(_: $argument),*) -> Result<(), Found> { Ok(()) })+
    };
}

macro_rules! opens {
    ($($name:ident($($argument:ty),*)),+ $(,)?) => {
        $(fn $name(self, $(_: $argument),*) -> Result<Self::SerializeSeq, Found> { Ok(self.inside(None)) })+
    };
}

macro_rules! opens_variant {
    ($($name:ident),+ $(,)?) => {
        $(fn $name(
            self,
            _: &'static str,
            _: u32,
            variant: &'static str,
            _: usize,
        ) -> Result<Self::SerializeSeq, Found> {
            Ok(self.inside(Some(variant)))
        })+
    };
}

impl<'w> Serializer for Walk<'w> {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = Inside<'w>;
    type SerializeTuple = Inside<'w>;
    type SerializeTupleStruct = Inside<'w>;
    type SerializeTupleVariant = Inside<'w>;
    type SerializeMap = Inside<'w>;
    type SerializeStruct = Inside<'w>;
    type SerializeStructVariant = Inside<'w>;

    fine! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_i128(i128), serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64),
        serialize_u128(u128), serialize_char(char), serialize_str(&str), serialize_bytes(&[u8]), serialize_none(),
        serialize_unit(), serialize_unit_struct(&'static str),
        serialize_unit_variant(&'static str, u32, &'static str),
    }

    fn serialize_f32(self, value: f32) -> Result<(), Found> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Found> {
        if value.is_finite() { Ok(()) } else { Err(Found(format!("it has no form for `{value}`"))) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        self.inside(None).enter(variant.to_owned(), value)
    }

    opens! {
        serialize_seq(Option<usize>),
        serialize_tuple(usize),
        serialize_tuple_struct(&'static str, usize),
        serialize_map(Option<usize>),
        serialize_struct(&'static str, usize),
    }
    opens_variant!(serialize_tuple_variant, serialize_struct_variant);
}

macro_rules! lists {
    ($($of:ident::$name:ident),+ $(,)?) => {
        $(impl $of for Inside<'_> {
            type Ok = ();
            type Error = Found;

            fn $name<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
                self.element(value)
            }

            fn end(self) -> Result<(), Found> {
                self.leave();
                Ok(())
            }
        })+
    };
}

lists! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! tables {
    ($($of:ident),+ $(,)?) => {
        $(impl $of for Inside<'_> {
            type Ok = ();
            type Error = Found;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Found> {
                self.enter(key.to_owned(), value)
            }

            fn end(self) -> Result<(), Found> {
                self.leave();
                Ok(())
            }
        })+
    };
}

tables!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Found;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Found> {
        // A key that is not a text was refused before, when the value was written.
        self.key = key.serialize(Key).unwrap_or_default();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        let key = std::mem::take(&mut self.key);
        self.enter(key, value)
    }

    fn end(self) -> Result<(), Found> {
        self.leave();
        Ok(())
    }
}

/// A key in its written form.
struct Key;

macro_rules! shown {
    ($($name:ident($of:ty)),+ $(,)?) => {
        $(fn $name(self, value: $of) -> Result<String, Found> { Ok(value.to_string()) })+
    };
}

macro_rules! no_key {
    ($($name:ident($($argument:ty),*) -> $answer:ty),+ $(,)?) => {
        $(fn $name(self, $(_: $argument),*) -> Result<$answer, Found> { Err(Found("it is not a key".into())) })+
    };
}

impl Serializer for Key {
    type Ok = String;
    type Error = Found;
    type SerializeSeq = Impossible<String, Found>;
    type SerializeTuple = Impossible<String, Found>;
    type SerializeTupleStruct = Impossible<String, Found>;
    type SerializeTupleVariant = Impossible<String, Found>;
    type SerializeMap = Impossible<String, Found>;
    type SerializeStruct = Impossible<String, Found>;
    type SerializeStructVariant = Impossible<String, Found>;

    shown! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_f32(f32),
        serialize_f64(f64), serialize_char(char), serialize_str(&str),
    }

    no_key! {
        serialize_bytes(&[u8]) -> String,
        serialize_none() -> String,
        serialize_unit() -> String,
        serialize_unit_struct(&'static str) -> String,
        serialize_seq(Option<usize>) -> Self::SerializeSeq,
        serialize_tuple(usize) -> Self::SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant,
        serialize_map(Option<usize>) -> Self::SerializeMap,
        serialize_struct(&'static str, usize) -> Self::SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant,
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<String, Found> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<String, Found> {
        Ok(variant.to_owned())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<String, Found> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<String, Found> {
        Err(Found("it is not a key".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::check;

    #[derive(Serialize)]
    struct Place {
        name: Option<&'static str>,
        at: (f64, f32),
        form: Form,
    }

    #[derive(Serialize)]
    enum Form {
        Round { radius: f64 },
        Flat(f64),
    }

    fn place() -> Place {
        Place { name: None, at: (1.0, 2.0), form: Form::Flat(3.0) }
    }

    #[test]
    fn a_number_without_a_form_is_told_with_the_way_to_it() {
        assert_eq!(check(&place()), Ok(()));
        let refusal = |place: &Place| check(place).unwrap_err();
        assert_eq!(
            refusal(&Place { at: (1.0, f32::NAN), ..place() }),
            "it has no form for `NaN` (in `at.1`)"
        );
        let radius = f64::NEG_INFINITY;
        let round = Place { form: Form::Round { radius }, ..place() };
        assert_eq!(refusal(&round), "it has no form for `-inf` (in `form.Round.radius`)");
        let flat = Place { form: Form::Flat(f64::NAN), ..place() };
        assert_eq!(refusal(&flat), "it has no form for `NaN` (in `form.Flat`)");
        assert_eq!(check(&f64::NAN).unwrap_err(), "it has no form for `NaN`");
        let map = BTreeMap::from([(7, vec![0.0, f64::INFINITY])]);
        assert_eq!(check(&map).unwrap_err(), "it has no form for `inf` (in `7.1`)");
    }
}
