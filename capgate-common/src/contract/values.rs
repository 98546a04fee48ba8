//! The values of a contract's keys, read one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{
    Deserialize,
    de::{Deserializer, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::{CompareWrites, ContractError, KEYS, MAX_CPU_BUDGET, MAX_PATTERN_BYTES};
use crate::{address::AddressError, escapes, netpattern::NetPattern};

/// The values of a contract's keys that were not taken yet.
pub(super) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ContractError> {
        let Object(pairs) = serde_json::from_slice(bytes)
            .map_err(|error| ContractError::Syntax(error.to_string()))?;
        let mut values = BTreeMap::new();
        for (name, Unique(value)) in pairs {
            let Some(key) = KEYS.into_iter().find(|&key| key == name) else {
                return Err(ContractError::UnknownKey(name));
            };
            if values.insert(key, value).is_some() {
                return Err(ContractError::RepeatedKey(key));
            }
        }
        Ok(Self(values))
    }

    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        read: fn(&'static str, &Value) -> Result<T, ContractError>,
    ) -> Result<Option<T>, ContractError> {
        let value = self.0.remove(key);
        value.map(|value| read(key, &value)).transpose()
    }

    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        read: fn(&'static str, &Value) -> Result<T, ContractError>,
    ) -> Result<T, ContractError> {
        self.optional(key, read)?
            .ok_or(ContractError::MissingKey(key))
    }
}

pub(super) fn wrong(key: &'static str, expected: &str, value: &Value) -> ContractError {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ContractError::value(key, format!("{expected} is expected, not {kind}"))
}

pub(super) fn text(key: &'static str, value: &Value) -> Result<String, ContractError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(key, "a string", other)),
    }
}

pub(super) fn flag(key: &'static str, value: &Value) -> Result<bool, ContractError> {
    value
        .as_bool()
        .ok_or_else(|| wrong(key, "true or false", value))
}

pub(super) fn texts(key: &'static str, value: &Value) -> Result<Vec<String>, ContractError> {
    let Value::Array(members) = value else {
        return Err(wrong(key, "a list of strings", value));
    };
    members
        .iter()
        .enumerate()
        .map(|(index, member)| match member {
            Value::String(text) => Ok(text.clone()),
            _ => Err(ContractError::member(key, index, "a string is expected")),
        })
        .collect()
}

pub(super) fn patterns(key: &'static str, value: &Value) -> Result<Vec<String>, ContractError> {
    let patterns = texts(key, value)?;
    match patterns
        .iter()
        .position(|pattern| pattern.len() > MAX_PATTERN_BYTES)
    {
        Some(index) => Err(ContractError::member(
            key,
            index,
            format!("longer than {MAX_PATTERN_BYTES} bytes"),
        )),
        None => Ok(patterns),
    }
}

/// Patterns that say themselves what is wrong with them.
pub(super) fn parsed<T: FromStr<Err = String>>(
    key: &'static str,
    value: &Value,
) -> Result<Vec<T>, ContractError> {
    let texts = patterns(key, value)?;
    let parsed = texts.iter().enumerate().map(|(index, text)| {
        text.parse()
            .map_err(|problem: String| ContractError::member(key, index, problem))
    });
    parsed.collect()
}

pub(super) fn net_patterns(
    key: &'static str,
    value: &Value,
) -> Result<Vec<NetPattern>, ContractError> {
    patterns(key, value)?
        .iter()
        .enumerate()
        .map(|(index, pattern)| {
            pattern
                .parse()
                .map_err(|error: AddressError| ContractError::Value {
                    key,
                    index: Some(index),
                    column: Some(error.column),
                    problem: format!("{}, in `{pattern}`", error.problem),
                })
        })
        .collect()
}

/// Whole seconds. `30.0` is taken too, since some writers of JSON know only one kind of number.
pub(super) fn seconds(key: &'static str, value: &Value) -> Result<u64, ContractError> {
    const EXPECTED: &str = "a whole number of seconds, at most 1000000000,";
    let Value::Number(number) = value else {
        return Err(wrong(key, EXPECTED, value));
    };
    let whole = number.as_u64().or_else(|| {
        // The text of a float that is whole ends with `.0` here: serde_json writes others with digits or an exponent.
        number.to_string().strip_suffix(".0")?.parse().ok()
    });
    whole
        .filter(|&seconds| seconds <= MAX_CPU_BUDGET)
        .ok_or_else(|| ContractError::value(key, format!("{EXPECTED} is expected, not {number}")))
}

pub(super) fn digest(key: &'static str, value: &Value) -> Result<String, ContractError> {
    let digest = text(key, value)?;
    let length = digest.chars().count();
    if length != 64 {
        return Err(ContractError::value(
            key,
            format!("a SHA-256 digest has 64 hex digits, this has {length} characters"),
        ));
    }
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    match digest.chars().position(|c| !is_digit(c)) {
        Some(position) => Err(ContractError::Value {
            key,
            index: None,
            column: Some(position + 1),
            problem: "only the digits 0-9 and a-f (lower case) are in a digest".to_owned(),
        }),
        None => Ok(digest),
    }
}

pub(super) fn compare_writes(
    key: &'static str,
    value: &Value,
) -> Result<CompareWrites, ContractError> {
    match text(key, value)?.as_str() {
        "exact" => Ok(CompareWrites::Exact),
        "within" => Ok(CompareWrites::Within),
        other => Err(ContractError::value(
            key,
            format!("`exact` or `within` is expected, not `{other}`"),
        )),
    }
}

pub(super) fn unseen(key: &'static str, value: &Value) -> Result<BTreeSet<String>, ContractError> {
    let names = patterns(key, value)?;
    for (index, name) in names.iter().enumerate() {
        if escapes::is_never_acceptable(name) {
            let problem = format!("`{name}` is never acceptable");
            return Err(ContractError::member(key, index, problem));
        }
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(is_word) {
            let problem = "a name such as `docker` or `io_uring` is expected";
            return Err(ContractError::member(key, index, problem));
        }
    }
    Ok(names.into_iter().collect())
}

/// A JSON object as it stands in the file: serde's own maps would keep the last of two equal keys and say nothing.
struct Object(Vec<(String, Unique)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Object(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

/// A value in which no object has a key twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E: Error>(self) -> Result<Unique, E> {
                Ok(Unique(Value::Null))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Unique, E> {
                Ok(Unique(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
                let mut list = Vec::new();
                while let Some(Unique(member)) = members.next_element()? {
                    list.push(member);
                }
                Ok(Unique(Value::Array(list)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
                let mut object = serde_json::Map::new();
                while let Some((key, Unique(value))) = map.next_entry::<String, Unique>()? {
                    if object.insert(key.clone(), value).is_some() {
                        return Err(Error::custom(format!("the key `{key}` is there twice")));
                    }
                }
                Ok(Unique(Value::Object(object)))
            }
        }

        deserializer.deserialize_any(Any)
    }
}
