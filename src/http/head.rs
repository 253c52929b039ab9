//! A request without its body, as rules see it.

use std::any::Any;

use http::{Extensions, HeaderMap, Method, Request, Uri, header};

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Borrows the head of a request.
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Its method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// Its target, as the client spelled it: never a key, see [`Route`](super::Route).
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// Its header fields, of which every one may be forged.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What the server and outer layers know of it.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// One thing that the server or an outer layer has put there.
    #[must_use]
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&'a T> {
        self.extensions.get()
    }

    /// Whether it is a gRPC call, which its content type tells.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// Whether it is a browser's question before the request itself.
    #[must_use]
    pub fn is_preflight(&self) -> bool {
        *self.method == Method::OPTIONS
            && self
                .headers
                .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}
