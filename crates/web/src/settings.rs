//! Where the view is served, and to whom. Settings that would give strangers access are refused before anything listens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address at which to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:PATH`, for a proxy.
    Unix(PathBuf),
    /// `ADDRESS:PORT`
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|p| !p.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let address = text.replacen("localhost:", "127.0.0.1:", 1);
        let address = address
            .parse()
            .map_err(|_| format!("`{text}`: write 127.0.0.1:PORT or unix:PATH"))?;
        Ok(Address::Tcp(address))
    }
}

impl Address {
    /// Whether other machines can connect.
    pub fn is_remote(&self) -> bool {
        matches!(self, Address::Tcp(a) if !a.ip().is_loopback())
    }
}

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address at which to listen.
    pub address: Address,
    /// PEM files of certificate chain and private key. With them every connection uses TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The token, which allows changes if `control` does. At an address that other machines can reach, nothing is shown without it.
    pub token: Option<String>,
    /// Whether parameters and policy may be changed.
    pub control: bool,
}

impl Settings {
    /// # Errors
    /// One line that says what must be given in addition.
    pub fn check(&self) -> Result<(), String> {
        if let Address::Tcp(a) = &self.address
            && self.address.is_remote()
        {
            if self.tls.is_none() {
                return Err(format!(
                    "{a}: other machines could connect, and what they send could be read on the way: use 127.0.0.1:PORT (and `ssh -L`), or give --web-tls-cert and --web-tls-key"
                ));
            }
            if self.token.is_none() {
                return Err(format!(
                    "{a}: everybody who can reach this address would see the volume: give --web-token FILE"
                ));
            }
        }
        if self.control && self.token.is_none() {
            return Err("--web-control: everybody on this machine could change the volume: give --web-token FILE".into());
        }
        Ok(())
    }
    /// Whether the token is needed for reading.
    pub(crate) fn is_private(&self) -> bool {
        self.address.is_remote()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_let_strangers_in_is_refused() {
        let settings = |address: &str, tls: bool, token: bool, control: bool| Settings {
            address: address.parse().expect("an address"),
            tls: tls.then(|| ("c".into(), "k".into())),
            token: token.then(|| "t".repeat(32)),
            control,
        };
        for (address, tls, token, control, said) in [
            ("127.0.0.1:1", false, false, false, None),
            ("localhost:1", false, false, false, None),
            ("[::1]:1", false, true, true, None),
            ("unix:/run/x", false, false, false, None),
            ("0.0.0.0:1", false, true, false, Some("--web-tls-cert")),
            ("[::]:1", true, false, false, Some("--web-token")),
            ("192.0.2.1:1", true, true, true, None),
            ("127.0.0.1:1", true, false, true, Some("--web-token")),
            ("unix:/run/x", false, false, true, Some("--web-token")),
        ] {
            let outcome = settings(address, tls, token, control).check();
            match said {
                None => assert_eq!(outcome, Ok(()), "{address}"),
                Some(word) => {
                    let e = outcome.expect_err(address);
                    assert!(e.contains(word), "{address}: {e}");
                }
            }
        }
        for bad in ["", "unix:", "9450", "somewhere:9450", "127.0.0.1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
