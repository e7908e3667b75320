//! Who may log in, over what, and what is said if it does not work: on a server that lets in only who logs in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{path::PathBuf, time::Duration};

use common::{Keyspaces, Server};
use flare_cassandra::{Options, Tls};
use flare_contract::{
    login::{Refusal, check_login},
    make,
    proxy::Proxy,
    server,
    tls::{Authority, Door, Greeting},
};
use flare_core::{Error, ErrorKind};

const TLS: &str = "FLARE_TEST_CASSANDRA_TLS_URL";
const FIRST: &str = "first-hush";
const SECOND: &str = "second-hush";

/// A user of a test's own, who may do everything in its keyspace and nothing elsewhere.
struct User {
    server: Server,
    keyspaces: Keyspaces,
    name: String,
}

impl User {
    async fn make() -> Option<Self> {
        let server = common::server()?;
        let keyspaces = Keyspaces::new(&server).await;
        let name = keyspaces.name(0);
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        keyspaces.define(&format!("CREATE KEYSPACE {name} WITH REPLICATION = {replication}")).await;
        let user = Self { server, keyspaces, name };
        user.add(FIRST).await;
        Some(user)
    }

    async fn tell(&self, statement: &str) {
        self.keyspaces.define(&statement.replace("USER", &self.name)).await;
    }

    async fn add(&self, password: &str) {
        self.tell(&format!("CREATE ROLE USER WITH LOGIN = true AND PASSWORD = '{password}'")).await;
        self.tell("GRANT ALL ON KEYSPACE USER TO USER").await;
    }

    async fn set_password(&self, password: &str) {
        self.tell(&format!("ALTER ROLE USER WITH PASSWORD = '{password}'")).await;
    }

    /// Whoever has made a table has all permissions on it, besides those on the keyspace.
    async fn revoke_all(&self) {
        self.tell("REVOKE ALL ON KEYSPACE USER FROM USER").await;
        let tables = format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{}'", self.name);
        for (table,) in self.keyspaces.rows::<(String,)>(&tables).await {
            self.tell(&format!("REVOKE ALL ON TABLE USER.{table} FROM USER")).await;
        }
    }

    fn options(&self, password: &str) -> Options {
        Options {
            username: Some(self.name.clone()),
            password: Some(password.into()),
            timeout: Duration::from_secs(5),
            ..self.keyspaces.options(0)
        }
    }

    async fn remove(self) {
        self.tell("DROP ROLE USER").await;
        self.keyspaces.drop_all(0..1).await;
    }
}

async fn works(options: &Options) {
    let store = flare_cassandra::open(options).await.unwrap();
    make::stored_token(&store).await;
    store.engine.close().await.unwrap();
}

/// What one is told who opens the store in vain.
async fn refusal(options: &Options) -> Error {
    let error = flare_cassandra::open(options).await.err().unwrap();
    assert!(!format!("{error:?} {}", error.chain()).contains("hush"), "{}", error.chain());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_wrong_is_refused_for_good_and_named_without_the_password() {
    let Some(user) = User::make().await else { return };
    works(&user.options(FIRST)).await;
    let error = refusal(&user.options(SECOND)).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("Cassandra at {} refuses the user {}: check the name", user.server.host, user.name);
    assert!(error.chain().contains(&expected), "{}", error.chain());

    let error = refusal(&Options { username: None, password: None, ..user.options(FIRST) }).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("Cassandra at {} wants a login: set `username` and `password`", user.server.host);
    assert!(error.chain().contains(&expected), "{}", error.chain());

    let error = refusal(&Options { keyspace: format!("{}_not", user.name), ..user.options(FIRST) }).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("it needs all permissions on the keyspace {}_not", user.name);
    assert!(error.chain().contains(&expected), "{}", error.chain());
    user.remove().await;
}

/// A store that is open loses its login by `take` and gets it again by `give`.
async fn is_back(take: impl AsyncFn(&User), told: &str, give: impl AsyncFn(&User)) {
    let Some(user) = User::make().await else { return };
    let proxy = Proxy::start(&user.server.host).await;
    let hosts = vec![proxy.address().to_string()];
    let store = flare_cassandra::open(&Options { hosts, ..user.options(FIRST) }).await.unwrap();
    let refusal = Refusal { engine: "Cassandra", told, secret: "hush" };
    check_login(&store, &proxy, refusal, async || take(&user).await, async || give(&user).await).await;
    user.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_changed_and_changed_back_needs_no_restart() {
    is_back(
        async |user| user.set_password(SECOND).await,
        "refuses the user",
        async |user| {
            user.set_password(FIRST).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_that_are_revoked_and_granted_again_need_no_restart() {
    is_back(
        async |user| user.revoke_all().await,
        "needs all permissions",
        async |user| user.tell("GRANT ALL ON KEYSPACE USER TO USER").await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_removed_and_made_again_needs_no_restart() {
    is_back(async |user| user.tell("DROP ROLE USER").await, "refuses the user", async |user| user.add(FIRST).await)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_must_prove_who_it_is() {
    if !server::are_ours() {
        return;
    }
    let Some(url) = server::url(TLS) else { return };
    let server = Server::read(&url);
    let keyspaces = Keyspaces::new(&server).await;
    let at = |host: &str, ca_file: Option<PathBuf>| Options {
        hosts: vec![host.to_owned()],
        tls: Some(Tls { ca_file }),
        timeout: Duration::from_secs(5),
        ..keyspaces.options(0)
    };
    let ca = PathBuf::from(url.split_once("ca=").unwrap().1);
    works(&at(&server.host, Some(ca))).await;

    let stranger = Authority::new("a stranger").file();
    // The certificate must be for the address of the node, which is all that the driver knows of it.
    let door = Door::open(&server.host, "localhost", Greeting::default()).await;
    let behind = format!("localhost:{}", door.port());
    for (options, told) in [
        (at(&server.host, Some(stranger.to_path_buf())), "UnknownIssuer"),
        (at(&server.host, None), "UnknownIssuer"),
        (at(&behind, Some(door.ca().to_owned())), "not valid for name"),
    ] {
        let error = refusal(&options).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.chain().contains(told), "{told}: {}", error.chain());
        assert!(error.chain().contains(&options.hosts[0]), "{}", error.chain());
    }
    let error = refusal(&at(&server.host, Some("/nowhere.pem".into()))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("/nowhere.pem"), "{}", error.chain());
    keyspaces.drop_all(0..1).await;
}
