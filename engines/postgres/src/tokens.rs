//! Tokens: read whole when a node starts, then served from memory.

use async_trait::async_trait;
use flare_core::{Error, Result, TokenId, port::Tokens, token::Token};
use flare_toolkit::rows;

use crate::{
    PostgresStore,
    connection::Call,
    streams::moved,
    values::{Id, Json},
    writer::Plan,
};

const TOKEN: &str = "SELECT 1 FROM tokens WHERE id = $1";
const INSERT: &str = "INSERT INTO tokens VALUES ($1, $2)";
const PAGE: &str = "SELECT id, body FROM tokens WHERE id > $1 ORDER BY id LIMIT $2";
const DELETE: &str = "DELETE FROM tokens WHERE id = $1";

#[async_trait]
impl Tokens for PostgresStore {
    async fn insert(&self, token: &Token) -> Result<()> {
        let (id, body) = (token.id, Json(rows::encode_token(token)?));
        let reads = [Call::new(TOKEN).with(Id::from(id))];
        self.inner
            .writer
            .turn(&reads, |_, rows| match rows[0].is_empty() {
                false => Err(Error::conflict(format!("token {id} exists already"))),
                true => {
                    let insert = Call::new(INSERT).with(Id::from(id)).with(body.clone());
                    Ok(Plan { calls: vec![insert, moved()], answer: () })
                }
            })
            .await
    }

    async fn page(&self, after: Option<TokenId>, limit: usize) -> Result<Vec<Token>> {
        let token = |(id, body): (Id, Json)| rows::decode_token(TokenId::from_bytes(id.0), &body.0);
        self.entities(PAGE, after.map(Id::from), limit).await?.into_iter().map(token).collect()
    }

    async fn delete(&self, id: TokenId) -> Result<()> {
        let reads = [Call::new(TOKEN).with(Id::from(id))];
        self.inner
            .writer
            .turn(&reads, |_, rows| match rows[0].is_empty() {
                true => Err(Error::not_found(format!("token {id} does not exist"))),
                false => {
                    let delete = Call::new(DELETE).with(Id::from(id));
                    Ok(Plan { calls: vec![delete, moved()], answer: () })
                }
            })
            .await
    }
}
