//! The secrets of outlets: made, replaced and rotated.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use flare_core::{
    Error, OutletId, Result, StreamId,
    outlet::{Outlet, Scheme, Secret, Signing},
};

use super::{Node, missing};
use crate::clock;

/// What a rotation asks for.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// A shared secret of the client's own; otherwise one is made.
    pub secret: Option<Secret>,
    /// The scheme from now on; otherwise it stays.
    pub signature: Option<Scheme>,
    /// How long the present secret signs too.
    pub overlap: Duration,
}

impl Node {
    /// Gives the outlet a new secret; the present one signs too for a while. The same secret again changes nothing.
    /// `NotFound` if it is not there, `Invalid` if the secret is not one of the scheme.
    pub async fn rotate_secret(&self, stream: StreamId, id: OutletId, rotation: Rotation) -> Result<Arc<Outlet>> {
        let mut known = self.administrate().await?;
        let present = self.registry.outlet(stream, id).ok_or_else(|| missing(id))?;
        let now = clock::after(present.updated_at);
        let scheme = rotation.signature.unwrap_or_else(|| present.signing.secret.scheme());
        let secret = match rotation.secret {
            Some(secret) if secret.scheme() == scheme => secret,
            Some(_) => return Err(Error::invalid("secret: a key pair is made by Flare, it cannot be given")),
            None => generate(scheme)?,
        };
        if secret == present.signing.secret {
            // A repeated request: the secret before it must not be lost.
            return Ok(present);
        }
        let until = now
            .checked_add(rotation.overlap)
            .map_err(|error| Error::invalid("overlap: it ends too far in the future").because(error))?;
        let previous = (until > now).then(|| (present.signing.secret.clone(), until));
        let outlet = Arc::new(Outlet { signing: Signing { secret, previous }, updated_at: now, ..(*present).clone() });
        self.put_outlet(&mut known, outlet).await
    }
}

/// How a new outlet signs.
pub(super) fn first(secret: Option<Secret>, signature: Option<Scheme>) -> Result<Signing> {
    let secret = secret.map_or_else(|| generate(signature.unwrap_or_default()), Ok)?;
    Ok(Signing { secret, previous: None })
}

/// How an outlet signs after a change of its description. `Invalid` if that asks for another scheme: clients could not
/// follow without an overlap, nor learn of a new secret.
pub(super) fn replaced(present: &Signing, secret: Option<Secret>, signature: Option<Scheme>) -> Result<Signing> {
    let scheme = present.secret.scheme();
    let asked = secret.as_ref().map(Secret::scheme).or(signature);
    if asked.is_some_and(|asked| asked != scheme) {
        let scheme = scheme.as_str();
        return Err(Error::invalid(format!(
            "signature is {scheme:?}, and is changed only by a rotation: POST …/secret/rotate {{\"signature\": …}}"
        )));
    }
    Ok(match secret {
        Some(secret) => Signing { secret, previous: None },
        None => present.clone(),
    })
}

fn generate(scheme: Scheme) -> Result<Secret> {
    let mut bytes = [0; 32];
    // The system's source: that of aws-lc spends a tenth of a second on its first call.
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal("the system gave no random bytes for a secret").because(error))?;
    let secret = match scheme {
        Scheme::V1 => Secret::from_bytes(&bytes),
        Scheme::V1a => {
            let pair = Ed25519KeyPair::from_seed_unchecked(&bytes)
                .map_err(|error| Error::internal("could not make a key pair").because(error))?;
            Secret::from_key_pair(&[&bytes, pair.public_key().as_ref()].concat())
        }
    };
    secret.ok_or_else(|| Error::internal("a secret has the wrong length"))
}
