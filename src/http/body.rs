//! The body of a response: the service's own, or the text of a refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::queue::Turn;

pin_project! {
    /// Body of a response that passed a layer.
    ///
    /// It is the service's body, or what a refusal has to say. It may hold the request's turn until its end.
    pub struct EdgeBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Passed { #[pin] body: B, turn: Option<Turn> },
        Refused { text: Option<String> },
    }
}

impl<B> EdgeBody<B> {
    pub(super) fn passed(body: B, turn: Option<Turn>) -> Self {
        Self {
            content: Content::Passed { body, turn },
        }
    }

    pub(super) fn refused(text: String) -> Self {
        Self {
            content: Content::Refused {
                text: Some(text).filter(|text| !text.is_empty()),
            },
        }
    }
}

impl<B: Body> Body for EdgeBody<B>
where
    B::Data: From<String>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().content.project() {
            ContentProjection::Passed { body, turn } => {
                let frame = ready!(body.poll_frame(cx));
                if !matches!(frame, Some(Ok(_))) {
                    // The end, or an error, which is one.
                    *turn = None;
                }
                Poll::Ready(frame)
            }
            ContentProjection::Refused { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Passed { body, .. } => body.is_end_stream(),
            Content::Refused { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Passed { body, .. } => body.size_hint(),
            Content::Refused { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

impl<B> fmt::Debug for EdgeBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.content {
            Content::Passed { .. } => "EdgeBody(passed)",
            Content::Refused { .. } => "EdgeBody(refused)",
        })
    }
}
