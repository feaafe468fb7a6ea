//! Requests to the store: each has a deadline, and an answer that is one of few kinds.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode,
    PutOptions, RetryConfig,
};
use tokio::runtime::Runtime;
use url::Url;

use crate::layout::DESCRIPTION;

/// Why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// There is no object of this name.
    Missing(String),
    /// The object is not what was written.
    Damaged(String),
    /// The store did not answer, or answered that it cannot now.
    Away(String),
    /// The store refuses, and would refuse again: credentials, rights, an operation that it does not have.
    Refused(String),
}

impl std::fmt::Display for RemoteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RemoteError::Missing(name) => write!(f, "{name} is not in the store"),
            RemoteError::Damaged(what) => write!(f, "{what} is damaged"),
            RemoteError::Away(why) => write!(f, "the store is away: {why}"),
            RemoteError::Refused(why) => write!(f, "the store refuses: {why}"),
        }
    }
}

/// An object in a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Name below the prefix.
    pub name: String,
    /// Milliseconds since 1970 on the store's clock.
    pub modified: i64,
}

/// Requests since the start.
#[derive(Debug, Default)]
pub struct Counts {
    /// PUT requests.
    pub puts: AtomicU64,
    /// GET and HEAD requests.
    pub gets: AtomicU64,
    /// Pages of lists are not counted, lists are.
    pub lists: AtomicU64,
    /// DELETE requests.
    pub deletes: AtomicU64,
    /// Bytes sent.
    pub sent: AtomicU64,
    /// Bytes received.
    pub received: AtomicU64,
}

/// The objects below one prefix of a store.
#[derive(Clone, Debug)]
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Arc<Runtime>,
    deadline: Duration,
    /// Requests since the start.
    pub counts: Arc<Counts>,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// An error's text without the queries of URLs, which may hold signatures.
fn without_queries(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | ')' | '>' | '\'');
    let mut parts = text.split('?');
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find(ends).map_or("", |at| &part[at..]);
        clean += "?…";
        clean += rest;
    }
    clean
}

fn kind(name: &str, error: &object_store::Error) -> RemoteError {
    use object_store::Error as E;
    let text = without_queries(&error.to_string());
    match error {
        E::NotFound { .. } => RemoteError::Missing(name.to_owned()),
        E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::NotImplemented { .. }
        | E::NotSupported { .. }
        | E::InvalidPath { .. }
        | E::UnknownConfigurationKey { .. } => RemoteError::Refused(format!("{name}: {text}")),
        _ => RemoteError::Away(format!("{name}: {text}")),
    }
}

/// The client has no retries of its own to speak of: the deadline of a request covers them.
fn client() -> (ClientOptions, RetryConfig) {
    let options = ClientOptions::new()
        .with_connect_timeout(Duration::from_secs(10))
        .with_timeout(Duration::from_secs(60));
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 2,
        retry_timeout: Duration::from_secs(30),
    };
    (options, retry)
}

impl Remote {
    /// The store of a URL. Credentials and endpoints come from the environment or the machine's metadata service.
    ///
    /// # Errors
    /// The URL is none of a store, or its settings in the environment are wrong.
    pub fn open(url: &str) -> Result<Remote, String> {
        let bad = |e: &dyn std::fmt::Display| format!("{url}: {e}");
        let parsed = Url::parse(url).map_err(|e| {
            bad(&format!("{e}: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY"))
        })?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some()
        {
            return Err(
                "the URL of a store holds no credentials and no query: set them in the environment"
                    .into(),
            );
        }
        let (scheme, path) = ObjectStoreScheme::parse(&parsed).map_err(|e| bad(&e))?;
        // Another library may have installed a provider; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (options, retry) = client();
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => {
                Arc::new(object_store::local::LocalFileSystem::new().with_fsync(true))
            }
            ObjectStoreScheme::AmazonS3 => {
                let builder = object_store::aws::AmazonS3Builder::from_env().with_url(url);
                let options = allow_http(options, "AWS_ALLOW_HTTP");
                let builder = builder.with_retry(retry).with_client_options(options);
                Arc::new(builder.build().map_err(|e| bad(&e))?)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder =
                    object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(url);
                let builder = builder.with_retry(retry).with_client_options(options);
                Arc::new(builder.build().map_err(|e| bad(&e))?)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(url);
                let options = allow_http(options, "AZURE_ALLOW_HTTP");
                let builder = builder.with_retry(retry).with_client_options(options);
                Arc::new(builder.build().map_err(|e| bad(&e))?)
            }
            _ => return Err(bad(&"is none of s3://, gs://, az:// and file://")),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| format!("no thread for requests to the store: {e}"))?;
        Ok(Remote::over(
            store,
            path,
            Arc::new(runtime),
            Duration::from_secs(90),
        ))
    }

    /// The objects of `store` below `prefix`; each request ends within `deadline`.
    pub fn over(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        runtime: Arc<Runtime>,
        deadline: Duration,
    ) -> Remote {
        Remote {
            store,
            prefix,
            runtime,
            deadline,
            counts: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    /// Checks that the prefix is not inside of a store, whose objects would lie among this one's.
    ///
    /// # Errors
    /// It is; the text names that store's prefix.
    pub fn is_outermost(&self) -> Result<(), String> {
        let parts: Vec<_> = self.prefix.parts().collect();
        for n in 0..parts.len() {
            let outer = Remote {
                prefix: parts[..n].iter().cloned().collect(),
                ..self.clone()
            };
            // Whoever may not look there hears of a store that is away from the next request.
            if outer.wait(outer.head(DESCRIPTION)).is_ok() {
                let at = outer.prefix;
                return Err(format!(
                    "the prefix is inside of another store, at `{at}`: choose one outside of it"
                ));
            }
        }
        Ok(())
    }

    async fn limited<T>(
        &self,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, RemoteError> {
        match tokio::time::timeout(self.deadline, request).await {
            Ok(answer) => answer.map_err(|e| kind(name, &e)),
            Err(_) => Err(RemoteError::Away(format!(
                "{name}: no answer within {} s",
                self.deadline.as_secs()
            ))),
        }
    }

    /// Runs a request that nobody waits for.
    pub fn begin(&self, request: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(request));
    }

    /// Runs a request to its end on this thread.
    pub fn wait<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime.block_on(request)
    }

    /// The whole object.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn get(&self, name: &str) -> Result<Vec<u8>, RemoteError> {
        add(&self.counts.gets, 1);
        let path = self.path(name);
        let bytes = self
            .limited(name, async { self.store.get(&path).await?.bytes().await })
            .await?;
        add(&self.counts.received, bytes.len() as u64);
        Ok(bytes.into())
    }

    /// Exactly `len` bytes of the object from `offset`.
    ///
    /// # Errors
    /// See [`RemoteError`]; a shorter object is damaged.
    pub async fn get_range(
        &self,
        name: &str,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, RemoteError> {
        add(&self.counts.gets, 1);
        let path = self.path(name);
        match self
            .limited(name, self.store.get_range(&path, offset..offset + len))
            .await
        {
            Ok(bytes) if bytes.len() as u64 == len => {
                add(&self.counts.received, len);
                Ok(bytes.into())
            }
            Ok(_) => Err(RemoteError::Damaged(format!("{name}: it is too short and"))),
            // Stores answer differently when a range begins past the end.
            Err(RemoteError::Away(why)) => match self.size(name).await? {
                size if size < offset + len => {
                    Err(RemoteError::Damaged(format!("{name}: it is too short and")))
                }
                _ => Err(RemoteError::Away(why)),
            },
            Err(other) => Err(other),
        }
    }

    /// Bytes of the object.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn size(&self, name: &str) -> Result<u64, RemoteError> {
        Ok(self.head(name).await?.0)
    }

    /// Bytes of the object, and milliseconds since 1970 at which it was written, on the store's clock.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn head(&self, name: &str) -> Result<(u64, i64), RemoteError> {
        add(&self.counts.gets, 1);
        let path = self.path(name);
        let meta = self.limited(name, self.store.head(&path)).await?;
        Ok((meta.size, meta.last_modified.timestamp_millis()))
    }

    /// Makes an object that is not there yet. Returns whether it has these bytes now: it may be there already, from an earlier request
    /// whose answer was lost, or from another writer.
    ///
    /// # Errors
    /// See [`RemoteError`]; after [`RemoteError::Away`] the object may be there, now or later.
    pub async fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, RemoteError> {
        add(&self.counts.puts, 1);
        add(&self.counts.sent, bytes.len() as u64);
        let path = self.path(name);
        let request = async {
            let how = PutOptions::from(PutMode::Create);
            match self.store.put_opts(&path, bytes.to_vec().into(), how).await {
                Ok(_) => Ok(true),
                Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. },
                ) => Ok(false),
                Err(error) => Err(error),
            }
        };
        if self.limited(name, request).await? {
            return Ok(true);
        }
        match self.get(name).await {
            Ok(there) => Ok(there == bytes),
            // A PUT of this name is on its way, perhaps an earlier one of this program (S3 answers 409 then), or it was another's, who has
            // removed it: the next attempt tells.
            Err(RemoteError::Missing(_)) => Err(RemoteError::Away(format!(
                "{name}: a PUT of it is going on"
            ))),
            Err(other) => Err(other),
        }
    }

    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn delete(&self, name: &str) -> Result<(), RemoteError> {
        add(&self.counts.deletes, 1);
        let path = self.path(name);
        match self.limited(name, self.store.delete(&path)).await {
            Err(RemoteError::Missing(_)) => Ok(()),
            other => other,
        }
    }

    /// The first `most` objects below `folder` (`""`: below the prefix) that are `wanted`, in order of their names.
    ///
    /// # Errors
    /// See [`RemoteError`].
    pub async fn list(
        &self,
        folder: &str,
        most: usize,
        wanted: impl Fn(&Listed) -> bool,
    ) -> Result<Vec<Listed>, RemoteError> {
        add(&self.counts.lists, 1);
        let path = if folder.is_empty() {
            self.prefix.clone()
        } else {
            self.path(folder)
        };
        let skip = self.prefix.as_ref().len() + usize::from(!self.prefix.as_ref().is_empty());
        let listed = self.store.list(Some(&path)).map_ok(|meta| Listed {
            name: meta
                .location
                .as_ref()
                .get(skip..)
                .unwrap_or_default()
                .to_owned(),
            modified: meta.last_modified.timestamp_millis(),
        });
        // A long list takes many requests, so the deadline is that of an answer, not of all.
        let mut found: Vec<Listed> = Vec::new();
        let mut listed = Box::pin(listed);
        while let Some(one) = self
            .limited(folder, async { listed.next().await.transpose() })
            .await?
        {
            if wanted(&one) {
                found.push(one);
            }
            if found.len() == most {
                break;
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

fn allow_http(options: ClientOptions, variable: &str) -> ClientOptions {
    let yes = std::env::var(variable).is_ok_and(|v| v.eq_ignore_ascii_case("true") || v == "1");
    options.with_allow_http(yes)
}

/// Repeats `attempt` while the store is away, with growing pauses, for at most `wait`.
///
/// # Errors
/// The last error.
pub fn patiently<T>(
    wait: Duration,
    mut attempt: impl FnMut() -> Result<T, RemoteError>,
) -> Result<T, RemoteError> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(50));
    loop {
        match attempt() {
            Err(RemoteError::Away(why)) => {
                if begun.elapsed() + pause > wait {
                    return Err(RemoteError::Away(why));
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_in_a_url_is_in_no_message() {
        let said = without_queries(
            "PUT https://a/b?sig=secret&se=1 failed: \"https://a?sig=secret\" (why?)",
        );
        assert_eq!(said, "PUT https://a/b?… failed: \"https://a?…\" (why?…)");
        let url = "s3://key:secret@bucket/prefix";
        let said = Remote::open(url).unwrap_err();
        assert!(
            !said.contains("secret") && said.contains("environment"),
            "{said}"
        );
    }
}
