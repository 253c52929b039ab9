//! Jobs that ended without an acknowledgement: kept on the server, to be looked at and put back.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserialize;

use super::codec::{Codec, Json};
use super::core::{Core, unexpected};
use super::delivery::headers_of;
use super::error::{Error, ErrorKind};
use super::store::{bytes, natural, text};
use crate::redis::link::Value;
use crate::sync::Arc;
use crate::tick::Tick;
use crate::words::Exit;

/// One death of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Death {
    /// How it left; `None` if it is a word of a later version.
    pub exit: Option<Exit>,
    /// When, on the server's clock.
    pub at: Tick,
    /// Starts it had had since it was offered or put back.
    pub attempts: u32,
    /// What the consumer gave as the cause, the last time it gave one.
    pub cause: Option<String>,
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    exit: String,
    #[serde(default)]
    died: String,
    #[serde(default)]
    attempts: f64,
    cause: Option<String>,
}

impl Death {
    pub(super) fn read(history: &str) -> Vec<Self> {
        let written: Vec<Written> = serde_json::from_str(history).unwrap_or_default();
        let deaths = written.into_iter().map(|of| Self {
            exit: exit_of(&of.exit),
            at: Core::tick(of.died.parse().unwrap_or(0)),
            // A cast saturates.
            attempts: of.attempts as u32,
            cause: of.cause.filter(|cause| !cause.is_empty()),
        });
        deaths.collect()
    }
}

fn exit_of(word: &str) -> Option<Exit> {
    Exit::ALL.into_iter().find(|exit| exit.as_str() == word)
}

/// A job that left the queue without an acknowledgement.
#[non_exhaustive]
pub struct DeadLetter<T> {
    /// Its name on the server.
    pub id: String,
    /// The item, if the payload can be read.
    pub item: Option<T>,
    /// The payload, as it was offered.
    pub payload: Vec<u8>,
    /// The [id](super::Offer::id) of its offer.
    pub offer_id: Option<String>,
    /// The headers of its offer.
    pub headers: BTreeMap<String, String>,
    /// Time from its offer to its death.
    pub waited: Duration,
    /// How it died this time.
    pub death: Death,
    /// How it had died before, oldest first.
    pub history: Vec<Death>,
}

impl<T> fmt::Debug for DeadLetter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("id", &self.id)
            .field("death", &self.death)
            .field("history", &self.history.len())
            .finish_non_exhaustive()
    }
}

/// Handle to the dead letters of a queue, which all processes share.
///
/// Looking at letters takes none away. The server keeps as many as
/// [`Builder::dead_letters`](super::Builder::dead_letters) says.
pub struct DeadLetters<T, C = Json> {
    core: Arc<Core>,
    codec: C,
    items: PhantomData<fn() -> T>,
}

impl<T, C: Codec<T>> DeadLetters<T, C> {
    pub(super) fn new(core: &Arc<Core>, codec: C) -> Self {
        Self {
            core: Arc::clone(core),
            codec,
            items: PhantomData,
        }
    }

    /// The oldest letters, up to `most`.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn list(&self, most: usize) -> Result<Vec<DeadLetter<T>>, Error> {
        self.list_after(None, most).await
    }

    /// The letters after the one of this id, up to `most`: the next page.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn list_after(
        &self,
        id: Option<&str>,
        most: usize,
    ) -> Result<Vec<DeadLetter<T>>, Error> {
        let from = id.map_or_else(|| "-".into(), |id| format!("({id}"));
        let letters = self.core.store.letters(&from, most).await?;
        Ok(letters
            .into_iter()
            .filter_map(|of| self.letter(of))
            .collect())
    }

    fn letter(&self, entry: Value) -> Option<DeadLetter<T>> {
        let Value::Array(parts) = entry else {
            return None;
        };
        let mut parts = parts.into_iter();
        let id = text(&parts.next()?);
        let Value::Array(flat) = parts.next()? else {
            return None;
        };
        let mut flat = flat.into_iter();
        let mut fields: BTreeMap<String, Value> = BTreeMap::new();
        while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
            fields.insert(text(&name), value);
        }
        let of = |name: &str| fields.get(name).map(text).filter(|of| !of.is_empty());
        let died = Core::tick(natural(fields.get("d")));
        let offered = Core::tick(natural(fields.get("t")));
        let death = Death {
            exit: of("x").as_deref().and_then(exit_of),
            at: died,
            attempts: u32::try_from(natural(fields.get("n"))).unwrap_or(u32::MAX),
            cause: of("e"),
        };
        let (offer_id, headers) = (of("i"), headers_of(&of("m").unwrap_or_default()));
        let history = Death::read(&of("h").unwrap_or_default());
        let payload = fields.remove("p").map(bytes).unwrap_or_default();
        Some(DeadLetter {
            id,
            item: self.codec.decode(&payload).ok(),
            payload,
            offer_id,
            headers,
            waited: died - offered,
            death,
            history,
        })
    }

    /// Puts one letter back into the queue, at its end; `false` if it is not there any more.
    ///
    /// Its attempts begin anew, and its history tells of this death.
    ///
    /// # Errors
    /// [`NoRoom`](super::ErrorKind::NoRoom) if the queue is full or closed, or a server that does not answer.
    pub async fn redrive(&self, id: &str) -> Result<bool, Error> {
        Ok(self.page("back", "", "-", &[id.as_bytes()]).await?.0 > 0)
    }

    /// Puts all letters back that were there when this began, as far as there is room, oldest first; how many.
    ///
    /// # Errors
    /// As [`redrive`](Self::redrive); those put back so far are in the queue.
    pub async fn redrive_all(&self) -> Result<u64, Error> {
        self.all("back", "").await
    }

    /// Puts those letters back that left in this way.
    ///
    /// # Errors
    /// As [`redrive_all`](Self::redrive_all).
    pub async fn redrive_exit(&self, exit: Exit) -> Result<u64, Error> {
        self.all("back", exit.as_str()).await
    }

    /// Deletes one letter; `false` if it is not there any more.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn remove(&self, id: &str) -> Result<bool, Error> {
        Ok(self.page("remove", "", "-", &[id.as_bytes()]).await?.0 > 0)
    }

    async fn all(&self, what: &str, exit: &str) -> Result<u64, Error> {
        // Letters that are written while this goes on, by jobs that die again, are not for it.
        let Some(last) = self.core.store.last_letter().await? else {
            return Ok(0);
        };
        let (mut from, mut moved) = (String::from("-"), 0);
        loop {
            let page = self.page_until(what, exit, &from, &last).await;
            let (some, go_on) = match page {
                Ok(page) => page,
                Err(error) => {
                    return Err(match error.kind() {
                        ErrorKind::NoRoom { moved: some } => ErrorKind::NoRoom {
                            moved: moved + some,
                        }
                        .into(),
                        _ => error,
                    });
                }
            };
            moved += some;
            if go_on.is_empty() {
                return Ok(moved);
            }
            from = go_on;
        }
    }

    async fn page(
        &self,
        what: &str,
        exit: &str,
        from: &str,
        ids: &[&[u8]],
    ) -> Result<(u64, String), Error> {
        let page = PAGE.to_string();
        let mut arguments: Vec<&[u8]> = vec![
            what.as_bytes(),
            exit.as_bytes(),
            from.as_bytes(),
            b"+",
            page.as_bytes(),
        ];
        arguments.extend(ids);
        self.ask(&arguments).await
    }

    async fn page_until(
        &self,
        what: &str,
        exit: &str,
        from: &str,
        last: &str,
    ) -> Result<(u64, String), Error> {
        let page = PAGE.to_string();
        self.ask(&[
            what.as_bytes(),
            exit.as_bytes(),
            from.as_bytes(),
            last.as_bytes(),
            page.as_bytes(),
        ])
        .await
    }

    async fn ask(&self, arguments: &[&[u8]]) -> Result<(u64, String), Error> {
        let store = &self.core.store;
        let (word, reply) = store.call(&store.scripts.redrive, None, arguments).await?;
        let moved = natural(reply.first());
        match word.as_str() {
            "ok" => Ok((moved, reply.get(1).map(text).unwrap_or_default())),
            "full" | "closed" => Err(ErrorKind::NoRoom { moved }.into()),
            _ => Err(unexpected(&word)),
        }
    }
}

impl<T, C: Clone> Clone for DeadLetters<T, C> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            codec: self.codec.clone(),
            items: PhantomData,
        }
    }
}

impl<T, C> fmt::Debug for DeadLetters<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("queue", &self.core.name)
            .finish_non_exhaustive()
    }
}

/// Letters that one question moves: the server does nothing else meanwhile.
const PAGE: usize = 100;
