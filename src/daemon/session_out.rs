//! What a session in the daemon says: to the client on its own pipes, or to the relay, which passes it on.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};

use super::direct::DirectOutput;
use crate::core::aside::{write_question, write_settled};
use crate::transport::outbox::{Destination, Effect, Gathered, Mark};

/// How many bytes for a relay leave together.
const TOGETHER: usize = 32 * 1024;

/// The way out of a session.
pub enum SessionOut<W> {
    /// Over the relay.
    Relayed(W),
    /// On the client's own pipes.
    Direct(DirectOutput<W>),
}

impl<W: AsyncWrite + Unpin + Send> Destination for SessionOut<W> {
    async fn write_gathered(
        &mut self,
        gathered: &Gathered,
        left: impl Fn(usize) + Send + Sync,
    ) -> io::Result<()> {
        match self {
            Self::Relayed(relay) => write_with_asides(relay, gathered).await,
            Self::Direct(direct) => direct.write_gathered(gathered, left).await,
        }
    }
}

/// Writes asides, and messages with what is to be known of them. Short ones leave together, long ones are not copied.
async fn write_with_asides(
    relay: &mut (impl AsyncWrite + Unpin),
    Gathered { text, marks, asides }: &Gathered,
) -> io::Result<()> {
    let mut relay = BufWriter::with_capacity(TOGETHER, relay);
    relay.write_all(asides).await?;
    let (mut written, mut before) = (0, Vec::new());
    for Mark { place, effect } in marks {
        relay.write_all(&text[written..place.start]).await?;
        match effect {
            Effect::Settles(number) => write_settled(&mut before, *number),
            Effect::Asks => write_question(&mut before),
        }
        relay.write_all(&before).await?;
        before.clear();
        let message = if place.is_empty() { b"\n" } else { &text[place.clone()] };
        relay.write_all(message).await?;
        written = place.end;
    }
    relay.write_all(&text[written..]).await?;
    relay.flush().await
}

/// What has to be gathered so that a relay reads these lines, for tests.
#[cfg(test)]
pub(super) fn gathered(lines: &[u8]) -> Gathered {
    use crate::core::aside::FromDaemon;

    let mut gathered = Gathered::default();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let (message, effect) = match FromDaemon::read(line) {
            FromDaemon::Message(message) => (message, None),
            FromDaemon::Settled(number, b"\n") => (&[][..], Some(Effect::Settles(number))),
            FromDaemon::Settled(number, answer) => (answer, Some(Effect::Settles(number))),
            FromDaemon::Question(message) => (message, Some(Effect::Asks)),
            _ => {
                gathered.asides.extend_from_slice(line);
                continue;
            }
        };
        let start = gathered.text.len();
        gathered.text.extend_from_slice(message);
        gathered.marks.extend(effect.map(|effect| Mark { place: start..gathered.text.len(), effect }));
    }
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_relay_hears_of_each_message_what_it_must_know_and_asides_first() {
        let said = b"{a}\n\x01=1 {b}\n\x01=2 \n\x01{\"open\":[]}\n{c}\n\x01?{d}\n\x01=3 {e}\n{f}\n";
        let mut out = SessionOut::Relayed(Vec::new());
        out.write_gathered(&gathered(said), |_| {}).await.expect("memory is writable");
        let SessionOut::Relayed(heard) = out else { unreachable!("it was one") };
        let expected = "^{\"open\":[]}\n{a}\n^=1 {b}\n^=2 \n{c}\n^?{d}\n^=3 {e}\n{f}\n";
        assert_eq!(String::from_utf8(heard).expect("text").replace('\u{1}', "^"), expected);
    }
}
