//! A store that is reached by TLS only.

use super::start::{config, serve_with};
use super::{Cluster, echo, open, tools};
use crate::client::Era;
use crate::harness::{Finished, Lab};
use crate::store::Store;
use crate::tls::Front;

#[test]
fn a_store_behind_tls_is_used_if_its_certificate_is_trusted() {
    for scheme in ["rediss", "valkeys"] {
        let Some(store) = Store::start() else { return };
        let front = Front::of(store.port());
        let url = format!("{scheme}://localhost:{}/0", front.port);
        let mut cluster = Cluster { store, hosts: Vec::new() };
        for _ in 0..2 {
            let lab = Lab::new();
            let trusted = lab.write("trusted.pem", &front.certificate);
            cluster.add_with(lab, tools("echo"), &url, |command| {
                command.env("SSL_CERT_FILE", trusted);
            });
        }
        let mut client = cluster.client(Era::Legacy);
        open(&mut client);
        for n in 0..4 {
            echo(&mut client, n);
        }
        assert!(cluster.store.entries().iter().any(|entry| entry.key.contains(":session:")), "{scheme}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_is_status_4_and_nothing_turns_the_check_off() {
    let Some(store) = Store::start() else { return };
    let (front, other) = (Front::of(store.port()), Front::of(store.port()));
    let (good, wrong_name) = (format!("localhost:{}", front.port), format!("127.0.0.1:{}", front.port));
    for (address, issuer) in
        [(&good, None), (&good, Some(&other.certificate)), (&wrong_name, Some(&front.certificate))]
    {
        let lab = Lab::new();
        let issuer = issuer.map(|issuer| lab.write("trusted.pem", issuer));
        let url = format!("rediss://:a-password@{address}/0");
        let Finished { code, stdout, stderr } = serve_with(&lab, &config(&url), |command| {
            command.env_remove("SSL_CERT_FILE").envs(issuer.map(|issuer| ("SSL_CERT_FILE", issuer)));
        });
        assert_eq!(code, Some(4), "{stderr}");
        for words in [address.as_str(), "certificate", "SSL_CERT_FILE"] {
            assert!(stderr.contains(words), "no {words} in: {stderr}");
        }
        assert!(!stderr.contains("a-password") && stdout.is_empty(), "{stderr}");
    }
    for switch in ["#insecure", "?insecure=true", "?verify=false"] {
        let lab = Lab::new();
        let refused = serve_with(&lab, &config(&format!("rediss://{good}/0{switch}")), |_| {});
        assert!(matches!(refused.code, Some(2 | 4)), "{switch}: {refused:?}");
    }
    assert!(store.entries().is_empty(), "nobody got in");
}
