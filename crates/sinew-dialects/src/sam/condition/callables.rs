//! Functions and methods that conditions may call, with the names of their parameters.

use serde_json::Value;

/// A function that conditions may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionFunction {
    Int,
    Float,
    Str,
    /// A number in the range `0.0..1.0`.
    Rand,
    /// An integer in the range `0..n`.
    RandInt,
}

impl ConditionFunction {
    /// Returns the name in conditions.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
            Self::Str => "str",
            Self::Rand => "rand",
            Self::RandInt => "randint",
        }
    }

    pub(super) fn of(name: &str) -> Result<Self, String> {
        match name {
            "int" => Ok(Self::Int),
            "float" => Ok(Self::Float),
            "str" => Ok(Self::Str),
            "rand" => Ok(Self::Rand),
            "randint" => Ok(Self::RandInt),
            _ => Err(format!(
                "Function '{name}' not defined; conditions have int, float, str, rand and randint"
            )),
        }
    }
}

/// Returns what to write instead of a function of other languages.
pub(super) fn advice_on_function(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "len" | "length" | "size" | "count" | "empty" | "isempty" => {
            "compare with an empty value, such as {{…}} == [] or {{…}} != '', or let an agent return the length"
        }
        "max" | "min" => "write a choice: a if a > b else b",
        "abs" => "write a choice: a if a > 0 else -a",
        "round" | "floor" | "ceil" => "use int(), or // and %",
        "bool" => "write the value itself, or compare it with true",
        "any" | "all" => "write the comparisons with 'or' or 'and', or let an agent decide",
        "contains" | "includes" | "has" => "write 'a' in {{…}}",
        "lower" | "upper" | "startswith" | "endswith" | "strip" => "call it as a method: {{…}}.lower()",
        "exists" | "defined" | "isnull" | "is_null" => "compare with null: {{…}} != null",
        "string" | "number" | "integer" => "use str(), float() or int()",
        _ => return None,
    })
}

macro_rules! methods {
    ($($method:ident = $name:literal),+ $(,)?) => {
        /// A method that conditions may call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum ConditionMethod { $($method),+ }

        impl ConditionMethod {
            /// Returns the name in conditions.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$method => $name),+ }
            }

            pub(super) fn of(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$method),)+ _ => None }
            }
        }
    };
}

methods! {
    Upper = "upper", Lower = "lower", CaseFold = "casefold", Capitalize = "capitalize", Title = "title",
    SwapCase = "swapcase", Strip = "strip", LeftStrip = "lstrip", RightStrip = "rstrip",
    StartsWith = "startswith", EndsWith = "endswith", Find = "find", RightFind = "rfind", Index = "index",
    RightIndex = "rindex", Count = "count", Replace = "replace", Split = "split", RightSplit = "rsplit",
    SplitLines = "splitlines", Partition = "partition", RightPartition = "rpartition", Join = "join",
    RemovePrefix = "removeprefix", RemoveSuffix = "removesuffix", ZeroFill = "zfill", IsDigit = "isdigit",
    IsNumeric = "isnumeric", IsDecimal = "isdecimal", IsAlpha = "isalpha", IsAlphanumeric = "isalnum",
    IsSpace = "isspace", IsUpper = "isupper", IsLower = "islower", IsTitle = "istitle", IsAscii = "isascii",
    IsIdentifier = "isidentifier", IsPrintable = "isprintable", Center = "center", LeftJustify = "ljust",
    RightJustify = "rjust", ExpandTabs = "expandtabs", Get = "get", Keys = "keys", Values = "values",
    Items = "items", Copy = "copy", BitLength = "bit_length", BitCount = "bit_count", IsInteger = "is_integer",
    Conjugate = "conjugate", IntegerRatio = "as_integer_ratio", Encode = "encode", Decode = "decode", Hex = "hex",
    FromHex = "fromhex", ToBytes = "to_bytes", FromBytes = "from_bytes", Translate = "translate",
    MakeTranslation = "maketrans", Pop = "pop", PopItem = "popitem", SetDefault = "setdefault", Clear = "clear",
    Update = "update", Append = "append", Extend = "extend", Insert = "insert", Remove = "remove", Reverse = "reverse",
    Sort = "sort",
}

/// Name of a parameter that may be named in a call, and its default.
pub(super) type CallParameter = (&'static str, DefaultArgument);

/// Default of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultArgument {
    None,
    Int(i64),
    Text(&'static str),
}

impl DefaultArgument {
    pub(super) fn value(self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Int(int) => Value::from(int),
            Self::Text(text) => Value::from(text),
        }
    }
}

impl ConditionFunction {
    pub(super) const fn parameters(self) -> &'static [CallParameter] {
        match self {
            Self::Int => &[("", DefaultArgument::None), ("base", DefaultArgument::Int(10))],
            Self::Str => &[
                ("object", DefaultArgument::None),
                ("encoding", DefaultArgument::Text("utf-8")),
                ("errors", DefaultArgument::Text("strict")),
            ],
            Self::RandInt => &[("top", DefaultArgument::None)],
            Self::Float | Self::Rand => &[],
        }
    }
}

impl ConditionMethod {
    pub(super) const fn parameters(self) -> &'static [CallParameter] {
        match self {
            Self::Split | Self::RightSplit => {
                &[("sep", DefaultArgument::None), ("maxsplit", DefaultArgument::Int(-1))]
            }
            Self::SplitLines => &[("keepends", DefaultArgument::Int(0))],
            Self::ExpandTabs => &[("tabsize", DefaultArgument::Int(8))],
            Self::Encode | Self::Decode => {
                &[("encoding", DefaultArgument::Text("utf-8")), ("errors", DefaultArgument::Text("strict"))]
            }
            Self::Hex => &[("sep", DefaultArgument::None), ("bytes_per_sep", DefaultArgument::Int(1))],
            Self::ToBytes => &[
                ("length", DefaultArgument::Int(1)),
                ("byteorder", DefaultArgument::Text("big")),
                ("signed", DefaultArgument::Int(0)),
            ],
            Self::FromBytes => &[
                ("bytes", DefaultArgument::None),
                ("byteorder", DefaultArgument::Text("big")),
                ("signed", DefaultArgument::Int(0)),
            ],
            Self::Translate => &[("", DefaultArgument::None), ("delete", DefaultArgument::None)],
            _ => &[],
        }
    }
}
