//! Whose certificates a connection accepts: those that this system trusts, since companies have their own authorities, or
//! those that two variables of the environment name, as with OpenSSL.
//!
//! The environment is a parameter: in the daemon each session has its own.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::{load_certs_from_paths, load_native_certs};

/// The variables: a file with certificates, and directories with such files.
pub const AUTHORITY_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The certificate authorities that an environment names; none: those of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Authorities {
    file: Option<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Authorities {
    /// Those that this environment names; relative paths are meant from this directory.
    pub fn named_in(vars: &[(OsString, OsString)], directory: &Path) -> Self {
        let [file, directories] = AUTHORITY_VARIABLES.map(|wanted| {
            let found = vars.iter().find(|(name, _)| name == wanted);
            found.map_or(OsStr::new(""), |(_, value)| value)
        });
        let directories = std::env::split_paths(directories).filter(|path| !path.as_os_str().is_empty());
        let directories = directories.map(|path| directory.join(path));
        Self { file: (!file.is_empty()).then(|| directory.join(file)), directories: directories.collect() }
    }

    /// TLS that trusts them. Those of the system are read once per process.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        if *self != Self::default() {
            return self.read().map(Arc::new);
        }
        if let Some(system) = SYSTEM.get() {
            return Ok(system.clone());
        }
        let made = trusting(load_native_certs().certs)?.ok_or(
            "TLS: this system has no certificate authorities; install ca-certificates or set SSL_CERT_FILE",
        )?;
        Ok(SYSTEM.get_or_init(|| Arc::new(made)).clone())
    }

    fn read(&self) -> Result<ClientConfig, String> {
        let file = load_certs_from_paths(self.file.as_deref(), None).certs;
        let read = |directory: &PathBuf| load_certs_from_paths(None, Some(directory)).certs;
        let found = file.into_iter().chain(self.directories.iter().flat_map(read));
        trusting(found)?.ok_or_else(|| {
            let places =
                self.file.iter().chain(&self.directories).map(|place: &PathBuf| place.display().to_string());
            let places: Vec<_> = places.collect();
            format!(
                "TLS: there are no certificate authorities in {}; correct {}",
                places.join(", "),
                AUTHORITY_VARIABLES.join(" or ")
            )
        })
    }
}

/// TLS that trusts these certificates; `None` if none of them can be used.
fn trusting(
    certificates: impl IntoIterator<Item = rustls::pki_types::CertificateDer<'static>>,
) -> Result<Option<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    match roots.is_empty() {
        true => Ok(None),
        false => config(roots).map(Some),
    }
}

/// TLS for connections that never use it.
pub(super) fn none() -> Result<Arc<ClientConfig>, String> {
    config(RootCertStore::empty()).map(Arc::new)
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_names_a_file_and_directories_or_nothing() {
        let named = |vars: &[(&str, &str)]| {
            let vars: Vec<_> = vars.iter().map(|(name, value)| (name.into(), value.into())).collect();
            Authorities::named_in(&vars, Path::new("/here"))
        };
        for nothing in [&[][..], &[("SSL_CERT_FILE", "")], &[("SSL_CERT_DIR", "")], &[("PATH", "/bin")]] {
            assert_eq!(named(nothing), Authorities::default(), "{nothing:?}");
        }
        let directories = std::env::join_paths(["/one", "two"]).expect("no separator in them");
        let both =
            named(&[("SSL_CERT_FILE", "/file"), ("SSL_CERT_DIR", directories.to_str().expect("UTF-8"))]);
        let expected = [PathBuf::from("/one"), Path::new("/here").join("two")];
        assert_eq!((both.file.as_deref(), &both.directories[..]), (Some("/file".as_ref()), &expected[..]));
        let refused = both.tls().expect_err("nothing is there");
        let places = ["/file".to_owned(), "/one".to_owned(), expected[1].display().to_string()].join(", ");
        assert_eq!(
            refused,
            format!(
                "TLS: there are no certificate authorities in {places}; correct SSL_CERT_FILE or SSL_CERT_DIR"
            )
        );
    }
}
