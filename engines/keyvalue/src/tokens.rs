//! Tokens: read whole when a node starts, then served from memory.

use async_trait::async_trait;
use flare_core::{Error, Result, TokenId, port::Tokens, token::Token};

use crate::{KeyValueStore, Table, keys, rows};

#[async_trait]
impl Tokens for KeyValueStore {
    async fn insert(&self, token: &Token) -> Result<()> {
        let (id, row) = (token.id, rows::encode_token(token)?);
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::token(id))?.is_some() {
                return Err(Error::conflict(format!("token {id} exists already")));
            }
            transaction.put(Table::Meta, keys::token(id), row);
            Ok(())
        })
        .await
    }

    async fn page(&self, after: Option<TokenId>, limit: usize) -> Result<Vec<Token>> {
        self.meta_page(keys::TOKENS, after.map(keys::token), limit)?
            .into_iter()
            .map(|(id, row)| rows::decode_token(TokenId::from_bytes(id), &row))
            .collect()
    }

    async fn delete(&self, id: TokenId) -> Result<()> {
        self.write_entities(move |transaction| {
            if transaction.get(Table::Meta, &keys::token(id))?.is_none() {
                return Err(Error::not_found(format!("token {id} does not exist")));
            }
            transaction.remove(Table::Meta, keys::token(id));
            Ok(())
        })
        .await
    }
}
