//! Which endpoint a request is for, out of a closed set.

use std::fmt;
use std::hash::{Hash, Hasher};

use http::Method;

use super::head::Head;
use crate::key::{IntoKey, Key};
use crate::sync::Arc;

/// Endpoint of a request: its method, and the template of its route; never the path as the client spelled it.
///
/// With feature `axum` the template is axum's, where the layer is inside of its router (`Router::route_layer`, or
/// `Router::layer` on the router that has the routes). Elsewhere an outer layer inserts a [`RouteTemplate`], or the paths
/// are [listed](super::CallersBuilder::known_paths). Whatever has none is `unmatched`, all of it one endpoint.
#[derive(Clone)]
pub struct Route {
    method: &'static str,
    template: Template,
}

#[derive(Clone)]
enum Template {
    Known(Arc<str>),
    #[cfg(feature = "axum")]
    Matched(axum::extract::MatchedPath),
    Unmatched,
}

/// Extension of a request by which a router names the template of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTemplate(pub std::sync::Arc<str>);

impl Route {
    pub(super) fn of(head: &Head<'_>, known: &[Arc<str>]) -> Self {
        Self {
            method: label(head.method()),
            template: Template::of(head, known),
        }
    }

    /// Method as a label: one of the nine of HTTP, or `other`.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        self.method
    }

    /// Template of the route, or `unmatched`.
    #[must_use]
    pub fn template(&self) -> &str {
        match &self.template {
            Template::Known(template) => template,
            #[cfg(feature = "axum")]
            Template::Matched(matched) => matched.as_str(),
            Template::Unmatched => UNMATCHED,
        }
    }
}

impl Template {
    fn of(head: &Head<'_>, known: &[Arc<str>]) -> Self {
        if let Some(RouteTemplate(template)) = head.extension() {
            return Self::Known(Arc::clone(template));
        }
        #[cfg(feature = "axum")]
        if let Some(matched) = head.extension::<axum::extract::MatchedPath>() {
            return Self::Matched(matched.clone());
        }
        let path = head.uri().path();
        match known.binary_search_by(|known| (**known).cmp(path)) {
            Ok(index) => Self::Known(Arc::clone(&known[index])),
            Err(_) => Self::Unmatched,
        }
    }
}

fn label(method: &Method) -> &'static str {
    const KNOWN: [(Method, &str); 9] = [
        (Method::GET, "GET"),
        (Method::POST, "POST"),
        (Method::PUT, "PUT"),
        (Method::DELETE, "DELETE"),
        (Method::PATCH, "PATCH"),
        (Method::HEAD, "HEAD"),
        (Method::OPTIONS, "OPTIONS"),
        (Method::TRACE, "TRACE"),
        (Method::CONNECT, "CONNECT"),
    ];
    let known = KNOWN.iter().find(|(known, _)| known == method);
    known.map_or("other", |(_, label)| label)
}

/// The same method and the same template.
impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        (self.method, self.template()) == (other.method, other.template())
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.method, self.template()).hash(state);
    }
}

impl From<&Route> for Key {
    fn from(route: &Route) -> Self {
        let parts = (route.method, route.template()).into_key();
        parts.expect("both parts are there")
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.template())
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({self})")
    }
}

const UNMATCHED: &str = "unmatched";
