//! Four levels before one service, and five kinds of callers, for three minutes.
//!
//! Look at who is refused by which level: the scraper, who asks for many routes, by its address, and with it a user
//! behind the same address; the importer by its one endpoint, while its other calls pass; the burst of a script by its
//! user's bucket. A refusal is charged to nobody: what is left at each level is the limit less what passed.

use std::net::IpAddr;
use std::time::Duration;

use sluicegate::{FixedWindow, Hierarchy, IntoKey, Key, ManualClock, Rate, Ruling, SlidingLog};

const MINUTE: Duration = Duration::from_secs(60);
const SECONDS: usize = 180;

#[derive(Clone, Copy)]
struct Request {
    address: IpAddr,
    user: Option<&'static str>,
    route: &'static str,
}

/// A caller, the routes that it asks for in turn, and how many requests it sends in a given second.
struct Caller {
    name: &'static str,
    request: Request,
    routes: &'static [&'static str],
    sends: fn(usize) -> usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let hierarchy = Hierarchy::<Request>::builder()
        .level("global", Rate::per_second(1000).burst(10_000), |_| ())
        .level("ip", SlidingLog::new(100, MINUTE)?, |request| {
            request.address
        })
        .level("user", Rate::per_second(50).burst(500), |request| {
            request.user
        })
        .level("endpoint", FixedWindow::new(50, MINUTE)?, |request| {
            // Without a user the address stands in, or all guests would share one count.
            let who = request.user.map_or(Key::from(request.address), Key::from);
            (who, request.route).into_key()
        })
        // Limits follow the plan: whoever is on trial has a small bucket.
        .limit_for("user", |request| {
            (request.user == Some("trial")).then(|| Rate::per_second(1).burst(10).into())
        })
        .clock(clock.clone())
        .build()?;
    for (name, limit) in hierarchy.levels() {
        println!("{name:9} {limit}");
    }

    let callers = callers();
    let mut columns = vec![Vec::new(); callers.len()];
    let mut refused = vec![[0_usize; 4]; callers.len()];
    let names: Vec<_> = hierarchy
        .levels()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut granted_in_all = 0;
    for second in 0..SECONDS {
        let most = callers
            .iter()
            .map(|caller| (caller.sends)(second))
            .max()
            .unwrap_or(0);
        let mut counts = vec![(0, 0); callers.len()];
        // One request of each in turn, so that nobody comes first with all of his.
        for round in 0..most {
            for (index, caller) in callers.iter().enumerate() {
                if round >= (caller.sends)(second) {
                    continue;
                }
                let request = Request {
                    route: caller.routes[round % caller.routes.len()],
                    ..caller.request
                };
                let ruling: Ruling = hierarchy.check(&request, 1);
                counts[index].0 += 1;
                counts[index].1 += usize::from(ruling.is_granted());
                if let Some(level) = ruling.binding() {
                    let level = names.iter().position(|name| **name == *level);
                    refused[index][level.unwrap_or(0)] += 1;
                }
            }
        }
        for (column, (sent, passed)) in columns.iter_mut().zip(counts) {
            granted_in_all += passed;
            column.push((sent, passed));
        }
        clock.advance(Duration::from_secs(1));
    }

    println!("\nShare that passed, in steps of 2 s (█ all, · none, blank: nothing sent)\n");
    for (caller, column) in callers.iter().zip(&columns) {
        println!("{:22}|{}|", caller.name, chart(column));
    }
    println!("{:22} 0{:>29}{:>30}{:>30} s\n", "", 60, 120, 180);
    println!(
        "{:22}{:>8}{:>8}   refused by ip   user   endpoint",
        "", "sent", "passed"
    );
    for ((caller, column), refused) in callers.iter().zip(&columns).zip(&refused) {
        let sum = |pick: fn(&(usize, usize)) -> usize| column.iter().map(pick).sum::<usize>();
        let (sent, passed) = (sum(|count| count.0), sum(|count| count.1));
        let [_, ip, user, endpoint] = refused;
        println!(
            "{:22}{sent:>8}{passed:>8}{ip:>16}{user:>7}{endpoint:>11}",
            caller.name
        );
    }
    let last = &callers[0].request;
    println!("\n{granted_in_all} passed in all. One more question, at every level:");
    for (name, decision) in hierarchy.peek(last, 0).decisions() {
        println!(
            "{name:9} {:>6} of {:>6} left",
            decision.remaining, decision.limit
        );
    }
    Ok(())
}

fn callers() -> Vec<Caller> {
    let caller = |name, address: [u8; 4], user, routes: &'static [&'static str], sends| Caller {
        name,
        request: Request {
            address: address.into(),
            user,
            route: routes[0],
        },
        routes,
        sends,
    };
    let scraped: &[_] = &["GET /a", "GET /b", "GET /c", "GET /d"];
    let scripted: &[_] = &["GET /1", "GET /2"];
    vec![
        caller(
            "ada",
            [198, 51, 100, 7],
            Some("ada"),
            &["GET /page"],
            |second| usize::from(second % 2 == 0),
        ),
        caller(
            "scraper",
            [203, 0, 113, 9],
            None,
            scraped,
            |second| match second {
                20..130 => 25,
                _ => 0,
            },
        ),
        caller(
            "bob, same address",
            [203, 0, 113, 9],
            Some("bob"),
            &["GET /page"],
            |second| usize::from(second % 3 == 0),
        ),
        caller(
            "importer",
            [192, 0, 2, 33],
            Some("importer"),
            &["POST /import"],
            |second| {
                if second % 60 < 20 { 4 } else { 0 }
            },
        ),
        caller(
            "importer's status",
            [192, 0, 2, 33],
            Some("importer"),
            &["GET /status"],
            |second| usize::from(second % 4 == 0),
        ),
        caller(
            "script on trial",
            [192, 0, 2, 80],
            Some("trial"),
            scripted,
            |second| {
                if second % 45 == 10 { 30 } else { 0 }
            },
        ),
    ]
}

fn chart(column: &[(usize, usize)]) -> String {
    const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let two_seconds = column.chunks(2).map(|counts| {
        let sent: usize = counts.iter().map(|count| count.0).sum();
        let passed: usize = counts.iter().map(|count| count.1).sum();
        match sent {
            0 => ' ',
            _ => BARS[(passed * 8).div_ceil(sent)],
        }
    });
    two_seconds.collect()
}
