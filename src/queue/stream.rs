//! A receiver as a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::job::Job;
use super::receiver::{Receiver, poll_recv};

/// Yields what [`recv`](Receiver::recv) does, and ends as it does. Nothing is fetched ahead: a job departs at the poll
/// that yields it.
///
/// # Cancel safety
/// Dropped, or left between two polls, it loses no job: one that it was woken for goes to the next consumer.
impl<T> Stream for Receiver<T> {
    type Item = Job<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Job<T>>> {
        let mut place = self.place;
        let next = poll_recv(self.core(), &mut place, cx);
        self.place = place;
        next
    }
}
