//! Trial of a conversion function: its result for sample data, without running the workflow.

use serde_json::Value;
use sinew_script::ScriptError;
use sinew_source::{Document, Span, did_you_mean};

use super::convert::{self, ConversionResult};
use super::model;
use crate::script_span::place_in;

/// Result of a connection's function for a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionTrial {
    /// Id of the connection.
    pub connection: String,
    /// Argument of the function.
    pub argument: Value,
    /// Value that would be passed on: the result, or the sample itself if the function raised;
    /// `None` if the execution would fail.
    pub value: Option<Value>,
    /// The reason why the function returned no result.
    pub error: Option<ConversionFailure>,
}

impl ConversionTrial {
    /// Returns whether the sample is passed on unchanged because the function raised.
    pub fn fell_back(&self) -> bool {
        self.error.is_some() && self.value.is_some()
    }
}

/// The reason why a conversion function returned no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}", script.message)]
pub struct ConversionFailure {
    /// Error with line and column in the function's source.
    pub script: ScriptError,
    /// Span of that line in the file.
    pub span: Span,
}

/// The reason why no function was called. Code `SINEW-2306`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialRefusal {
    /// No connection has this id.
    #[error("there is no connection '{id}'")]
    Unknown {
        /// The requested id.
        id: String,
        /// A similar known id.
        near: Option<String>,
        /// Ids of the connections that have a function.
        known: Vec<String>,
    },
    /// The connection passes its input on unchanged.
    #[error("connection '{0}' has no conversion function")]
    NoFunction(String),
}

/// Calls the conversion function of a connection with sample data.
///
/// The sample is the payload that leaves the port. From a complete argument `{value, output,
/// data}`, its `value` is used as the payload. Other errors of the file are ignored.
pub fn try_conversion(
    document: &Document,
    id: &str,
    sample: &Value,
) -> Result<ConversionTrial, TrialRefusal> {
    let file = model::read(&document.root, &mut Vec::new());
    let Some(connection) = file.connections.iter().find(|one| one.id == id) else {
        let with = file.connections.iter().filter(|one| one.conversion.is_some());
        let known: Vec<String> = with.map(|one| one.id.clone()).collect();
        let near = did_you_mean(id, file.connections.iter().map(|one| one.id.as_str())).map(str::to_owned);
        return Err(TrialRefusal::Unknown { id: id.to_owned(), near, known });
    };
    let source = connection.conversion.as_deref().ok_or_else(|| TrialRefusal::NoFunction(id.to_owned()))?;
    let raw = payload(sample);
    let (value, error) = match convert::convert_with(source, file.argument, raw) {
        Ok(ConversionResult::Value(value)) => (Some(value), None),
        Ok(ConversionResult::Raised(error)) => (Some(raw.clone()), Some(error)),
        Err(error) => (None, Some(error)),
    };
    let error = error.map(|script| {
        let place = place_in(&document.sources, connection.conversion_span, source, &script);
        ConversionFailure { span: place.unwrap_or(connection.conversion_span), script }
    });
    Ok(ConversionTrial {
        connection: connection.id.clone(),
        argument: convert::argument_of(source, file.argument, raw),
        value,
        error,
    })
}

/// Returns the payload in a sample.
fn payload(sample: &Value) -> &Value {
    let whole = sample.as_object().is_some_and(|members| {
        members.len() == 3 && ["value", "output", "data"].iter().all(|key| members.contains_key(*key))
    });
    if whole { &sample["value"] } else { sample }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::document;

    fn text_of(function: &str) -> String {
        let function = serde_json::to_string(function).unwrap();
        format!(
            "{{\"nodes\": [],\n \"connections\": [\n  {{\"id\": \"c1\", \"from_node\": \"a\", \"to_node\": \"b\",\n   \"conversion_function\": {function}}},\n  {{\"id\": \"c2\", \"from_node\": \"a\", \"to_node\": \"b\"}}]}}"
        )
    }

    #[test]
    fn functions_are_tried_as_the_engine_calls_them() {
        let check = |function: &str, sample: Value, value: Value| {
            let trial = try_conversion(&document(&text_of(function)), "c1", &sample).unwrap();
            assert_eq!((trial.value, trial.error), (Some(value), None), "{function}");
        };
        check("lambda d: {'m': d['value']['x'] + 1}", json!({"x": 1}), json!({"m": 2}));
        check("lambda d: d['data']['result']", json!(5), json!({"converted_data": 5}));
        let whole = json!({"value": 7, "output": 7, "data": {"result": 7}});
        check("lambda d: {'m': d['output']}", whole, json!({"m": 7}));
    }

    #[test]
    fn what_raises_falls_back_and_says_where() {
        // Function, line in it, and the text of the file from the span on.
        let check = |function: &str, line: u32, start: &str| {
            let text = text_of(function);
            let trial = try_conversion(&document(&text), "c1", &json!({"x": 1})).unwrap();
            assert!(trial.fell_back());
            assert_eq!(trial.value, Some(json!({"x": 1})));
            let error = trial.error.unwrap();
            assert_eq!((error.script.line, error.span.line), (Some(line), 4), "{function}");
            assert!(text[error.span.start..].starts_with(start), "{function}: {error:?}");
            let line = text.lines().nth(3).unwrap();
            let column = error.span.column as usize - 1;
            let rest: String = line.chars().skip(column).collect();
            assert!(rest.starts_with(start), "{function}: column {column}");
        };
        check("lambda d: d['value']['nope']", 1, "d['value']['nope']");
        check("def f(d):\n    q = \"ü\\n\"\n    return d['value']['nope']\n", 3, "d['value']['nope']");
        check("def f(d):\n    x = = 1\n    return x\n", 2, "= 1");
    }

    #[test]
    fn a_block_of_yaml_keeps_its_lines() {
        let text = "nodes: []\nconnections:\n  - id: c1\n    from_node: a\n    to_node: b\n    conversion_function: |\n      def f(d):\n          x = 1\n          return d['no']\n";
        let error = try_conversion(&document(text), "c1", &json!(1)).unwrap().error.unwrap();
        assert_eq!((error.span.line, error.span.column), (9, 18));
    }

    #[test]
    fn what_is_no_function_is_not_tried() {
        let document = document(&text_of("lambda d: {}"));
        let found = |id: &str| try_conversion(&document, id, &Value::Null).unwrap_err();
        assert_eq!(found("c2"), TrialRefusal::NoFunction("c2".to_owned()));
        let TrialRefusal::Unknown { known, .. } = found("c9") else { panic!("it is unknown") };
        assert_eq!(known, ["c1"]);
    }

    #[test]
    fn endless_functions_fall_back() {
        let text = text_of("def f(d):\n    while True:\n        pass\n");
        let trial = try_conversion(&document(&text), "c1", &Value::Null).unwrap();
        assert_eq!(trial.value, Some(Value::Null));
        assert_eq!(trial.error.unwrap().script.code(), "SINEW-3003");
    }
}
