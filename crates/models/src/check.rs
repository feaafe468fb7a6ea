//! Errors of device sheets, and the checks of their fields.

use std::fmt;

/// The reason why a sheet or preset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SheetError {
    /// The text is not TOML, or a field is missing, unknown or of the wrong type.
    Syntax {
        /// The name of the sheet.
        file: String,
        /// The place and the problem.
        message: String,
    },
    /// A value is out of its range.
    Value {
        /// The name of the sheet.
        file: String,
        /// `table.field`.
        field: String,
        /// The fault, and the values that are allowed.
        message: String,
    },
    /// There is no preset of that name.
    Unknown {
        /// The name that was given.
        name: String,
        /// The most similar existing name.
        nearest: String,
    },
}

impl fmt::Display for SheetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SheetError::Syntax { file, message } => write!(f, "device sheet {file}: {message}"),
            SheetError::Value {
                file,
                field,
                message,
            } => write!(f, "device sheet {file}: {field}: {message}"),
            SheetError::Unknown { name, .. } if name.contains('/') || name.contains('.') => {
                write!(
                    f,
                    "`{name}` is no device preset, and a data sheet of your own must have a name that ends in .toml (`isotherm devices` lists \
                     the presets)"
                )
            }
            SheetError::Unknown { name, nearest } => {
                write!(
                    f,
                    "no device preset `{name}`; did you mean `{nearest}`? `isotherm devices` lists them all"
                )
            }
        }
    }
}

impl std::error::Error for SheetError {}

impl SheetError {
    pub(crate) fn syntax(file: &str, error: &toml::de::Error) -> SheetError {
        SheetError::Syntax {
            file: file.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        }
    }
}

/// Range checks whose errors name the sheet and the field.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    pub file: &'a str,
    pub table: &'a str,
}

impl Check<'_> {
    pub fn bad(&self, field: &str, message: &str) -> SheetError {
        let dot = if self.table.is_empty() { "" } else { "." };
        SheetError::Value {
            file: self.file.to_owned(),
            field: format!("{}{dot}{field}", self.table),
            message: message.to_owned(),
        }
    }

    pub fn at_least(&self, field: &str, value: f64, min: f64) -> Result<(), SheetError> {
        // The condition is not written as `value < min`, because a NaN must fail, too.
        if value >= min && value.is_finite() {
            return Ok(());
        }
        Err(self.bad(
            field,
            &format!("{value} is too small, at least {min} is needed"),
        ))
    }

    pub fn within(&self, field: &str, value: f64, min: f64, max: f64) -> Result<(), SheetError> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(self.bad(field, &format!("{value} is not within {min}..{max}")))
    }
}
