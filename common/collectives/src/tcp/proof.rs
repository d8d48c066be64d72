//! Mutual proof that both ends of a connection know a key, before either reads any other message.
//!
//! The accepting end sends a challenge. The connecting end answers with its rank, a challenge of
//! its own and its proof, and the accepting end with its proof. Every message has a fixed length. A
//! proof is BLAKE3's keyed hash of the end's role, the rank and both challenges; the key belongs to
//! one rendezvous. A stranger learns 32 random bytes and nothing else.

use std::io::{self, ErrorKind, Read, Write};

/// First bytes of a challenge, which tell a rank from another program at the same address.
const MAGIC: [u8; 8] = *b"ZERO-JOB";
/// Random bytes that are used once.
type Nonce = [u8; 32];
/// Bytes of a proof.
const PROOF: usize = 32;
/// Bytes of the answer to a challenge: rank (u32, little endian), challenge, proof.
pub(crate) const ANSWER: usize = 4 + 32 + PROOF;

/// The secret that all processes of a job know, and no other process does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(Key);

impl Secret {
    /// Returns the secret that `text` stands for.
    pub fn new(text: &[u8]) -> Self {
        Secret(Key(blake3::derive_key("zero 2026-11 secret of a job", text).into()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A key that identifies the members of a rendezvous. Comparing keys and proofs takes the same time
/// wherever they differ.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(blake3::Hash);

impl Key {
    /// Returns the key of the rendezvous at `port`. Without a secret every program of this machine
    /// knows it.
    pub(crate) fn of_rendezvous(secret: Option<Secret>, port: u16) -> Self {
        secret.unwrap_or(Secret::new(b"")).0.bound_to(b"meeting", &port.to_le_bytes())
    }

    /// Returns the key of connections between ranks that were told `token`.
    pub(crate) fn of_peers(self, token: &[u8; 32]) -> Self {
        self.bound_to(b"peers", token)
    }

    /// Returns the key of ranks that share nothing but `token`, over a transport that is trusted.
    #[cfg(feature = "mpi")]
    pub(crate) fn of_token(token: &[u8; 32]) -> Self {
        Secret::new(token).0
    }

    fn bound_to(self, purpose: &[u8], what: &[u8]) -> Self {
        Key(blake3::Hasher::new_keyed(self.0.as_bytes()).update(purpose).update(what).finalize())
    }

    /// Returns the proof of the end with `role` towards the other.
    fn proof(self, role: &[u8; 7], rank: u32, accepting: &Nonce, connecting: &Nonce) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(self.0.as_bytes());
        hasher.update(role).update(&rank.to_le_bytes()).update(accepting).update(connecting);
        hasher.finalize()
    }
}

/// Returns 32 bytes of the system's randomness.
pub(crate) fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// The accepting end's challenge.
pub(crate) struct Challenge(Nonce);

impl Challenge {
    /// Sends a fresh challenge over a new connection, whose buffer has room for it.
    pub(crate) fn send(mut stream: impl Write) -> io::Result<Self> {
        let challenge = Challenge(random()?);
        stream.write_all(&[&MAGIC[..], &challenge.0].concat())?;
        Ok(challenge)
    }

    /// Returns the rank that has proven to know `key`, and the proof that it is waiting for; `None`
    /// for a stranger.
    pub(crate) fn verify(&self, key: Key, answer: &[u8; ANSWER]) -> Option<(u32, [u8; PROOF])> {
        let (rank, rest) = answer.split_first_chunk::<4>()?;
        let (nonce, proof) = rest.split_first_chunk::<32>()?;
        let rank = u32::from_le_bytes(*rank);
        let proven = key.proof(b"connect", rank, &self.0, nonce) == blake3::Hash::from_slice(proof).ok()?;
        proven.then(|| (rank, *key.proof(b"accepts", rank, &self.0, nonce).as_bytes()))
    }
}

/// Why authentication failed, as the connecting end sees it.
pub(crate) enum Unproven {
    /// Another program answers, or it does not know the key.
    Foreign,
    /// The other end closed the connection once it had read this rank's proof.
    TurnedAway,
    /// The other end was silent until the deadline.
    Silent,
    /// The connection broke before the other end had read this rank's proof.
    Broken,
}

/// Proves to the accepting end, at the other side of `from` and `to`, that `rank` knows `key`, and
/// checks its proof.
pub(crate) fn prove(mut from: impl Read, mut to: impl Write, key: Key, rank: u32) -> Result<(), Unproven> {
    let broken = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => Unproven::Silent,
        _ => Unproven::Broken,
    };
    let (mut magic, mut theirs, mut proof) = ([0; MAGIC.len()], [0; 32], [0; PROOF]);
    from.read_exact(&mut magic).map_err(broken)?;
    if magic != MAGIC {
        return Err(Unproven::Foreign);
    }
    from.read_exact(&mut theirs).map_err(broken)?;
    let ours = random().map_err(broken)?;
    let own = key.proof(b"connect", rank, &theirs, &ours);
    let answer = [&rank.to_le_bytes()[..], &ours, own.as_bytes()].concat();
    to.write_all(&answer).map_err(broken)?;
    // An end that has read a wrong proof has nothing left to read, and its close is an orderly one.
    // A reset comes from an end that has not read the proof.
    from.read_exact(&mut proof).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Unproven::TurnedAway,
        _ => broken(error),
    })?;
    let proven = key.proof(b"accepts", rank, &theirs, &ours) == blake3::Hash::from_bytes(proof);
    if proven { Ok(()) } else { Err(Unproven::Foreign) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns the answer of a connecting end that knows `key`.
    fn answer(key: Key, challenge: &Challenge, rank: u32) -> [u8; ANSWER] {
        let nonce = random().unwrap();
        let proof = key.proof(b"connect", rank, &challenge.0, &nonce);
        let answer = [&rank.to_le_bytes()[..], &nonce, proof.as_bytes()].concat();
        answer.try_into().unwrap()
    }

    #[test]
    fn a_proof_holds_for_one_secret_rendezvous_rank_and_challenge() {
        let key = |secret: &[u8], port| Key::of_rendezvous(Some(Secret::new(secret)), port);
        let (ours, challenge) = (key(b"ours", 80), Challenge(random().unwrap()));
        let answer = answer(ours, &challenge, 3);
        let (rank, theirs) = challenge.verify(ours, &answer).unwrap();
        assert_eq!(rank, 3);
        assert_ne!(theirs, answer[36..], "an end cannot send back what it received");
        for other in
            [key(b"theirs", 80), key(b"ours", 81), Key::of_rendezvous(None, 80), ours.of_peers(&[0; 32])]
        {
            assert!(challenge.verify(other, &answer).is_none());
        }
        assert!(Challenge(random().unwrap()).verify(ours, &answer).is_none(), "a proof cannot be replayed");
        for byte in 0..ANSWER {
            let mut changed = answer;
            changed[byte] ^= 1;
            assert!(challenge.verify(ours, &changed).is_none(), "byte {byte}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new(b"a secret")), "Secret(..)");
    }
}
