//! An axum service with limits at every level, a login that cannot be guessed at, and a database behind a queue.
//!
//! Look at the statuses. Reports are refused with 429 by the endpoint's limit, for one address at a time; the sixth
//! guess at a password too, whoever it is for; orders that the database could not take in time are refused with 503, and
//! each with a time of its own, while all that got 201 are in the file. The fields tell clients how things stand.
//!
//! It goes on serving until Ctrl-C, and prints commands to try; with `SLUICEGATE_BRIEF=1` it ends after its own requests.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::map_request;
use axum::routing::{get, post};
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rusqlite::Connection;
use sluicegate::http::{AdmissionLayer, Caller, Callers, HeaderDialect, QueueLayer, ResetUnit};
use sluicegate::queue::Builder;
use sluicegate::{FixedWindow, Hierarchy, Rate, SlidingLog, observe};

const MINUTE: Duration = Duration::from_secs(60);

/// What the layer that authenticates puts into a request.
#[derive(Clone)]
struct Session {
    user: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = File::create()?;
    let (router, layers) = service(&file.0)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = router.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, served).await });
    println!("serving on http://{address}\n");

    show(address).await?;
    let rows: i64 =
        Connection::open(&file.0)?
            .query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
    println!("rows in the file: {rows}\n");
    println!(
        "limits: {:?}\nlogin:  {:?}\nqueue:  {:?}",
        layers.limits.counts(),
        layers.login.counts(),
        layers.queue.counts()
    );

    if std::env::var_os("SLUICEGATE_BRIEF").is_none() {
        println!("\ntry, and end with Ctrl-C:");
        println!("  curl -i http://{address}/reports/7 -H 'x-user: grace'");
        println!("  curl -i -X POST http://{address}/login");
        println!(
            "  for i in $(seq 60); do curl -s -o /dev/null -w '%{{http_code}} ' -X POST http://{address}/orders & done; wait"
        );
        println!("  curl -s http://{address}/metrics | grep -v '^#'");
        tokio::signal::ctrl_c().await?;
    }
    server.abort();
    Ok(())
}

struct Layers {
    limits: AdmissionLayer<Hierarchy<Caller>>,
    login: AdmissionLayer<Hierarchy<Caller>>,
    queue: QueueLayer,
}

fn service(file: &Path) -> Result<(Router, Layers), Box<dyn Error>> {
    // Behind a proxy, name it here: `.behind(TrustedProxies::networks(["10.0.0.0/8"])?)`.
    let callers = Callers::builder()
        .user(|head| Some(head.extension::<Session>()?.user.clone()))
        .build()?;
    let levels = Hierarchy::<Caller>::builder()
        .level("global", Rate::per_second(1_000).burst(10_000), |_| ())
        .level("ip", SlidingLog::new(100, MINUTE)?, Caller::address)
        .level("user", Rate::per_second(50).burst(500), Caller::user)
        .level(
            "endpoint",
            FixedWindow::new(50, MINUTE)?,
            Caller::user_at_endpoint,
        )
        .build()?;
    let limits = AdmissionLayer::builder(levels, callers.identities())
        .headers([
            HeaderDialect::ListDraft,
            HeaderDialect::Legacy(ResetUnit::UnixSeconds),
        ])
        .exempt(|head| head.uri().path() == "/metrics")
        .build()?;
    // Five guesses a minute from one address, however many accounts they are for.
    let guesses = Hierarchy::<Caller>::builder()
        .level(
            "login",
            SlidingLog::new(5, MINUTE)?,
            Caller::address_at_endpoint,
        )
        .build()?;
    let login = AdmissionLayer::builder(guesses, callers.identities()).build()?;
    // The database takes 20 orders a second, one at a time; one that could not begin within 1 s is refused.
    let database = Builder::shedding(Rate::per_second(20), Duration::from_secs(1))
        .max_in_flight(1)
        .name("orders-db")
        .turnstile()?;
    let queue = QueueLayer::builder(database).build()?;

    let connection = Arc::new(Mutex::new(Connection::open(file)?));
    let prometheus = observe::prometheus()?;
    let router = Router::new()
        .route("/reports/{id}", get(|| async { "a report\n" }))
        .route(
            "/login",
            post(|| async { (StatusCode::UNAUTHORIZED, "wrong password\n") }).layer(login.clone()),
        )
        .route(
            "/orders",
            post(order).with_state(connection).layer(queue.clone()),
        )
        .route("/metrics", get(async move || prometheus.render()))
        .layer(limits.clone())
        .layer(map_request(authenticate));
    Ok((
        router,
        Layers {
            limits,
            login,
            queue,
        },
    ))
}

/// Stands for the real thing: believes whatever name it is told.
async fn authenticate(mut request: Request) -> Request {
    let user = request
        .headers()
        .get("x-user")
        .and_then(|user| user.to_str().ok());
    if let Some(user) = user.map(str::to_owned) {
        request.extensions_mut().insert(Session { user });
    }
    request
}

/// Writes a row. The queue lets one in at a time, so nobody waits for the lock.
async fn order(State(connection): State<Arc<Mutex<Connection>>>) -> Result<StatusCode, StatusCode> {
    let write = tokio::task::spawn_blocking(move || {
        let connection = connection
            .lock()
            .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let written = connection.execute("INSERT INTO orders DEFAULT VALUES", []);
        written.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    });
    write
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)??;
    Ok(StatusCode::CREATED)
}

type Http = Client<HttpConnector, Empty<Bytes>>;

/// An answer: its status, the fields that limits write, its body.
struct Answer {
    status: u16,
    fields: Vec<String>,
    body: String,
}

async fn ask(http: &Http, request: (&str, String, Option<&str>)) -> Result<Answer, Box<dyn Error>> {
    let (method, target, user) = request;
    let mut request = http::Request::builder().method(method).uri(target);
    if let Some(user) = user {
        request = request.header("x-user", user);
    }
    let response = http.request(request.body(Empty::new())?).await?;
    let told = [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let field = |name: &&str| {
        let value = response.headers().get(*name)?.to_str().ok()?;
        Some(format!("{name}: {value}"))
    };
    let fields = told.iter().filter_map(field).collect();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    let body = String::from_utf8_lossy(&body).trim_end().to_owned();
    Ok(Answer {
        status,
        fields,
        body,
    })
}

async fn show(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let http: Http = Client::builder(TokioExecutor::new()).build_http();
    let target = |path: &str| format!("http://{address}{path}");

    println!("60 reports for ada, each of another number:");
    let mut statuses = BTreeMap::new();
    let mut last = None;
    for id in 0..60 {
        let answer = ask(
            &http,
            ("GET", target(&format!("/reports/{id}")), Some("ada")),
        )
        .await?;
        let first = !statuses.contains_key(&answer.status);
        *statuses.entry(answer.status).or_insert(0) += 1;
        if first {
            println!("  {}  {}", answer.status, answer.fields.join("\n       "));
        }
        last = Some(answer);
    }
    println!("  statuses {statuses:?}");
    println!("  {}", last.map(|answer| answer.body).unwrap_or_default());
    let grace = ask(&http, ("GET", target("/reports/1"), Some("grace"))).await?;
    println!("  and one for grace: {}\n", grace.status);

    println!("8 guesses at a password:");
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(ask(&http, ("POST", target("/login"), None)).await?.status);
    }
    println!("  statuses {statuses:?}\n");

    println!("40 orders at once, where 20 a second can be taken:");
    let orders = (0..40).map(|_| ask(&http, ("POST", target("/orders"), Some("linus"))));
    let mut statuses = BTreeMap::<u16, (u32, Vec<String>)>::new();
    for answer in futures_util::future::try_join_all(orders).await? {
        let (count, fields) = statuses.entry(answer.status).or_default();
        *count += 1;
        fields.extend(
            answer
                .fields
                .into_iter()
                .filter(|field| field.starts_with("retry")),
        );
    }
    for (status, (count, mut fields)) in statuses {
        fields.sort();
        fields.dedup();
        println!("  {count} times {status}  {}", fields.join(", "));
    }
    let metrics = ask(&http, ("GET", target("/metrics"), None)).await?.body;
    let shown = |line: &&str| {
        line.starts_with("sluicegate_queue_drained_total")
            || line.starts_with("sluicegate_queue_offered_total")
    };
    for line in metrics.lines().filter(shown) {
        println!("  {line}");
    }
    Ok(())
}

/// The database's file, removed in the end.
struct File(PathBuf);

impl File {
    fn create() -> Result<Self, rusqlite::Error> {
        let name = format!("sluicegate-edge-{}.db", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        let schema = "CREATE TABLE orders (id INTEGER PRIMARY KEY)";
        Connection::open(&file.0)?.execute_batch(schema)?;
        Ok(file)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Not there, or not ours to remove: nothing else can be done.
        let _ = std::fs::remove_file(&self.0);
    }
}
