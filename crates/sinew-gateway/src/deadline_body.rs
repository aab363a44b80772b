//! Request bodies with a deadline, independent of their reader.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;

/// A body that fails if it is not complete by its deadline.
pub(crate) struct DeadlineBody {
    body: Body,
    end: Pin<Box<Sleep>>,
}

/// The body was not complete by its deadline.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
struct BodyTooLate;

impl DeadlineBody {
    /// Adds a deadline to a body. An empty body is returned unchanged.
    pub(crate) fn wrap(body: Body, limit: Duration) -> Body {
        if body.is_end_stream() {
            return body;
        }
        Body::new(Self { body, end: Box::pin(tokio::time::sleep(limit)) })
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let body = self.get_mut();
        if body.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(BodyTooLate))));
        }
        Pin::new(&mut body.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
