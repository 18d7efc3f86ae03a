//! How to reach a database, and how to speak with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::SslMode;

use super::tls::{Tls, Verify};
use crate::StoreError;

/// Called with what a person should read: a connection lost or back, notes that do not come through. Once for
/// each change.
pub type Remark = Arc<dyn Fn(&str) + Send + Sync>;

/// How to reach a database, and how to speak with it.
#[derive(Clone)]
pub struct Settings {
    /// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=ca.pem`, or words as libpq
    /// takes them. Besides the words of libpq: `prepared=false` sends every statement whole and sets its session
    /// up in each transaction, as a proxy that pools transactions needs it.
    pub url: String,
    /// Where to listen for notes: past the proxy, if there is one. `None`: at `url`.
    pub listen_url: Option<String>,
    /// How long the server may take for one statement. The answer is waited for a quarter longer.
    pub statement_timeout: Duration,
    /// How long it may take to connect, and how long data may stay unacknowledged.
    pub connect_timeout: Duration,
    /// Who hears remarks; `None`: nobody.
    pub remark: Option<Remark>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL has a password in it.
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl Settings {
    /// Reach it there; everything else as it is by default: 20 s for a statement, 5 s to connect.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            listen_url: None,
            statement_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(5),
            remark: None,
        }
    }
}

/// What a URL says.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Option<Tls>,
    pub(super) is_prepared: bool,
    /// Without the password, for people.
    pub(super) shown: String,
}

impl Target {
    pub(super) fn new(url: &str, settings: &Settings) -> Result<Self, StoreError> {
        let (url, own) = split(url)?;
        let fault = |error: tokio_postgres::Error| {
            StoreError::Config(format!("the URL of the database: {}", super::error::text(&error)))
        };
        let mut config: tokio_postgres::Config = url.parse().map_err(fault)?;
        let verify = match own.sslmode.as_deref() {
            Some("disable") => {
                config.ssl_mode(SslMode::Disable);
                None
            }
            None | Some("prefer") => {
                config.ssl_mode(SslMode::Prefer);
                Some(Verify::Nothing)
            }
            // As libpq has it: with a root certificate at hand, `require` looks at the chain.
            Some("require") => {
                config.ssl_mode(SslMode::Require);
                Some(if own.root.is_some() { Verify::Chain } else { Verify::Nothing })
            }
            Some("verify-ca") => {
                config.ssl_mode(SslMode::Require);
                Some(Verify::Chain)
            }
            Some("verify-full") => {
                config.ssl_mode(SslMode::Require);
                Some(Verify::Full)
            }
            Some(other) => {
                return Err(StoreError::Config(format!(
                    "sslmode is `{other}`; it may be disable, prefer, require, verify-ca or verify-full"
                )));
            }
        };
        let tls = match verify {
            Some(verify) => Some(Tls::new(verify, &own)?),
            None => None,
        };
        if config.get_application_name().is_none() {
            config.application_name("evener");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(settings.connect_timeout);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(settings.connect_timeout * 3);
        }
        config.keepalives_idle(Duration::from_secs(15));
        let hosts: Vec<String> = config
            .get_hosts()
            .iter()
            .map(|host| match host {
                tokio_postgres::config::Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let shown = format!("{}/{}", hosts.join(","), config.get_dbname().unwrap_or(""));
        Ok(Self { config, tls, is_prepared: own.is_prepared, shown })
    }
}

/// The words that are ours, or that the driver reads otherwise than libpq.
#[derive(Debug, Default)]
pub(super) struct Own {
    sslmode: Option<String>,
    pub(super) root: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    is_prepared: bool,
}

impl Own {
    fn take(&mut self, name: &str, value: &str) -> Result<bool, StoreError> {
        match name {
            "sslmode" => self.sslmode = Some(value.to_owned()),
            "sslrootcert" => self.root = (value != "system").then(|| PathBuf::from(value)),
            "sslcert" => self.certificate = Some(PathBuf::from(value)),
            "sslkey" => self.key = Some(PathBuf::from(value)),
            "prepared" => {
                self.is_prepared = match value {
                    "true" => true,
                    "false" => false,
                    _ => {
                        return Err(StoreError::Config(format!(
                            "prepared is `{value}`; it may be true or false"
                        )));
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn split(url: &str) -> Result<(String, Own), StoreError> {
    let mut own = Own { is_prepared: true, ..Own::default() };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        // Words. Quoted values with blanks in them are the driver's to read; ours have none.
        let mut rest = Vec::new();
        for word in url.split_whitespace() {
            let is_ours = match word.split_once('=') {
                Some((name, value)) => own.take(name, value.trim_matches('\''))?,
                None => false,
            };
            if !is_ours {
                rest.push(word);
            }
        }
        return Ok((rest.join(" "), own));
    }
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), own)) };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !own.take(name, &decoded(value)?)? {
            rest.push(pair);
        }
    }
    let query = rest.join("&");
    Ok((if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") }, own))
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits =
            [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| (digit as char).to_digit(16)));
        let [Some(high), Some(low)] = digits else {
            return Err(StoreError::Config(format!(
                "`{text}` in the URL of the database has a % without digits"
            )));
        };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes)
        .map_err(|_| StoreError::Config(format!("`{text}` in the URL of the database is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_words_are_taken_out_and_the_others_stay() {
        let (url, own) =
            split("postgres://u:p@h/d?sslmode=verify-full&connect_timeout=3&prepared=false").unwrap();
        assert_eq!(url, "postgres://u:p@h/d?connect_timeout=3");
        assert_eq!(own.sslmode.as_deref(), Some("verify-full"));
        assert!(!own.is_prepared);
        let (words, own) = split("host=/tmp user=x sslmode=disable sslrootcert=/a/b.pem").unwrap();
        assert_eq!(words, "host=/tmp user=x");
        assert_eq!(own.root, Some(PathBuf::from("/a/b.pem")));
        assert!(own.is_prepared);
        let (_, own) = split("postgres://h/d?sslrootcert=%2Ftmp%2Fca%20x.pem").unwrap();
        assert_eq!(own.root, Some(PathBuf::from("/tmp/ca x.pem")));
    }

    #[test]
    fn what_makes_no_sense_is_said_and_the_password_is_not_shown() {
        let target = |url: &str| Target::new(url, &Settings::new(url));
        for url in
            ["postgres://h/d?sslmode=maybe", "postgres://h/d?prepared=1", "postgres://h/d?sslcert=%z", "h"]
        {
            assert!(matches!(target(url), Err(StoreError::Config(_))), "{url}");
        }
        assert_eq!(target("postgres://u:secret@h/d").unwrap().shown, "h/d");
    }
}
