//! What else is served at the port: pages that have paths, checks and answers of their own. The console is one.

use std::convert::Infallible;
use std::pin::Pin;

use hyper::body::{Body, Bytes, Incoming};
use hyper::{Request, Response};

/// Pages that are served beside MCP, at paths of their own. Nothing is checked before a request reaches them.
pub trait Annex: Send + Sync {
    /// Whether everything at this path is theirs.
    fn owns(&self, path: &str) -> bool;
    /// Answers a request.
    fn respond<'a>(&'a self, request: Request<&'a mut Incoming>) -> AnnexAnswer<'a>;
    /// Ends the answers that have no end of their own, because the server shuts down.
    fn end(&self);
}

/// The body of an answer of an [`Annex`].
pub type AnnexBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;
/// An answer of an [`Annex`], when it is there.
pub type AnnexAnswer<'a> = Pin<Box<dyn Future<Output = Response<AnnexBody>> + Send + 'a>>;
