//! Who may ask: TLS with certificates of one's own, and users with the least rights that suffice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate::redis::{Endpoint, Limits, LimitsBuilder, Warning};
use sluicegate::{Charge, Hierarchy, Key};

use crate::kit::{DAY, built, charge, five, left, left_there, recovered, wait_for_left};
use crate::server::{Options, Server};

/// An authority of its own, with certificates for a server and a client; removed with it.
struct Authority {
    folder: PathBuf,
}

impl Authority {
    fn new() -> Self {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegate-authority-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for certificates");
        let authority = Self { folder };
        authority.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority of a test",
            "-keyout",
            "root.key",
            "-out",
            "root.pem",
        ]);
        fs::write(authority.path("names"), "subjectAltName=IP:127.0.0.1\n").expect("it is ours");
        for name in ["server", "client"] {
            let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
            let (subject, certificate) = (format!("/CN={name}"), format!("{name}.pem"));
            authority.openssl(&[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-subj",
                &subject,
                "-keyout",
                &key,
                "-out",
                &request,
            ]);
            authority.openssl(&[
                "x509",
                "-req",
                "-days",
                "2",
                "-CA",
                "root.pem",
                "-CAkey",
                "root.key",
                "-CAcreateserial",
                "-extfile",
                "names",
                "-in",
                &request,
                "-out",
                &certificate,
            ]);
        }
        authority
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(&self.folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command.status().expect("openssl is installed");
        assert!(status.success(), "openssl {arguments:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("it was made")
    }

    /// A server that shows its certificate, and asks for the client's if it `knows` its clients.
    fn server(&self, knows: &str) -> Server {
        let text = |path: &Path| path.to_str().expect("plain text").to_owned();
        let options = Options::default().secure();
        options
            .set("tls-cert-file", &text(&self.path("server.pem")))
            .set("tls-key-file", &text(&self.path("server.key")))
            .set("tls-ca-cert-file", &text(&self.path("root.pem")))
            .set("tls-auth-clients", knows)
            .start()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn at(endpoint: Endpoint) -> LimitsBuilder {
    let endpoint = endpoint.connect_timeout(Duration::from_secs(10));
    Limits::builder(endpoint).deadline(Duration::from_secs(10))
}

fn address(url: &str) -> Endpoint {
    Endpoint::new(url).expect("the address is valid")
}

#[tokio::test]
async fn a_certificate_of_ones_own_authority_is_trusted_and_no_other() {
    let authority = Authority::new();
    let server = authority.server("no");
    let [(_, limit), ..] = five(10, DAY);
    let trusting = address(&server.secure_url()).root_certificate(authority.read("root.pem"));
    let (store, there) = built(at(trusting), limit);
    store.connect().await.expect("it is trusted");
    let ruling = there.decide(&1, 4).await;
    assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    assert_eq!(server.keys().len(), 1);
    // The public authorities know nothing of it, and neither does a stranger.
    let stranger = Authority::new();
    let by_others = address(&server.secure_url()).root_certificate(stranger.read("root.pem"));
    for endpoint in [address(&server.secure_url()), by_others] {
        let (store, there) = built(at(endpoint), limit);
        let error = store.connect().await.expect_err("it is not trusted");
        assert!(
            error.is_disconnected() && !error.may_have_run(),
            "{error:?}"
        );
        let ruling = there.decide(&1, 1).await;
        assert!(ruling.is_degraded() && !ruling.is_granted(), "{ruling:?}");
    }
    assert_eq!(left_there(&store, limit, 1).await, 6);
    // What is no certificate is an error, and no panic.
    let nonsense = address(&server.secure_url()).root_certificate("no certificate");
    let (store, _) = built(at(nonsense), limit);
    let error = store.connect().await.expect_err("it is none");
    assert!(!error.may_have_run(), "{error:?}");
}

#[tokio::test]
async fn a_client_certificate_opens_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let mut server = authority.server("yes");
    let [(_, limit), ..] = five(10, DAY);
    let root = authority.read("root.pem");
    let anonymous = address(&server.secure_url()).root_certificate(root.clone());
    let (store, there) = built(at(anonymous.clone()), limit);
    let refused = there.decide(&1, 1).await;
    assert!(
        refused.is_degraded() && !refused.is_granted(),
        "{refused:?}"
    );
    let error = store.last_error().expect("it is told");
    assert!(error.is_disconnected(), "{error:?}");
    let (own, key) = (authority.read("client.pem"), authority.read("client.key"));
    let known = anonymous.client_certificate(own, key);
    let (store, there) = built(at(known), limit);
    store.connect().await.expect("it is known");
    assert!(there.decide(&1, 1).await.is_granted());
    // A new connection shows it again.
    server.restart();
    let ruling = recovered(&there, 1).await;
    assert!(ruling.is_granted(), "{ruling:?}");
}

#[tokio::test]
async fn a_cluster_is_reached_by_tls() {
    let authority = Authority::new();
    let text = |name: &str| {
        authority
            .path(name)
            .to_str()
            .expect("plain text")
            .to_owned()
    };
    let server = Options::default()
        .cluster()
        .secure()
        .set("tls-cluster", "yes")
        .set("tls-cert-file", &text("server.pem"))
        .set("tls-key-file", &text("server.key"))
        .set("tls-ca-cert-file", &text("root.pem"))
        .set("tls-auth-clients", "no")
        .start();
    let endpoint = Endpoint::cluster([server.secure_url()]).expect("the address is valid");
    let [(_, limit), ..] = five(10, DAY);
    let (_, there) = built(
        at(endpoint.root_certificate(authority.read("root.pem"))),
        limit,
    );
    let ruling = there.decide(&1, 4).await;
    assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
}

/// What the documentation of [`Limits`] says that a user needs.
const RIGHTS: &str = "resetkeys ~{sluicegate* resetchannels -@all +evalsha +script|load +time +get +set +del +strlen +getrange +setrange +append +pexpire";
const RIGHTS_TO_LOOK: &str = "+info +config|get";

/// A server with one user of these rights.
fn with_user(rights: &str) -> (Server, Endpoint) {
    let server = Server::start();
    let mut command = vec!["ACL", "SETUSER", "limits", "on", ">secret"];
    command.extend(rights.split(' '));
    assert_eq!(server.ask(&command).trim(), "+OK");
    let endpoint = address(&server.url()).credentials("limits", "secret");
    (server, endpoint)
}

#[tokio::test]
async fn a_user_with_the_least_rights_can_do_everything() {
    let documented = include_str!("../../src/redis/mod.rs");
    for right in RIGHTS.split(' ').chain(RIGHTS_TO_LOOK.split(' ')) {
        assert!(documented.contains(right), "{right} is not documented");
    }
    let (server, endpoint) = with_user(&format!("{RIGHTS} {RIGHTS_TO_LOOK}"));
    for (name, limit) in five(10, DAY) {
        let prefix = format!("sluicegate {name}");
        let (store, there) = built(at(endpoint.clone()).prefix(prefix), limit);
        let warnings = store.connect().await.expect("it may");
        assert_eq!(warnings, Vec::<Warning>::new());
        for _ in 0..3 {
            let ruling = there.decide(&1, 2).await;
            assert!(
                ruling.is_granted() && !ruling.is_degraded(),
                "{name}: {:?}",
                store.last_error()
            );
        }
        let last = there.decide(&1, 4).await;
        assert!(!there.decide(&1, 1).await.is_degraded(), "{name}");
        there.refund(last.charge());
        wait_for_left(&store, limit, 1, 4).await;
        let batch = (0..4).map(|_| charge(limit, 1, 1));
        for ruling in store.decide_many(batch).await {
            assert!(ruling.is_granted(), "{name}: {ruling:?}");
        }
        store.reset(&charge(limit, 1, 0)).await.expect("it may");
        assert_eq!(left_there(&store, limit, 1).await, 10, "{name}");
        assert_eq!(store.counts().errors, 0, "{name}: {:?}", store.last_error());
    }
    // Long logs are cut and repaired by other commands than short ones.
    let [.., (_, log), _] = five(2_000, Duration::from_millis(1_500));
    let (store, there) = built(at(endpoint).never_merge(), log);
    for _ in 0..4 {
        let calls = (0..500).map(|_| there.decide(&1, 1));
        for ruling in futures_util::future::join_all(calls).await {
            assert!(!ruling.is_degraded(), "{:?}", store.last_error());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(store.counts().errors, 0, "{:?}", store.last_error());
    drop(server);
}

#[tokio::test]
async fn each_missing_right_is_an_error_that_is_no_refusal() {
    // Without the right to look only the look fails, and without CONFIG it says less.
    let (_server, endpoint) = with_user(RIGHTS);
    let [(_, limit), ..] = five(10, DAY);
    let (store, there) = built(at(endpoint), limit);
    let error = store.connect().await.expect_err("it may not look");
    assert!(error.is_denied(), "{error:?}");
    assert!(there.decide(&1, 1).await.is_granted());
    let (_server, endpoint) = with_user(&format!("{RIGHTS} +info"));
    let (store, _) = built(at(endpoint), limit);
    assert_eq!(store.connect().await.expect("it may"), []);
    // Every other one is needed: a charge of all kinds, twice, with a refund and a reset.
    for right in RIGHTS.split(' ').filter(|right| right.starts_with('+')) {
        let fewer: Vec<_> = RIGHTS.split(' ').filter(|other| *other != right).collect();
        let (_server, endpoint) = with_user(&fewer.join(" "));
        let store = at(endpoint).build().expect("valid");
        let mut hierarchy = Hierarchy::<()>::builder();
        let levels = five(1_000, DAY);
        for (name, limit) in levels {
            hierarchy = hierarchy.level(name, limit, |()| ());
        }
        let hierarchy = hierarchy.build_on(store.clone()).expect("valid");
        for _ in 0..300 {
            let ruling = hierarchy.decide(&(), 1).await;
            assert!(
                !ruling.is_granted() || !ruling.is_degraded(),
                "{right}: {ruling:?}"
            );
            if ruling.is_degraded() {
                break;
            }
        }
        let all = Charge::new(0, levels.map(|(name, limit)| (name, limit, Key::from(()))));
        let reset = store.reset(&all).await;
        let looked = store.peek(all).await;
        let error = store.last_error().or(reset.err()).or(looked.err());
        match (right, error) {
            // Of a log that grows within one microsecond, or is longer than 256 entries.
            ("+setrange" | "+getrange", None) => {}
            (_, Some(error)) => assert!(error.is_denied(), "{right}: {error:?}"),
            (_, None) => panic!("{right} is not needed"),
        }
    }
}

#[tokio::test]
async fn a_user_without_the_keys_or_with_another_password_is_denied() {
    let [(_, limit), ..] = five(10, DAY);
    let (server, endpoint) = with_user(RIGHTS);
    let (store, there) = built(at(endpoint.clone()).prefix("somebody else"), limit);
    let ruling = there.decide(&1, 1).await;
    assert!(ruling.is_degraded() && !ruling.is_granted(), "{ruling:?}");
    let error = store.last_error().expect("it is told");
    assert!(error.is_denied() && !error.may_have_run(), "{error:?}");
    assert_eq!(server.keys(), Vec::<String>::new());
    let (store, there) = built(at(endpoint.credentials("limits", "wrong")), limit);
    assert!(there.decide(&1, 1).await.is_degraded());
    let error = store.last_error().expect("it is told");
    assert!(error.is_denied(), "{error:?}");
    assert!(
        !format!("{store:?} {error:?} {error}").contains("wrong"),
        "{store:?}"
    );
    // A right that is taken while it is used is missed at once, and missed no longer once it is back.
    let (store, there) = built(
        at(address(&server.url()).credentials("limits", "secret")),
        limit,
    );
    assert!(there.decide(&1, 1).await.is_granted());
    server.ask(&["ACL", "SETUSER", "limits", "-set"]);
    assert!(there.decide(&1, 1).await.is_degraded());
    assert!(store.last_error().expect("it is told").is_denied());
    server.ask(&["ACL", "SETUSER", "limits", "+set"]);
    let ruling = recovered(&there, 1).await;
    assert_eq!(left(&ruling), [8], "{ruling:?}");
}
