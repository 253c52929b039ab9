//! Settings of a connection to JetStream.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use super::setup::{self, Found, Place};
use super::{ALWAYS, Nats, Shared};
use crate::broker::capability::Capability;
use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::sync::{Arc, Mutex};

/// Builder of a [`Nats`].
#[must_use = "a builder does nothing until it connects"]
pub struct NatsBuilder {
    url: String,
    place: Place,
    login: Option<Login>,
    require_tls: bool,
    root_certificates: Option<PathBuf>,
}

enum Login {
    User(String, String),
    Token(String),
    Credentials(String),
}

impl NatsBuilder {
    pub(super) fn new(url: String, stream: String) -> Self {
        Self {
            url,
            place: Place {
                subject: stream.clone(),
                consumer: String::from("sluicegate"),
                stream,
                create: true,
                max_depth: None,
                max_in_flight: None,
                ack_wait: ACK_WAIT,
                in_memory: false,
                replicas: 1,
            },
            login: None,
            require_tls: false,
            root_certificates: None,
        }
    }

    /// Subject that is published to, without wildcards. Default: the name of the stream.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.place.subject = subject.into();
        self
    }

    /// Name of the durable consumer that all processes share. Default `sluicegate`.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.place.consumer = name.into();
        self
    }

    /// Takes stream and consumer as they are, and makes neither. Default: makes what is missing, and sets the consumer as
    /// asked for here.
    pub const fn existing(mut self) -> Self {
        self.place.create = false;
        self
    }

    /// Most messages in the stream, in flight included: the server refuses more. Default: no bound, or that of a stream
    /// that exists. A stream that exists with another bound is refused.
    pub const fn max_depth(mut self, messages: u64) -> Self {
        self.place.max_depth = Some(messages);
        self
    }

    /// Most messages in the hands of all consumers together. Default: any number.
    pub const fn max_in_flight(mut self, messages: u64) -> Self {
        self.place.max_in_flight = Some(messages);
        self
    }

    /// Time after the last heartbeat when a message is delivered again. Default 30 s.
    ///
    /// Shorter notices sooner that a consumer has died; too short takes work from one that only stumbled.
    pub const fn ack_wait(mut self, time: Duration) -> Self {
        self.place.ack_wait = time;
        self
    }

    /// Keeps the stream in the server's memory, where a restart loses it. Default: in files.
    pub const fn in_memory(mut self) -> Self {
        self.place.in_memory = true;
        self
    }

    /// Servers of a cluster that keep the stream. Default 1.
    pub const fn replicas(mut self, servers: usize) -> Self {
        self.place.replicas = servers;
        self
    }

    /// User and password, in place of those in the URL.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some(Login::User(name.into(), password.into()));
        self
    }

    /// Token in place of a user.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.login = Some(Login::Token(token.into()));
        self
    }

    /// Text of a credentials file, in place of a user.
    pub fn credentials(mut self, text: impl Into<String>) -> Self {
        self.login = Some(Login::Credentials(text.into()));
        self
    }

    /// Refuses to talk without TLS. Default: as the server wants.
    pub const fn require_tls(mut self) -> Self {
        self.require_tls = true;
        self
    }

    /// Trusts the certificates in this file besides those of the system.
    pub fn root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(file.into());
        self
    }

    /// Connects, and finds or makes stream, consumer and the stream of dead letters, `<stream>-dead`.
    ///
    /// # Errors
    /// [`Credentials`](BrokerErrorKind::Credentials), [`Disconnected`](BrokerErrorKind::Disconnected),
    /// [`Missing`](BrokerErrorKind::Missing) where nothing is to be made, and
    /// [`Unsuitable`](BrokerErrorKind::Unsuitable) for a stream on which acking frees nothing (retention by limits), that
    /// drops old messages, that has another bound or another consumer.
    pub async fn connect(self) -> Result<Nats, BrokerError> {
        let client = self.client().await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(PATIENCE);
        let dead = Place {
            stream: format!("{}-dead", self.place.stream),
            subject: format!("{}-dead", self.place.subject),
            max_depth: None,
            max_in_flight: None,
            ..self.place.clone()
        };
        let found = setup::ensure(&context, &self.place).await?;
        let found_dead = setup::ensure(&context, &dead).await?;
        let dead = nats(&client, &context, dead, found_dead, None);
        let main = nats(&client, &context, self.place, found, Some(dead));
        main.bury_exhausted().await?;
        Ok(main)
    }

    async fn client(&self) -> Result<Client, BrokerError> {
        let wrong = |error: &dyn fmt::Display| {
            BrokerError::new(
                BrokerErrorKind::Credentials,
                format!("credentials cannot be read: {error}"),
            )
        };
        let mut options = match &self.login {
            None => ConnectOptions::new(),
            Some(Login::User(name, password)) => {
                ConnectOptions::with_user_and_password(name.clone(), password.clone())
            }
            Some(Login::Token(token)) => ConnectOptions::with_token(token.clone()),
            Some(Login::Credentials(text)) => {
                ConnectOptions::with_credentials(text).map_err(|error| wrong(&error))?
            }
        };
        if self.require_tls {
            options = options.require_tls(true);
        }
        if let Some(file) = &self.root_certificates {
            options = options.add_root_certificates(file.clone());
        }
        options = options
            .request_timeout(Some(PATIENCE))
            .connection_timeout(PATIENCE)
            .reconnect_delay_callback(|attempts| {
                let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(10);
                FIRST_PAUSE
                    .saturating_mul(1 << doublings)
                    .min(LONGEST_PAUSE)
            });
        let servers: Vec<String> = self.url.split(',').map(|url| url.trim().into()).collect();
        options.connect(servers).await.map_err(|error| {
            let kind = match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    BrokerErrorKind::Credentials
                }
                _ => BrokerErrorKind::Disconnected,
            };
            BrokerError::new(kind, format!("no connection to NATS: {error}")).because(error)
        })
    }
}

fn nats(
    client: &Client,
    context: &Context,
    place: Place,
    found: Found,
    dead: Option<Nats>,
) -> Nats {
    let Found { stream, consumer } = found;
    let config = &consumer.cached_info().config;
    let mut capabilities = ALWAYS;
    if stream.cached_info().config.max_messages > 0 {
        capabilities = capabilities.with(Capability::HardDepthBound);
    }
    if config.max_ack_pending > 0 {
        capabilities = capabilities.with(Capability::FleetInFlightBound);
    }
    Nats {
        shared: Arc::new(Shared {
            client: client.clone(),
            context: context.clone(),
            capabilities,
            hold: config.ack_wait,
            max_deliveries: u32::try_from(config.max_deliver)
                .ok()
                .filter(|most| *most > 0),
            strays: Mutex::default(),
            stream,
            consumer,
            place,
            dead,
        }),
    }
}

/// Passwords and tokens are not shown.
impl fmt::Debug for NatsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

const ACK_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
