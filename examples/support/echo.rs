//! A gRPC service of one method, `demo.Echo/Say`, without generated code: messages are plain text.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut};
use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tower::Service;

/// Path of the method.
pub(crate) const SAY: &str = "/demo.Echo/Say";

/// The service: says what it was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "demo.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let say = tower::service_fn(|request: Request<String>| async move {
                Ok::<_, Status>(Response::new(request.into_inner()))
            });
            Ok(tonic::server::Grpc::new(Text).unary(say, request).await)
        })
    }
}

/// Calls the method.
pub(crate) async fn say(
    channel: &Channel,
    request: Request<String>,
) -> Result<Response<String>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    client
        .unary(request, PathAndQuery::from_static(SAY), Text)
        .await
}

/// Text as messages.
#[derive(Clone, Copy, Debug, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let text = String::from_utf8(bytes.to_vec());
        text.map(Some)
            .map_err(|_| Status::invalid_argument("the message is no text"))
    }
}
