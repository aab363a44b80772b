//! A reader that fails at a line above a limit.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// Output of a program that fails at a line above a limit, so that waiting callers fail immediately.
pub(super) struct LineLimit<R> {
    inner: R,
    max_bytes: usize,
    /// Bytes read of the current line.
    read: usize,
}

impl<R> LineLimit<R> {
    pub(super) fn new(inner: R, max_bytes: usize) -> Self {
        Self { inner, max_bytes, read: 0 }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineLimit<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let new = &buffer.filled()[before..];
        self.read = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => new.len() - at - 1,
            None => self.read.saturating_add(new.len()),
        };
        if self.read > self.max_bytes {
            buffer.set_filled(before);
            let text = format!("a line of its output is longer than {} bytes", self.max_bytes);
            return Poll::Ready(Err(std::io::Error::other(text)));
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn long_lines_end_the_output() {
        for (given, fits) in
            [("ab\ncd\n", true), ("abcd\nabcd\nabcd", true), ("abcde", false), ("ab\nabcdefgh\n", true)]
        {
            let mut text = String::new();
            let read = LineLimit::new(given.as_bytes(), 4).read_to_string(&mut text).await;
            // The line reader checks lines that arrive in one piece.
            assert_eq!(read.is_ok(), fits, "{given:?}");
        }
    }
}
