//! Changes to a contract's text that leave all the rest of it as its owner wrote it.

use anyhow::{Context as _, anyhow, ensure};
use capgate_common::contract::Contract;
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::Value,
    cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode},
    parse_to_ast,
};

/// A contract's text.
pub(crate) struct Text {
    root: CstRootNode,
    object: CstObject,
}

impl Text {
    /// The text of a contract that has been read already.
    ///
    /// # Errors
    /// When it is no JSON object.
    pub(crate) fn new(text: &str) -> anyhow::Result<Self> {
        let root = CstRootNode::parse(text, &ParseOptions::default())
            .map_err(|error| anyhow!("cannot edit the contract: {error}"))?;
        let object = root.object_value();
        let object = object.context("cannot edit the contract: it is not a JSON object")?;
        Ok(Self { root, object })
    }

    /// Sets a number.
    pub(crate) fn set_number(&self, key: &str, value: u64) {
        self.set(key, CstInputValue::Number(value.to_string()));
    }

    /// Sets a string.
    pub(crate) fn set_string(&self, key: &str, value: &str) {
        self.set(key, CstInputValue::from(value));
    }

    fn set(&self, key: &str, value: CstInputValue) {
        match self.object.get(key) {
            Some(property) => property.set_value(value),
            None => {
                self.object.append(key, value);
            }
        }
    }

    /// Adds a member to a list: where it belongs when the list is sorted, else at its end. A list that is not there comes after
    /// the key `after`.
    ///
    /// # Errors
    /// When the key holds something else.
    pub(crate) fn add(&mut self, key: &str, member: &str, after: &str) -> anyhow::Result<()> {
        let list = match self.object.get(key) {
            Some(_) => self.list(key)?,
            None => {
                self.insert_list(key, after)?;
                self.list(key)?
            }
        };
        let members = members(&list);
        let place = if members.is_sorted() {
            members.partition_point(|other| other.as_str() < member)
        } else {
            members.len()
        };
        list.insert(place, CstInputValue::from(member));
        Ok(())
    }

    /// Puts an empty list after a key.
    fn insert_list(&mut self, key: &str, after: &str) -> anyhow::Result<()> {
        let before = self.object.get(after);
        let before =
            before.with_context(|| format!("cannot edit the contract: it has no `{after}`"))?;
        if self.object.to_string().contains('\n') {
            let place = before.property_index() + 1;
            self.object
                .insert(place, key, CstInputValue::Array(Vec::new()));
            return Ok(());
        }
        // The editor would break an object of one line into many.
        let text = self.root.to_string();
        let ast = parse_to_ast(&text, &CollectOptions::default(), &ParseOptions::default())
            .map_err(|error| anyhow!("cannot edit the contract: {error}"))?;
        let end = ast.value.as_ref().and_then(Value::as_object);
        let end = end.and_then(|object| object.get(after));
        let end = end.map_or(text.len(), |property| property.range.end);
        let (head, tail) = text.split_at(end);
        *self = Self::new(&format!("{head}, \"{key}\": []{tail}"))?;
        Ok(())
    }

    /// Takes a member out of a list.
    ///
    /// # Errors
    /// When the key holds something else.
    pub(crate) fn remove(&self, key: &str, member: &str) -> anyhow::Result<()> {
        let list = self.list(key)?;
        for element in list.elements() {
            if text(&element).as_deref() == Some(member) {
                element.remove();
            }
        }
        Ok(())
    }

    fn list(&self, key: &str) -> anyhow::Result<CstArray> {
        self.object
            .array_value(key)
            .with_context(|| format!("cannot edit the contract: `{key}` is not a list"))
    }

    /// The text as it is now, and what it says.
    ///
    /// # Errors
    /// When it says something else than what was meant: nothing may be written then.
    pub(crate) fn finish(&self, meant: &Contract) -> anyhow::Result<String> {
        let text = self.root.to_string();
        let says = Contract::from_json(text.as_bytes())
            .context("cannot edit the contract: it would not be one any more")?;
        ensure!(
            capgate_common::change::between_contracts(meant, &says).is_empty(),
            "cannot edit the contract: it would say something else than was accepted; edit it by hand"
        );
        Ok(text)
    }
}

fn members(list: &CstArray) -> Vec<String> {
    list.elements().iter().filter_map(text).collect()
}

fn text(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

#[cfg(test)]
mod tests {
    use super::Text;

    fn check(before: &str, change: impl FnOnce(&mut Text), after: &str) {
        let mut text = Text::new(before).expect("an object");
        change(&mut text);
        assert_eq!(text.root.to_string(), after);
    }

    #[test]
    fn one_line_stays_one_line() {
        check(
            r#"{"allow_net": [], "cpu_budget": 30, "writes": "x"}"#,
            |it| {
                it.add("allow_net", "b:1", "").expect("added");
                it.add("allow_net", "a:1", "").expect("added");
                it.set_number("cpu_budget", 60);
                it.set_string("writes", "y");
            },
            r#"{"allow_net": ["a:1", "b:1"], "cpu_budget": 60, "writes": "y"}"#,
        );
        check(
            r#"{"writes": "x", "cpu_budget": 30}"#,
            |it| it.add("write_paths", "a", "writes").expect("added"),
            r#"{"writes": "x", "write_paths": ["a"], "cpu_budget": 30}"#,
        );
    }

    #[test]
    fn lines_and_indentation_stay() {
        check(
            "{\n\t\"writes\" : \"x\",\n\n\t\"write_paths\": [\n\t\t\"a\",\n\t\t\"c\"\n\t],\n\t\"cpu_budget\":30\n}\n",
            |it| {
                it.add("write_paths", "b", "writes").expect("added");
                it.remove("write_paths", "c").expect("removed");
            },
            "{\n\t\"writes\" : \"x\",\n\n\t\"write_paths\": [\n\t\t\"a\",\n\t\t\"b\"\n\t],\n\t\"cpu_budget\":30\n}\n",
        );
        check(
            "{\r\n  \"writes\": \"x\"\r\n}\r\n",
            |it| it.add("write_paths", "b", "writes").expect("added"),
            "{\r\n  \"writes\": \"x\",\r\n  \"write_paths\": [\"b\"]\r\n}\r\n",
        );
    }

    #[test]
    fn the_last_member_leaves_an_empty_list() {
        check(
            "{\"write_paths\": [\"a\"]}",
            |it| it.remove("write_paths", "a").expect("removed"),
            "{\"write_paths\": []}",
        );
    }

    #[test]
    fn a_list_that_is_not_sorted_keeps_its_order() {
        check(
            r#"{"allow_net": ["z:1", "a:1"]}"#,
            |it| it.add("allow_net", "m:1", "").expect("added"),
            r#"{"allow_net": ["z:1", "a:1", "m:1"]}"#,
        );
    }

    #[test]
    fn hostile_names_are_written_as_json() {
        let name = "a\"\\x0a\u{202e}é\u{9b}\\\\";
        let mut text = Text::new(r#"{"write_paths": []}"#).expect("an object");
        text.add("write_paths", name, "").expect("added");
        let value: serde_json::Value =
            serde_json::from_str(&text.root.to_string()).expect("still JSON");
        assert_eq!(value["write_paths"][0], name);
        text.remove("write_paths", name).expect("removed");
        assert_eq!(text.root.to_string(), r#"{"write_paths": []}"#);
    }
}
