//! The official schema of the protocol, and a check of messages against it.

use serde_json::Value;
use std::fs;
use std::path::Path;

pub(super) struct Schema {
    definitions: Value,
}

impl Schema {
    pub(super) fn load() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join("tests/dap/debugAdapterProtocol.json")).unwrap();
        let mut schema: Value = serde_json::from_str(&text).unwrap();
        Self { definitions: schema["definitions"].take() }
    }

    /// Fails unless a message of an adapter is as its definition says, without other keys.
    pub(super) fn check(&self, message: &Value) {
        let name = |key: &str| message[key].as_str().unwrap().to_owned();
        let (name, suffix) = match message["type"].as_str() {
            Some("response") if message["success"] == false => ("error".to_owned(), "Response"),
            Some("response") => (name("command"), "Response"),
            Some("event") => (name("event"), "Event"),
            _ => panic!("neither a response nor an event: {message}"),
        };
        if name.starts_with("contraflow/") {
            return;
        }
        let definition = name[..1].to_uppercase() + &name[1..] + suffix;
        let schema = &self.definitions[&definition];
        assert!(schema.is_object(), "no definition {definition}: {message}");
        let mut faults = Vec::new();
        self.compare(schema, message, &definition, &mut faults);
        assert!(faults.is_empty(), "{faults:?}: {message}");
        for key in message["body"].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let known = self.keys(&schema_of_body(schema));
            assert!(known.contains(key), "{definition} has no {key}: {message}");
        }
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => &self.definitions[reference.trim_start_matches("#/definitions/")],
            None => schema,
        }
    }

    /// Returns the names of all properties that a definition allows.
    fn keys(&self, schema: &Value) -> Vec<String> {
        let schema = self.resolve(schema);
        let own =
            schema["properties"].as_object().into_iter().flat_map(|keys| keys.keys().cloned());
        let parts = schema["allOf"].as_array().into_iter().flatten();
        own.chain(parts.flat_map(|part| self.keys(part))).collect()
    }

    fn compare(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let schema = self.resolve(schema);
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.compare(part, value, at, faults);
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|kind| is_of(value, kind)) {
            faults.push(format!("{at} is no {types:?}: {value}"));
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            faults.push(format!("{at} is none of {allowed:?}: {value}"));
        }
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(key).is_none() {
                faults.push(format!("{at} has no {key}"));
            }
        }
        for (key, of_key) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(inner) = value.get(key) {
                self.compare(of_key, inner, &format!("{at}.{key}"), faults);
            }
        }
        if schema["items"].is_object() {
            for item in value.as_array().into_iter().flatten() {
                self.compare(&schema["items"], item, &format!("{at}[]"), faults);
                self.check_keys(&schema["items"], item, at, faults);
            }
        }
    }

    /// Reports keys that the items of a list may not have.
    fn check_keys(&self, schema: &Value, item: &Value, at: &str, faults: &mut Vec<String>) {
        let known = self.keys(schema);
        let unknown = item.as_object().into_iter().flat_map(serde_json::Map::keys);
        for key in unknown.filter(|key| !known.is_empty() && !known.contains(key)) {
            faults.push(format!("{at}[] may not have {key}"));
        }
    }
}

/// Returns the schema of a message's body.
fn schema_of_body(schema: &Value) -> Value {
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let body = parts.map(|part| part["properties"]["body"].clone()).find(Value::is_object);
    body.unwrap_or_default()
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[test]
fn a_message_that_is_wrong_is_found() {
    let check = |message: Value| {
        let schema = Schema::load();
        std::panic::catch_unwind(move || schema.check(&message)).is_ok()
    };
    let message = |body: Value| serde_json::json!({"seq": 1, "type": "event", "event": "stopped", "body": body});
    assert!(check(message(serde_json::json!({"reason": "step", "threadId": 1}))));
    assert!(!check(message(serde_json::json!({"threadId": 1}))));
    assert!(!check(message(serde_json::json!({"reason": 5}))));
    assert!(!check(message(serde_json::json!({"reason": "step", "threadID": 1}))));
}
