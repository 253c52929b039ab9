//! The fragile database: one SQLite file, a pool of connections, and write transactions as a shop would have them.
//!
//! SQLite lets one writer in at a time. A writer that finds the file locked tries again for the busy timeout of its
//! connection and then fails with "database is locked". Nothing here makes it fail: that is left to the callers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::Semaphore;

/// One job: an order to be written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    id: i64,
    amount: i64,
}

impl Order {
    /// Makes the order of this number; amounts differ, so that a sum tells which orders it holds.
    pub(crate) fn numbered(number: usize) -> Self {
        let id = i64::try_from(number).expect("jobs are counted, not that many");
        let amount = 100 + id * 7919 % 900;
        Self { id, amount }
    }

    fn customer(self) -> i64 {
        self.id * 31 % CUSTOMERS
    }
}

/// Rows and their sum: what the file holds, or what was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) amount: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, order: Order) {
        self.rows += 1;
        self.amount += order.amount.unsigned_abs();
    }
}

/// A handle on one database file and its pool.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    room: Semaphore,
    free: Mutex<Vec<Connection>>,
    writing: AtomicUsize,
    most_writing: AtomicUsize,
}

impl Database {
    /// Makes the file with its past payments, and opens the pool.
    pub(crate) fn create(
        path: PathBuf,
        connections: usize,
        history: i64,
    ) -> rusqlite::Result<Self> {
        let mut first = open(&path)?;
        first.execute_batch(SCHEMA)?;
        let filling = first.transaction()?;
        {
            let mut payment =
                filling.prepare("INSERT INTO payments (customer, amount) VALUES (?1, ?2)")?;
            for row in 0..history {
                payment.execute([row % CUSTOMERS, 1 + row % 50])?;
            }
        }
        filling.commit()?;
        let mut free = vec![first];
        while free.len() < connections {
            free.push(open(&path)?);
        }
        let pool = Pool {
            room: Semaphore::new(connections),
            free: Mutex::new(free),
            writing: AtomicUsize::new(0),
            most_writing: AtomicUsize::new(0),
        };
        Ok(Self {
            path,
            pool: Arc::new(pool),
        })
    }

    /// Writes one order on a connection of the pool, waiting for one while all are taken.
    pub(crate) async fn write(&self, order: Order) -> rusqlite::Result<()> {
        let pool = Arc::clone(&self.pool);
        let _room = self
            .pool
            .room
            .acquire()
            .await
            .expect("the pool is never closed");
        tokio::task::spawn_blocking(move || pool.write(order))
            .await
            .expect("a write does not panic")
    }

    /// Mean time of some writes that have the file to themselves.
    pub(crate) fn time_alone(&self, writes: u32) -> rusqlite::Result<Duration> {
        let start = Instant::now();
        for number in 0..writes {
            self.pool.write(Order::numbered(number as usize))?;
        }
        Ok(start.elapsed() / writes)
    }

    /// What the file holds, read on a connection of its own.
    pub(crate) fn totals(&self) -> rusqlite::Result<Totals> {
        let select = "SELECT count(*), coalesce(sum(amount), 0) FROM orders";
        open(&self.path)?.query_row(select, [], |row| {
            let count = |column| row.get(column).map(i64::unsigned_abs);
            Ok(Totals {
                rows: count(0)?,
                amount: count(1)?,
            })
        })
    }

    /// Most writers that were inside a write at once.
    pub(crate) fn most_writing(&self) -> usize {
        self.pool.most_writing.load(Ordering::Relaxed)
    }
}

impl Pool {
    fn write(&self, order: Order) -> rusqlite::Result<()> {
        let mut free = self.free.lock().expect("no holder panics");
        let mut connection = free
            .pop()
            .expect("a place in the pool stands for a connection");
        drop(free);
        // Relaxed is enough for both: they are read when all writers have been joined.
        let writing = self.writing.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_writing.fetch_max(writing, Ordering::Relaxed);
        let result = place(&mut connection, order);
        self.writing.fetch_sub(1, Ordering::Relaxed);
        self.free.lock().expect("no holder panics").push(connection);
        result
    }
}

/// The transaction: a credit check over the payments so far, the order, and the customer's balance.
fn place(connection: &mut Connection, order: Order) -> rusqlite::Result<()> {
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        // Payments have no index on the customer, as it happens; so each check reads them all.
        let mut check = write
            .prepare_cached("SELECT coalesce(sum(amount), 0) FROM payments WHERE customer = ?1")?;
        let paid: i64 = check.query_row([order.customer()], |row| row.get(0))?;
        let mut insert = write.prepare_cached(
            "INSERT INTO orders (id, customer, amount, paid_before) VALUES (?1, ?2, ?3, ?4)",
        )?;
        insert.execute(params![order.id, order.customer(), order.amount, paid])?;
        let mut update =
            write.prepare_cached("UPDATE customers SET owed = owed + ?2 WHERE id = ?1")?;
        update.execute([order.customer(), order.amount])?;
    }
    write.commit()
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // As most have it: a write-ahead log that outlives the process, and is synced at checkpoints. Syncs at each commit
    // would make the figures those of whatever else writes to the disk.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}

/// How long a writer waits for the file, as long as a request can afford.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

const CUSTOMERS: i64 = 500;

const SCHEMA: &str = "
    CREATE TABLE customers (id INTEGER PRIMARY KEY, owed INTEGER NOT NULL);
    CREATE TABLE payments (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, amount INTEGER NOT NULL);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, amount INTEGER NOT NULL, paid_before INTEGER NOT NULL
    );
    CREATE INDEX orders_by_customer ON orders (customer, amount);
    WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < 499)
        INSERT INTO customers (id, owed) SELECT id, 0 FROM ids;
";
