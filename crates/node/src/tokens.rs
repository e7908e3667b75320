//! The tokens of the API in memory: what every request with a token is held against. Kept right by the writes, filled
//! from the store at start, and again when other nodes have written. Whoever changes them holds the right to do so:
//! `Node::administrate`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aws_lc_rs::{constant_time, digest};
use flare_core::{
    Error, Result, StreamId, TokenId, port,
    token::{Scope, Token, TokenText},
};
use parking_lot::RwLock;

use crate::{clock, node::Page};

/// Tokens of one server. All of them are in memory.
const TOKENS_MAX: usize = 100_000;

pub struct Tokens {
    store: Arc<dyn port::Tokens>,
    known: RwLock<BTreeMap<TokenId, Arc<Token>>>,
}

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub scope: Scope,
    /// The only streams that it is for; all if there are none here.
    pub streams: Vec<StreamId>,
    /// How long it is good for; without it, until it is revoked.
    pub expires_in: Option<Duration>,
}

impl Tokens {
    pub(crate) fn new(store: Arc<dyn port::Tokens>) -> Self {
        Self { store, known: RwLock::default() }
    }

    /// Takes these for all that there are.
    pub(crate) fn replace(&self, tokens: Vec<Arc<Token>>) {
        *self.known.write() = tokens.into_iter().map(|token| (token.id, token)).collect();
    }

    pub(crate) fn add(&self, tokens: &[Arc<Token>]) {
        self.known.write().extend(tokens.iter().map(|token| (token.id, token.clone())));
    }

    /// Makes a token, and shows its text this once. `Conflict` if there are too many.
    pub(crate) async fn create(&self, new: NewToken) -> Result<(Arc<Token>, TokenText)> {
        if self.known.read().len() >= TOKENS_MAX {
            return Err(Error::conflict(format!("there are {TOKENS_MAX} tokens, the most that a server holds")));
        }
        let (id, created_at) = (TokenId::generate(), clock::now());
        let text = generate_text(id)?;
        let expires_at = new.expires_in.map(|span| created_at.checked_add(span)).transpose();
        let token = Arc::new(Token {
            id,
            name: new.name,
            scope: new.scope,
            streams: new.streams,
            digest: sha256(text.reveal().as_bytes()),
            created_at,
            expires_at: expires_at.map_err(|error| Error::internal("a token would never expire").because(error))?,
        });
        self.store.insert(&token).await?;
        self.known.write().insert(id, token.clone());
        Ok((token, text))
    }

    pub fn get(&self, id: TokenId) -> Option<Arc<Token>> {
        self.known.read().get(&id).cloned()
    }

    /// In id order: the oldest first.
    pub fn page(&self, offset: usize, limit: usize) -> Page<Arc<Token>> {
        let known = self.known.read();
        Page { items: known.values().skip(offset).take(limit).cloned().collect(), total: known.len() }
    }

    /// From here on the token opens nothing. `NotFound` if it is not there.
    pub(crate) async fn revoke(&self, id: TokenId) -> Result<()> {
        self.store.delete(id).await?;
        self.known.write().remove(&id);
        Ok(())
    }

    /// The token of this text, expired or not.
    pub fn presented(&self, text: &[u8]) -> Option<Arc<Token>> {
        let token = TokenText::id_in(text).and_then(|id| self.get(id));
        // An unknown id takes as long as a known one with a wrong secret: it is compared with what no text has as its
        // digest.
        let expected = token.as_ref().map_or([0; 32], |token| token.digest);
        constant_time::verify_slices_are_equal(&sha256(text), &expected).ok()?;
        token
    }
}

fn generate_text(id: TokenId) -> Result<TokenText> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Error::internal("the system gave no random bytes for a token").because(error))?;
    Ok(TokenText::new(id, &random))
}

fn sha256(text: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use flare_core::ErrorKind;

    use super::*;

    fn tokens() -> Tokens {
        Tokens::new(flare_memory::open(&flare_keyvalue::Options::default()).unwrap().tokens)
    }

    fn new(name: &str) -> NewToken {
        NewToken { name: name.into(), scope: Scope::Write, streams: vec![], expires_in: Some(Duration::from_secs(60)) }
    }

    #[tokio::test]
    async fn a_token_is_known_by_its_whole_text() {
        let tokens = tokens();
        let (token, text) = tokens.create(new("one")).await.unwrap();
        let (other, other_text) = tokens.create(new("two")).await.unwrap();
        let text = text.reveal();
        assert_eq!(tokens.presented(text.as_bytes()), Some(token.clone()));
        assert_eq!(token.expires_at, Some(token.created_at + Duration::from_secs(60)));
        let secret = text.rsplit_once('_').unwrap().1;
        let foreign = format!("flare_{}_{secret}", other.id.to_string().replace('-', ""));
        let hyphenated = format!("flare_{}_{secret}", token.id);
        let unknown = TokenText::new(TokenId::generate(), &[0; 32]);
        for wrong in
            ["", "flare_", &text[..text.len() - 1], &format!("{text}x"), &foreign, &hyphenated, unknown.reveal()]
        {
            assert_eq!(tokens.presented(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(tokens.presented(other_text.reveal().as_bytes()), Some(other));
    }

    #[tokio::test]
    async fn a_revoked_token_is_unknown_at_once_and_after_a_restart() {
        let tokens = tokens();
        let (gone, gone_text) = tokens.create(new("one")).await.unwrap();
        let (kept, kept_text) = tokens.create(new("two")).await.unwrap();
        tokens.revoke(gone.id).await.unwrap();
        assert_eq!(tokens.revoke(gone.id).await.unwrap_err().kind(), ErrorKind::NotFound);
        let again = Tokens::new(tokens.store.clone());
        again.replace(tokens.store.page(None, 10).await.unwrap().into_iter().map(Arc::new).collect());
        for tokens in [&tokens, &again] {
            assert_eq!(tokens.presented(gone_text.reveal().as_bytes()), None);
            assert_eq!(tokens.presented(kept_text.reveal().as_bytes()), Some(kept.clone()));
            assert_eq!(tokens.page(0, 10).items, std::slice::from_ref(&kept));
        }
    }
}
