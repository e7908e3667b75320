//! Who may log in, over what, and what is said if it does not work: on a server that lets in only who logs in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::{path::PathBuf, time::Duration};

use flare_contract::{
    login::{Refusal, check_login},
    make,
    proxy::Proxy,
    server::{are_ours, host},
    tls::Authority,
    wait::until,
};
use flare_core::{Error, ErrorKind, port::Store};
use flare_mongodb::Options;
use mongodb::{
    Client, Database,
    bson::{Document, doc},
};
use server::{STANDALONE, STANDALONE_TLS, Scratch};

/// A user of a test's own, who may do everything in its database.
struct User {
    admin: Database,
    scratch: Scratch,
    url: String,
    name: String,
}

const FIRST: &str = "first-hush";
const SECOND: &str = "second-hush";

impl User {
    async fn make() -> Option<Self> {
        let url = server::url(STANDALONE)?;
        let admin = Client::with_uri_str(&url).await.unwrap().database("admin");
        let scratch = Scratch::new(&url);
        let name = scratch.options(0).database.unwrap();
        let user = Self { admin, scratch, url, name };
        user.add(FIRST).await;
        Some(user)
    }

    async fn add(&self, password: &str) {
        self.tell(doc! { "createUser": &self.name, "pwd": password, "roles": [self.role()] }).await;
    }

    fn role(&self) -> Document {
        doc! { "role": "readWrite", "db": &self.name }
    }

    async fn set_password(&self, password: &str) {
        self.tell(doc! { "updateUser": &self.name, "pwd": password }).await;
    }

    async fn tell(&self, command: Document) {
        self.admin.run_command(command).await.unwrap();
    }

    /// The address without a login.
    fn url(&self) -> String {
        format!("mongodb://{}/?directConnection=true", host(&self.url))
    }

    fn options(&self, password: &str) -> Options {
        Options {
            url: Some(self.url()),
            username: Some(self.name.clone()),
            password: Some(password.into()),
            timeout: Duration::from_secs(2),
            ..self.scratch.options(0)
        }
    }

    /// A store of this user behind a proxy.
    async fn behind(&self, proxy: &Proxy) -> Store {
        let url = self.url().replace(host(&self.url), &proxy.address().to_string());
        flare_mongodb::open(&Options { url: Some(url), ..self.options(FIRST) }).await.unwrap()
    }

    async fn remove(self) {
        self.tell(doc! { "dropUser": &self.name }).await;
        self.scratch.drop().await;
    }
}

async fn works(options: &Options) {
    let store = flare_mongodb::open(options).await.unwrap();
    make::stored_token(&store).await;
    store.engine.close().await.unwrap();
}

/// What one is told who opens the store in vain.
async fn refusal(options: &Options) -> Error {
    let error = flare_mongodb::open(options).await.err().unwrap();
    assert!(!format!("{error:?} {}", error.chain()).contains("hush"), "{}", error.chain());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_comes_from_the_url_or_from_options() {
    let Some(user) = User::make().await else { return };
    works(&user.options(FIRST)).await;
    let login = format!("mongodb://{}:{FIRST}@", user.name);
    let url = Some(user.url().replace("mongodb://", &login));
    works(&Options { url, ..user.scratch.options(0) }).await;
    let addrs = vec![host(&user.url).to_owned()];
    works(&Options { url: None, addrs, ..user.options(FIRST) }).await;
    user.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_wrong_is_refused_for_good_and_named_without_the_password() {
    let Some(user) = User::make().await else { return };
    let error = refusal(&user.options(SECOND)).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("MongoDB at {} refuses the user {}: check the name", host(&user.url), user.name);
    assert!(error.chain().contains(&expected), "{}", error.chain());

    let error = refusal(&Options { username: None, password: None, ..user.options(FIRST) }).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("MongoDB at {} wants a login: set `username` and `password`", host(&user.url));
    assert!(error.chain().contains(&expected), "{}", error.chain());

    user.tell(doc! { "revokeRolesFromUser": &user.name, "roles": [user.role()] }).await;
    let error = refusal(&user.options(FIRST)).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    let expected = format!("needs the role readWrite on the database {}", user.name);
    assert!(error.chain().contains(&expected), "{}", error.chain());
    user.remove().await;
}

/// A store that is open loses its login by `take` and gets it again by `give`.
async fn is_back(take: impl AsyncFn(&User), told: &str, give: impl AsyncFn(&User)) {
    let Some(user) = User::make().await else { return };
    let proxy = Proxy::start(host(&user.url)).await;
    let store = user.behind(&proxy).await;
    let refusal = Refusal { engine: "MongoDB", told, secret: "hush" };
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
async fn a_role_that_is_revoked_and_granted_again_needs_no_restart() {
    is_back(
        async |user| user.tell(doc! { "revokeRolesFromUser": &user.name, "roles": [user.role()] }).await,
        "needs the role readWrite",
        async |user| user.tell(doc! { "grantRolesToUser": &user.name, "roles": [user.role()] }).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_removed_and_made_again_needs_no_restart() {
    is_back(
        async |user| user.tell(doc! { "dropUser": &user.name }).await,
        "refuses the user",
        async |user| {
            user.add(FIRST).await;
        },
    )
    .await;
}

/// Connections that were open when the user was removed belong to nobody, even when there is such a user again.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_user_who_was_removed_are_replaced() {
    let Some(user) = User::make().await else { return };
    let store = flare_mongodb::open(&user.options(FIRST)).await.unwrap();
    let stream = make::stored_stream(&store, "http://api.test/users/{id}").await;
    user.tell(doc! { "dropUser": &user.name }).await;
    until("the refusal is told", || store.engine.trouble().is_some()).await;
    user.add(FIRST).await;
    until("it is let in again", || store.engine.trouble().is_none()).await;
    make::write(&store, make::put(&stream, "1", 1)).await.unwrap();
    store.engine.close().await.unwrap();
    user.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_must_prove_who_it_is() {
    if !are_ours() {
        return;
    }
    let Some(url) = server::url(STANDALONE_TLS) else { return };
    let scratch = Scratch::new(&url);
    let at = |url: String, ca: Option<PathBuf>| Options {
        url: Some(url),
        ca,
        timeout: Duration::from_secs(2),
        ..scratch.options(0)
    };
    // The URL of the server has the file of its authority; the option does the same.
    let (plain, file) = url.split_once("&tls=true&tlsCAFile=").unwrap();
    let ca = PathBuf::from(file);
    works(&at(url.clone(), None)).await;
    works(&at(plain.to_owned(), Some(ca.clone()))).await;
    works(&at(format!("{plain}&tls=true"), Some(ca.clone()))).await;

    let stranger = Authority::new("a stranger");
    let stranger = stranger.file();
    let by_address = plain.replace("localhost", "127.0.0.1");
    for (options, told) in [
        (at(plain.to_owned(), Some(stranger.to_path_buf())), "UnknownIssuer"),
        (at(format!("{plain}&tls=true"), None), "UnknownIssuer"),
        (at(by_address, Some(ca)), "not valid for name"),
    ] {
        let error = refusal(&options).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(error.chain().contains(told), "{told}: {}", error.chain());
        assert!(error.chain().contains(host(options.url.as_deref().unwrap())), "{}", error.chain());
        assert!(!error.chain().contains("secret"), "{}", error.chain());
    }
    let error = refusal(&at(plain.to_owned(), Some("/nowhere.pem".into()))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("/nowhere.pem"), "{}", error.chain());
    scratch.drop().await;
}
