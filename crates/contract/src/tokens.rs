//! Tokens.

use flare_core::{
    ErrorKind,
    port::Store,
    token::{Scope, Token},
};

use crate::{Case, cases, make};

pub(crate) const CASES: &[Case] = cases![
    a_token_reads_back_as_it_was_written,
    a_page_of_tokens_continues_where_the_last_one_ended,
    a_duplicate_token_conflicts,
    a_deleted_token_is_gone,
];

async fn a_token_reads_back_as_it_was_written(store: Store) {
    let bound = make::stored_token(&store).await;
    let plain = Token { name: "".into(), scope: Scope::Admin, streams: vec![], expires_at: None, ..make::token() };
    store.tokens.insert(&plain).await.unwrap();
    assert_eq!(store.tokens.page(None, 10).await.unwrap(), [bound, plain]);
    // Tokens rest beside other entities, and are none of them.
    assert!(store.streams.page(None, 10).await.unwrap().is_empty());
}

async fn a_page_of_tokens_continues_where_the_last_one_ended(store: Store) {
    let mut written = Vec::new();
    for _ in 0..5 {
        written.push(make::stored_token(&store).await.id);
    }
    written.sort();
    let mut read = Vec::new();
    loop {
        let page = store.tokens.page(read.last().copied(), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        read.extend(page.iter().map(|token| token.id));
    }
    assert_eq!(read, written);
    assert!(store.tokens.page(None, 0).await.unwrap().is_empty());
}

async fn a_duplicate_token_conflicts(store: Store) {
    let token = make::stored_token(&store).await;
    assert_eq!(store.tokens.insert(&token).await.unwrap_err().kind(), ErrorKind::Conflict);
}

async fn a_deleted_token_is_gone(store: Store) {
    let (token, other) = (make::stored_token(&store).await, make::stored_token(&store).await);
    store.tokens.delete(token.id).await.unwrap();
    assert_eq!(store.tokens.page(None, 10).await.unwrap(), [other]);
    assert_eq!(store.tokens.delete(token.id).await.unwrap_err().kind(), ErrorKind::NotFound);
}
