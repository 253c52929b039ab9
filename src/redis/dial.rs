//! Making the driver's connection to an endpoint.

use std::time::Duration;

use ::redis::cluster::ClusterClientBuilder;
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, TlsCertificates,
};

use super::endpoint::Endpoint;
use super::error::{Error, Kind};
use super::link::Connection;
use super::reply;

/// Whether the addresses can be read.
pub(super) fn check(endpoint: &Endpoint) -> Result<(), Error> {
    for url in &endpoint.nodes {
        let info = info(endpoint, url)?;
        if endpoint.cluster && matches!(info.addr(), ConnectionAddr::Unix(_)) {
            let rule = "a node of a cluster has a host and a port".into();
            return Err(Error::new(Kind::Setting { rule }));
        }
    }
    Ok(())
}

/// Connects, in the newest protocol that the server speaks. `on_lost` runs when the connection ends, where the protocol
/// tells.
pub(super) async fn dial(
    endpoint: &Endpoint,
    on_lost: impl Fn() + Send + Sync + 'static,
) -> Result<Connection, Error> {
    if endpoint.nodes.iter().any(|url| is_tls(url)) {
        choose_crypto();
    }
    if endpoint.cluster {
        return cluster(endpoint).await;
    }
    let url = endpoint.nodes.first().map_or("", String::as_str);
    let info = info(endpoint, url)?;
    let newest = with_protocol(info.clone(), ProtocolVersion::RESP3);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(endpoint.connect_timeout))
        // Every command has a deadline of its own.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFERED);
    let told = config.clone().set_push_sender(move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            on_lost();
        }
        Ok::<_, RedisError>(())
    });
    let newest = client(endpoint, newest)?;
    let made = newest.get_multiplexed_async_connection_with_config(&told);
    let made = match made.await {
        Err(error) if is_old_protocol(&error) => {
            let older = client(endpoint, with_protocol(info, ProtocolVersion::RESP2))?;
            older
                .get_multiplexed_async_connection_with_config(&config)
                .await
        }
        made => made,
    };
    made.map(Connection::One).map_err(reply::no_connection)
}

async fn cluster(endpoint: &Endpoint) -> Result<Connection, Error> {
    let nodes: Result<Vec<_>, _> = endpoint
        .nodes
        .iter()
        .map(|url| info(endpoint, url))
        .collect();
    let mut builder = ClusterClientBuilder::new(nodes?)
        // A script that had run before its connection was lost would run twice.
        .retries(0)
        .connection_timeout(endpoint.connect_timeout)
        // The driver's default is shorter than what a caller may allow; callers have deadlines of their own.
        .response_timeout(LONGEST_REPLY)
        .tcp_settings(tcp());
    if endpoint.root.is_some() || endpoint.client.is_some() {
        builder = builder.certs(certificates(endpoint));
    }
    let client = builder.build().map_err(reply::setting)?;
    let made = client.get_async_connection().await;
    made.map(Connection::Many).map_err(reply::no_connection)
}

fn info(endpoint: &Endpoint, url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(reply::setting)?;
    let mut settings = info.redis_settings().clone();
    if let Some((user, password)) = &endpoint.credentials {
        settings = settings.set_username(user).set_password(password);
    }
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp()))
}

fn with_protocol(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings)
}

fn client(endpoint: &Endpoint, info: ConnectionInfo) -> Result<Client, Error> {
    let client = match endpoint.root.is_some() || endpoint.client.is_some() {
        true => Client::build_with_tls(info, certificates(endpoint)),
        false => Client::open(info),
    };
    client.map_err(reply::setting)
}

fn certificates(endpoint: &Endpoint) -> TlsCertificates {
    let client = endpoint.client.clone();
    TlsCertificates {
        client_tls: client.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: endpoint.root.clone(),
    }
}

/// Small commands leave at once, and a peer that vanished without a word is noticed.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED);
    settings
}

fn is_tls(url: &str) -> bool {
    url.starts_with("rediss:") || url.starts_with("valkeys:")
}

/// Whether the server, or what stands before it, does not know how to choose a protocol.
fn is_old_protocol(error: &RedisError) -> bool {
    // The driver knows the words of older servers only.
    let refuses = |text: &str| text.contains("unknown command") && text.contains("HELLO");
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(refuses)
}

/// The driver asks for the process's cryptography, and panics if it finds two to choose from.
fn choose_crypto() {
    // An application that has chosen keeps its choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Commands waiting to be written, before their callers wait to hand over theirs.
const BUFFERED: usize = 2_000;
/// Longest time for which sent bytes may stay unacknowledged before the connection counts as dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
const LONGEST_REPLY: Duration = Duration::from_secs(60);
