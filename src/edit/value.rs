//! The meaning of a text, independent of its syntax.

use crate::config::node::{Kind, Node};

/// A value that keeps the order of its keys and the spelling of its numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The value `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// The number as the file spells it.
    Number(String),
    /// The text, with no variables expanded.
    String(String),
    /// The items in order.
    List(Vec<Value>),
    /// The entries in order. Keys do not repeat.
    Object(Vec<(String, Value)>),
    /// A value that only one syntax has, such as a date, as the file spells it.
    Other(String),
}

impl Value {
    /// An object with these entries.
    pub fn object<const N: usize>(entries: [(&str, Value); N]) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// A list of strings.
    pub fn strings(items: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::List(items.into_iter().map(|item| Self::String(item.into())).collect())
    }

    pub(crate) fn of(node: &Node, text: &str) -> Self {
        match &node.kind {
            Kind::Null => Self::Null,
            Kind::Boolean(value) => Self::Boolean(*value),
            Kind::Number(number) => Self::Number(number.clone()),
            Kind::String(string) => Self::String(string.raw.clone()),
            Kind::List(items) => Self::List(items.iter().map(|item| Self::of(item, text)).collect()),
            Kind::Object(entries) => Self::Object(
                entries.iter().map(|entry| (entry.key.clone(), Self::of(&entry.value, text))).collect(),
            ),
            Kind::Other(_) => Self::Other(text.get(node.span.clone()).unwrap_or_default().to_owned()),
        }
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value at the end of a path of keys. In a list, a key is the position of an item.
    pub fn at<S: AsRef<str>>(&self, path: &[S]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| match value {
            Self::List(items) => items.get(key.as_ref().parse::<usize>().ok()?),
            _ => value.get(key.as_ref()),
        })
    }

    /// The entries of an object; none for any other value.
    pub fn entries(&self) -> &[(String, Value)] {
        match self {
            Self::Object(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for any other value.
    pub fn items(&self) -> &[Value] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a string; `None` for any other value.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether both values are equal apart from the order of their keys.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(two)) => {
                one.len() == two.len()
                    && one.iter().all(|(key, value)| other.get(key).is_some_and(|twin| value.same(twin)))
            }
            (Self::List(one), Self::List(two)) => {
                one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.same(two))
            }
            _ => self == other,
        }
    }

    /// The value after an edit; `None` if something else stands at the edit's path.
    pub(super) fn edited(&self, edit: &super::Edit<'_>) -> Option<Value> {
        use super::Edit;
        match edit {
            Edit::Set { path, value } => self.with(path, &mut |_| Some(Some(value.clone()))),
            Edit::Remove { path } => self.with(path, &mut |_| Some(None)),
            Edit::Restore { path, from, format, index } => {
                let value = super::parse(*format, from).ok()?.value.at(path)?.clone();
                let (last, parent) = path.split_last()?;
                self.with(parent, &mut |old| {
                    let mut entries = match old {
                        Some(Value::Object(entries)) => entries.clone(),
                        None => Vec::new(),
                        Some(_) => return None,
                    };
                    if entries.iter().any(|(key, _)| key == last) {
                        return None;
                    }
                    entries.insert((*index).min(entries.len()), (last.clone(), value.clone()));
                    Some(Some(Value::Object(entries)))
                })
            }
            Edit::Move { path, to } => {
                let (name, value) = (path.last()?, self.at(path)?.clone());
                let left = self.with(path, &mut |_| Some(None))?;
                left.with(&[&to[..], std::slice::from_ref(name)].concat(), &mut |old| match old {
                    None => Some(Some(value.clone())),
                    Some(_) => None,
                })
            }
            Edit::Rename { path, to } => {
                let (name, parent) = path.split_last()?;
                self.with(parent, &mut |old| {
                    let mut entries = old?.entries().to_vec();
                    if entries.iter().any(|(key, _)| key == to) {
                        return None;
                    }
                    entries.iter_mut().find(|(key, _)| key == name)?.0.clone_from(to);
                    Some(Some(Value::Object(entries)))
                })
            }
            Edit::Push { path, value, index } => self.with(path, &mut |old| {
                let mut items = match old {
                    Some(Value::List(items)) => items.clone(),
                    None => Vec::new(),
                    Some(_) => return None,
                };
                items.insert((*index).min(items.len()), value.clone());
                Some(Some(Value::List(items)))
            }),
            Edit::Pull { path, index } => self.with(path, &mut |old| {
                let mut items = old?.items().to_vec();
                if *index >= items.len() {
                    return None;
                }
                items.remove(*index);
                Some(Some(Value::List(items)))
            }),
        }
    }

    /// Replaces the value at a path by the result of `change`. Missing objects on the way are created.
    fn with(
        &self,
        path: &[String],
        change: &mut dyn FnMut(Option<&Value>) -> Option<Option<Value>>,
    ) -> Option<Value> {
        let Some((key, rest)) = path.split_first() else { return change(Some(self))? };
        let entries = match self {
            Self::Object(entries) => entries,
            Self::List(items) => {
                let mut items = items.clone();
                let item = items.get_mut(key.parse::<usize>().ok()?)?;
                *item = item.with(rest, change)?;
                return Some(Self::List(items));
            }
            _ => return None,
        };
        let mut entries = entries.clone();
        let at = entries.iter().position(|(name, _)| name == key);
        let new = match (at.map(|at| &entries[at].1), rest.is_empty()) {
            (old, true) => change(old)?,
            (Some(old), false) => Some(old.with(rest, change)?),
            (None, false) => Some(Value::Object(Vec::new()).with(rest, change)?),
        };
        match (at, new) {
            (Some(at), Some(new)) => entries[at].1 = new,
            (None, Some(new)) => entries.push((key.clone(), new)),
            (Some(at), None) => drop(entries.remove(at)),
            (None, None) => return None,
        }
        Some(Self::Object(entries))
    }
}
