//! Certificates for the server, for its clients and for strangers.

use isotherm_live::nbd::tls::Tls;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rcgen::{KeyUsagePurpose, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;

/// Certificates in a directory, under the names that libnbd and qemu expect.
pub(super) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(super) fn new() -> Certificates {
        let dir = Certificates(tempfile::tempdir().expect("a directory"));
        for (authority, people) in [
            ("ca", ["server", "client"]),
            ("other-ca", ["x", "stranger"]),
        ] {
            let mut root = CertificateParams::new(Vec::new()).expect("parameters");
            root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            root.distinguished_name
                .push(rcgen::DnType::CommonName, authority);
            let root_key = KeyPair::generate().expect("a key");
            let root = root.self_signed(&root_key).expect("signed");
            dir.write(&format!("{authority}-cert.pem"), &root.pem());
            for (i, name) in people.into_iter().enumerate() {
                let mut p = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
                p.subject_alt_names
                    .push(SanType::IpAddress([127, 0, 0, 1].into()));
                p.distinguished_name.push(rcgen::DnType::CommonName, name);
                p.key_usages = vec![KeyUsagePurpose::DigitalSignature];
                p.extended_key_usages = vec![if i == 0 {
                    ExtendedKeyUsagePurpose::ServerAuth
                } else {
                    ExtendedKeyUsagePurpose::ClientAuth
                }];
                let key = KeyPair::generate().expect("a key");
                let signed = p.signed_by(&key, &root, &root_key).expect("signed");
                dir.write(&format!("{name}-cert.pem"), &signed.pem());
                dir.write(&format!("{name}-key.pem"), &key.serialize_pem());
            }
        }
        dir
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
        self.permit(name, 0o600);
    }

    pub(super) fn permit(&self, name: &str, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self.path(name), mode).expect("set");
    }

    /// The directory, as text.
    pub(super) fn dir(&self) -> String {
        self.0.path().display().to_string()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn tls(&self) -> Tls {
        Tls::load(
            &self.path("server-cert.pem"),
            &self.path("server-key.pem"),
            &self.path("ca-cert.pem"),
        )
        .expect("certificates")
    }

    /// The configuration of a client with the certificate of `name`, or without one.
    pub(super) fn client(&self, name: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.path("ca-cert.pem")).expect("PEM");
        roots.add(authority).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match name {
            None => config.with_no_client_auth(),
            Some(name) => {
                let cert = self.path(&format!("{name}-cert.pem"));
                let key = self.path(&format!("{name}-key.pem"));
                let cert = CertificateDer::from_pem_file(cert).expect("PEM");
                let key = PrivateKeyDer::from_pem_file(key).expect("PEM");
                config.with_client_auth_cert(vec![cert], key).expect("fits")
            }
        })
    }
}
