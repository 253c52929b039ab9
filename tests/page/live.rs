//! What somebody sees who opens the page.

use axum::Router;
use serde_json::json;
use sluicegate::observe::{Keys, ServedPage, page, serve_page};
use sluicegate::queue::Priority;

use crate::browser::Browser;
use crate::support::{queue, until};

/// The router nested deep in another one, as a program would have it, on a port of its own.
async fn nested() -> String {
    let app = Router::new().nest_service("/ops/queues", page(Keys::Cut));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{addr}")
}

/// Runs what blocks beside the servers.
async fn beside(look: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(look).await.expect("it passes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_move_markup_is_inert_and_nobody_else_is_asked() {
    let evil = "<img src=//example.com/x onerror=alert(1)>\u{202e}";
    let (tx, rx) = queue(evil, 10);
    tx.offer(0)
        .tenant("<script>alert(2)</script>")
        .try_send()
        .expect("room");
    tx.control().pause("<b>bold</b>");
    let origin = nested().await;
    beside(move || {
        let mut browser = Browser::start();
        // Without a slash at the end, and with the name of the queue in the address.
        browser.open(&format!("{origin}/ops/queues#{}", "%3Cimg%20src%3D%2F%2Fexample.com%2Fx%20onerror%3Dalert(1)%3E%E2%80%AE"));
        browser.wait("document.querySelector('#tiles dd') !== null");
        browser.wait("document.title.includes('1/10')");
        assert!(browser.text("says").contains("<b>bold</b>"));
        assert!(browser.text("tenants").contains("<script>alert(2)</script>"));
        let name = browser.eval("document.querySelector('nav [aria-current] bdi').textContent");
        assert_eq!(name, json!(evil));
        let foreign = "document.querySelectorAll('img, iframe, b:not(.legend b):not(#advice b), script:not([src]), [style], [onerror]').length";
        assert_eq!(browser.eval(foreign), json!(0));

        for n in 1..10 {
            let _ = tx.offer(n).priority(Priority::Critical).try_send();
        }
        browser.wait("document.title.includes('10/10')");
        let depth = "[...document.querySelectorAll('#tiles dt')].find(dt => dt.textContent === 'Depth').nextSibling.textContent";
        assert_eq!(browser.eval(depth), json!("10of 10"));
        assert_ne!(browser.text("pressure"), "healthy");
        tx.control().resume();
        while let Ok(job) = rx.try_recv() {
            job.ack();
        }
        browser.wait("document.title.includes('0/10') && !document.title.includes('10/10')");
        assert_eq!(browser.text("pressure"), "healthy");
        // A trend comes with the seconds; its newest point is drawn at the right end.
        browser.wait("document.querySelector('#depth .curve').getAttribute('d').split('L').length > 2");

        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{complaints:#?}");
        for request in browser.seen("Network.requestWillBeSent") {
            let url = request["request"]["url"].as_str().unwrap_or_default().to_owned();
            assert!(url.starts_with(&format!("{origin}/ops/queues")) || url == "data:,", "{url}");
        }
        let script = browser.eval(
            "new Promise(done => { document.addEventListener('securitypolicyviolation', event => done(event.effectiveDirective)); \
             const script = document.createElement('script'); \
             try { script.src = 'http://127.0.0.1:9/x.js'; document.head.append(script) } catch { done('refused') } })",
        );
        assert!(script == json!("refused") || script == json!("script-src-elem"), "{script}");
        let markup = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'written' } catch { return 'refused' } })()";
        assert_eq!(browser.eval(markup), json!("refused"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_told_of_and_one_that_is_back_is_shown_again() {
    let (tx, _rx) = queue("comes and goes", 10);
    tx.try_send(1).expect("room");
    let served = serve_page("127.0.0.1:0", Keys::Hashed)
        .await
        .expect("a free port");
    let addr = served.addr();
    let runtime = tokio::runtime::Handle::current();
    beside(move || {
        let mut browser = Browser::start();
        browser.open(&format!("http://{addr}/#comes%20and%20goes"));
        browser.wait("document.getElementById('link').textContent === 'live' && document.title.includes('1/10')");
        drop(served);
        browser.wait("!document.getElementById('lost').hidden && document.body.classList.contains('stale')");
        assert!(browser.text("lost").starts_with("Connection lost: "));
        assert!(browser.text("tiles").contains("of 10"), "the last numbers stay");
        tx.try_send(2).expect("room");
        let _served: ServedPage = until("the port is free again", || {
            runtime.block_on(serve_page(addr, Keys::Hashed)).ok()
        });
        browser.wait("document.getElementById('lost').hidden && document.title.includes('2/10')");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tenants_and_a_long_day_leave_the_page_small() {
    let builder = sluicegate::queue::Builder::unpaced()
        .name("crowd")
        .max_depth(20_000);
    let (tx, _rx) = builder
        .max_tenants(16_384)
        .build::<u32>()
        .expect("it is valid");
    for n in 0..10_000 {
        tx.offer(n).tenant(n).try_send().expect("room");
    }
    let origin = nested().await;
    beside(move || {
        let mut browser = Browser::start();
        browser.open(&format!("{origin}/ops/queues/#crowd"));
        browser.wait("document.title.includes('10,000')");
        assert!(browser.text("tenants-note").contains("of 10,000"));
        browser.wait("document.querySelectorAll('#tenants tbody tr').length === 21");

        // As many looks as an hour has every few seconds, one after the other, and what they leave behind.
        let look = |browser: &mut Browser| {
            browser.eval("(async () => { for (let i = 0; i < 150; i++) { await ask(); show(); } return 0; })()");
            browser.call("HeapProfiler.collectGarbage", json!({}));
            let heap = browser.call("Runtime.getHeapUsage", json!({}));
            let nodes = browser.eval("document.getElementsByTagName('*').length");
            (heap["usedSize"].as_f64().unwrap_or(f64::MAX), nodes.as_u64().unwrap_or(u64::MAX))
        };
        look(&mut browser);
        let before = look(&mut browser);
        for _ in 0..3 {
            look(&mut browser);
        }
        let after = look(&mut browser);
        // Other tests' queues come and go on the same page.
        assert!(after.1 <= before.1 + 400, "{before:?} {after:?}");
        assert!(after.0 < before.0 + 3e6, "{before:?} {after:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_fits_a_phone_and_a_desk_by_day_and_by_night() {
    let long = "a-name-that-goes-on-".repeat(10);
    let (tx, _rx) = queue(&long, 1_000_000_000);
    for tenant in 0..30 {
        tx.offer(1)
            .cost(1_000_000 + tenant)
            .tenant(format!("tenant {tenant} {long}"))
            .try_send()
            .expect("room");
    }
    let origin = nested().await;
    beside(move || {
        let mut browser = Browser::start();
        browser.open(&format!("{origin}/ops/queues/#{}", &long[..64]));
        browser.wait("document.querySelectorAll('#tenants tbody tr').length > 10");
        let mut papers = Vec::new();
        for scheme in ["light", "dark"] {
            for width in [390, 1280] {
                browser.wear(width, 844, scheme);
                browser.wait("document.documentElement.scrollWidth <= innerWidth");
                browser.wait("[...document.querySelectorAll('.chart')].filter(box => box.clientWidth).every(box => box.firstChild.viewBox.baseVal.width === box.clientWidth)");
            }
            papers.push(browser.eval("getComputedStyle(document.body).backgroundColor"));
        }
        assert_ne!(papers[0], papers[1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyboard_and_a_screen_reader_get_everything() {
    let (tx, _rx) = queue("by keyboard", 10);
    tx.try_send(1).expect("room");
    let origin = nested().await;
    beside(move || {
        let mut browser = Browser::start();
        browser.open(&format!("{origin}/ops/queues/#by%20keyboard"));
        browser.wait("document.querySelector('#depth .curve').getAttribute('d').split('L').length > 3");
        let label = browser.eval("document.querySelector('#depth svg').getAttribute('aria-label')");
        let label = label.as_str().unwrap_or_default().to_owned();
        assert!(label.starts_with("Depth over time: depth 1"), "{label}");
        let named = "[...document.querySelectorAll('svg[role=img], nav, button')].every(one => one.getAttribute('aria-label') || one.textContent)";
        assert_eq!(browser.eval(named), json!(true));

        browser.eval("document.querySelector('#depth svg').focus()");
        let key = |kind: &str| json!({ "type": kind, "key": "ArrowLeft", "code": "ArrowLeft", "windowsVirtualKeyCode": 37 });
        browser.call("Input.dispatchKeyEvent", key("keyDown"));
        browser.call("Input.dispatchKeyEvent", key("keyUp"));
        browser.wait("document.querySelector('#flow .cross').getAttribute('visibility') === 'visible'");
        browser.wait("document.getElementById('flow-legend').innerText.includes('−')");

        browser.eval("document.getElementById('hold').click()");
        browser.wait("document.getElementById('link').textContent === 'held'");
        tx.try_send(2).expect("room");
        browser.eval("new Promise(done => setTimeout(done, 2500))");
        assert!(browser.eval("document.title").as_str().is_some_and(|title| title.contains("1/10")), "it is held");
        browser.eval("document.getElementById('hold').click()");
        browser.wait("document.title.includes('2/10')");
    })
    .await;
}
