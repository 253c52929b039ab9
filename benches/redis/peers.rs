//! The other side of a row: the least scripts, run by the driver and nothing else.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, cmd};

use crate::ours::Caller;
use crate::server::Server;

/// The least that keeps a rate with a burst: the generic cell rate algorithm for whole microseconds, one unit, and
/// neither waits nor what is left in its answer.
pub(crate) const LEAST: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = tonumber(redis.call('GET', KEYS[1]) or 0)
if at < now then at = now end
at = at + ARGV[1]
if at - now > ARGV[2] + 0 then return 0 end
redis.call('SET', KEYS[1], at, 'PX', math.ceil((at - now) / 1000))
return 1";

/// Its three commands, which decide nothing.
pub(crate) const COMMANDS: &str = "\
local time = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], time[1], 'PX', ARGV[1])
return 1";

/// Nothing at all.
pub(crate) const BARE: &str = "return 1";

/// A script, and the connection it runs over.
#[derive(Clone)]
pub(crate) struct Peer {
    connection: MultiplexedConnection,
    digest: String,
    arguments: &'static [u64],
}

impl Peer {
    /// Connects as shared limits do, and loads the script.
    pub(crate) async fn new(server: &Server, script: &str, arguments: &'static [u64]) -> Self {
        let info = server
            .url()
            .into_connection_info()
            .expect("a valid address");
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(2_000);
        let client = Client::open(info).expect("a valid address");
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await.expect("the server is there");
        let mut load = cmd("SCRIPT");
        let load = load.arg("LOAD").arg(script).query_async(&mut connection);
        Self {
            digest: load.await.expect("a script without mistakes"),
            connection,
            arguments,
        }
    }

    pub(crate) async fn run(&mut self, caller: Caller) {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(1).arg(key(caller));
        for argument in self.arguments {
            command.arg(argument);
        }
        let granted: i64 = command
            .query_async(&mut self.connection)
            .await
            .expect("an answer");
        assert_eq!(granted, 1);
    }
}

/// As long as ours, and never the same.
fn key(caller: Caller) -> String {
    format!("{{sluicegate}}:least:t:{caller:010}")
}
