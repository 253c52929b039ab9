//! A way to the server on which replies are lost, cut off or replaced.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// What happens to replies.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    None,
    /// Requests reach the server, and its replies nobody.
    Swallow,
    /// The connection ends after so many bytes of the next reply.
    Cut(usize),
    /// This takes the place of the next reply.
    Say(Vec<u8>),
    /// So many replies come through, and then that happens.
    After(u64, Box<Fault>),
}

/// Hands everything on between its own port and a server's, but for its fault; dropping it ends it.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    fault: Mutex<Fault>,
    connections: AtomicU64,
}

impl Proxy {
    /// On a thread of its own, so that a test may block.
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.expect("a free port");
        listener.set_nonblocking(true).expect("it can be polled");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            fault: Mutex::new(Fault::None),
            connections: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().expect("a runtime");
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("it is bound");
                tokio::select! {
                    () = accept(listener, server, own) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.shared.fault.lock().expect("nobody panics") = fault;
    }

    /// Connections that were made through it.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // An end of either side is the end of both.
            let _ = hand_on(client, server, &shared).await;
        });
    }
}

async fn hand_on(
    mut client: TcpStream,
    server: SocketAddr,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut replied) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read? {
                0 => return Ok(()),
                read => server.write_all(&asked[..read]).await?,
            },
            read = server.read(&mut replied) => {
                let reply = match read? {
                    0 => return Ok(()),
                    read => &replied[..read],
                };
                match shared.next() {
                    Fault::None | Fault::After(..) => client.write_all(reply).await?,
                    Fault::Swallow => {}
                    Fault::Cut(bytes) => {
                        client.write_all(&reply[..bytes.min(reply.len())]).await?;
                        return Ok(());
                    }
                    Fault::Say(text) => client.write_all(&text).await?,
                }
            }
        }
    }
}

impl Shared {
    /// What happens to this reply; all but silence happens once.
    fn next(&self) -> Fault {
        let mut fault = self.fault.lock().expect("nobody panics");
        match &mut *fault {
            Fault::Swallow => Fault::Swallow,
            Fault::After(replies, then) => {
                *replies -= 1;
                if *replies == 0 {
                    *fault = (**then).clone();
                }
                Fault::None
            }
            _ => std::mem::replace(&mut *fault, Fault::None),
        }
    }
}
