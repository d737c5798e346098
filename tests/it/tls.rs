//! TLS in front of a server that has none.

use std::sync::Arc;

use base64::Engine as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, pki_types::PrivateKeyDer};

/// Takes TLS off connections and hands them on, as long as the test runs.
pub(crate) struct Front {
    /// Where it listens, on `localhost`.
    pub(crate) port: u16,
    /// As PEM; signed by itself, so nobody trusts it who was not told to.
    pub(crate) certificate: String,
}

impl Front {
    /// One in front of this port.
    pub(crate) fn of(behind: u16) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the key fits");
        let text = base64::prelude::BASE64_STANDARD.encode(made.cert.der());
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        let certificate =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
        Self { port: terminate(config, behind), certificate }
    }
}

fn terminate(config: rustls::ServerConfig, behind: u16) -> u16 {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender.send(listener.local_addr().expect("it is bound").port()).expect("the test waits");
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let Ok(mut inside) = TcpStream::connect(("127.0.0.1", behind)).await else { return };
                    // Either side may hang up.
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
    });
    receiver.recv().expect("it listens")
}
