//! What the driver's errors mean to us.

use ::redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::error::{Error, Kind};

/// A reply of a batch, in which errors are values.
pub(super) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(failure(error.into())),
        value => Ok(value),
    }
}

/// Why a command that was sent has no reply of its own.
pub(super) fn failure(error: RedisError) -> Error {
    let reply = || error.to_string();
    let kind = match error.kind() {
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::NoScript => Kind::NoScript,
            ServerErrorKind::ReadOnly => Kind::ReadOnly,
            ServerErrorKind::CrossSlot => Kind::CrossSlot,
            ServerErrorKind::NoPerm => Kind::Denied { reply: reply() },
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => Kind::NotReady { reply: reply() },
            _ => by_code(error.code().unwrap_or_default(), reply()),
        },
        ErrorKind::Extension => by_code(error.code().unwrap_or_default(), reply()),
        ErrorKind::AuthenticationFailed => Kind::Denied { reply: reply() },
        ErrorKind::ClusterConnectionNotFound => Kind::Unreachable,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Kind::Unexpected { reply: reply() },
        // Whatever else ends a command has ended its connection.
        _ => Kind::Lost,
    };
    Error::caused(kind, error)
}

/// What a script says of a decision that failed among others.
pub(super) fn told(reply: String) -> Error {
    let code = reply.split(' ').next().unwrap_or_default().to_owned();
    Error::new(by_code(&code, reply))
}

/// Why there is no connection.
pub(super) fn no_connection(error: RedisError) -> Error {
    let reply = || error.to_string();
    let kind = match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Kind::Denied { reply: reply() }
        }
        ErrorKind::Server(_) | ErrorKind::Extension => match failure(error.clone()).kind() {
            kind @ (Kind::Denied { .. } | Kind::NotReady { .. }) => kind.clone(),
            _ => Kind::Unreachable,
        },
        ErrorKind::InvalidClientConfig => Kind::Setting { rule: reply() },
        _ => Kind::Unreachable,
    };
    Error::caused(kind, error)
}

/// Why an address cannot be used.
pub(super) fn setting(error: RedisError) -> Error {
    // The driver's message never quotes the address, which may hold a password.
    let rule = format!("the address of the server cannot be used: {error}");
    Error::caused(Kind::Setting { rule }, error)
}

fn by_code(code: &str, reply: String) -> Kind {
    match code {
        "OOM" => Kind::OutOfMemory,
        "WRONGTYPE" | STRANGE => Kind::WrongType { reply },
        "WRONGPASS" | "NOAUTH" | "NOPERM" => Kind::Denied { reply },
        "BUSY" | "MISCONF" | "NOREPLICAS" | "LOADING" | "UNKILLABLE" => Kind::NotReady { reply },
        // A script that meets such an error reports it inside its own.
        _ if reply.contains("WRONGTYPE") || reply.contains(STRANGE) => Kind::WrongType { reply },
        _ if DENIALS.iter().any(|denial| reply.contains(denial)) => Kind::Denied { reply },
        _ if reply.contains("OOM ") => Kind::OutOfMemory,
        _ if reply.contains("READONLY") => Kind::ReadOnly,
        _ if reply.contains("MISCONF") => Kind::NotReady { reply },
        _ => Kind::Refused { reply },
    }
}

/// How servers say that the user of a script may not do what it does, the older ones first.
const DENIALS: [&str; 3] = [
    "The user executing the script can't",
    "ACL failure in script",
    "NOPERM",
];

/// Code with which our scripts say that what lies under a key is not theirs.
pub(super) const STRANGE: &str = "STRANGE";
