//! A store in memory that fails, loses answers, carries requests out late and shows old lists, all from a seed.
#![allow(dead_code)]

pub mod place;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use isotherm_store::remote::Remote;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

pub type Late = (Path, PutPayload, PutOptions);

/// What all writers share.
#[derive(Debug, Default)]
pub struct World {
    pub store: InMemory,
    /// PUTs that will arrive later.
    pub late: Mutex<Vec<Late>>,
}

impl World {
    /// One of the late PUTs arrives.
    pub async fn arrive(&self, which: u64) {
        let late = {
            let mut late = self.late.lock().unwrap();
            if late.is_empty() {
                return;
            }
            let at = (which % late.len() as u64) as usize;
            late.remove(at)
        };
        let _ = self.store.put_opts(&late.0, late.1, late.2).await;
    }
}

type Hook = Box<dyn FnOnce() + Send>;

pub struct Faults {
    pub random: Random,
    /// One request in so many fails; 0: none.
    pub one_in: u64,
    /// Requests that are still answered before the process is dead for the store.
    pub left: Option<u64>,
    /// Lists lack so many of the newest objects.
    pub old_lists: usize,
    /// Called before the request of this number from now.
    pub hook: Option<(u64, Hook)>,
}

/// One writer's way to the world.
pub struct Faulty {
    pub world: Arc<World>,
    pub faults: Arc<Mutex<Faults>>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}
impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

fn broken() -> Error {
    Error::Generic {
        store: "faulty",
        source: "500".into(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    Fails,
    AnswerLost,
    Late,
}

impl Faulty {
    async fn fate(&self) -> Fate {
        let hook = {
            let mut faults = self.faults.lock().unwrap();
            match &mut faults.hook {
                Some((0, _)) => faults.hook.take().map(|(_, hook)| hook),
                Some((n, _)) => {
                    *n -= 1;
                    None
                }
                None => None,
            }
        };
        if let Some(hook) = hook {
            // It makes requests of its own.
            std::thread::spawn(hook).join().unwrap();
        }
        let (fate, arrives) = {
            let mut faults = self.faults.lock().unwrap();
            if let Some(left) = &mut faults.left {
                if *left == 0 {
                    return Fate::Fails;
                }
                *left -= 1;
            }
            let rate = faults.one_in;
            let fate = if faults.random.one_in(rate) {
                [Fate::Fails, Fate::AnswerLost, Fate::Late][faults.random.below(3) as usize]
            } else {
                Fate::Good
            };
            let which = faults.random.0;
            (fate, faults.random.one_in(4).then_some(which))
        };
        if let Some(which) = arrives {
            self.world.arrive(which).await;
        }
        fate
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let fate = self.fate().await;
        let is_late = |late: &Late| late.0 == *path;
        let faulty = self.faults.lock().unwrap().one_in > 0;
        if fate == Fate::Good && faulty && self.world.late.lock().unwrap().iter().any(is_late) {
            // As S3 does: 409, and the object is not there.
            return Err(Error::AlreadyExists {
                path: path.to_string(),
                source: "409".into(),
            });
        }
        match fate {
            Fate::Good => self.world.store.put_opts(path, payload, opts).await,
            Fate::Fails => Err(broken()),
            Fate::AnswerLost => {
                let _ = self.world.store.put_opts(path, payload, opts).await;
                Err(broken())
            }
            Fate::Late => {
                self.world
                    .late
                    .lock()
                    .unwrap()
                    .push((path.clone(), payload, opts));
                Err(broken())
            }
        }
    }
    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(broken())
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        if self.fate().await == Fate::Good {
            self.world.store.get_opts(path, options).await
        } else {
            Err(broken())
        }
    }
    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let (world, faults) = (Arc::clone(&self.world), Arc::clone(&self.faults));
        paths
            .and_then(move |path| {
                let this = Faulty {
                    world: Arc::clone(&world),
                    faults: Arc::clone(&faults),
                };
                async move {
                    use object_store::ObjectStoreExt;
                    let fate = this.fate().await;
                    if fate == Fate::Fails {
                        return Err(broken());
                    }
                    this.world.store.delete(&path).await?;
                    if fate == Fate::Good {
                        Ok(path)
                    } else {
                        Err(broken())
                    }
                }
            })
            .boxed()
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (world, faults, prefix) = (
            Arc::clone(&self.world),
            Arc::clone(&self.faults),
            prefix.cloned(),
        );
        let made = async move {
            let this = Faulty { world, faults };
            let fate = this.fate().await;
            if fate == Fate::Fails {
                return futures_util::stream::iter(vec![Err(broken())]);
            }
            let mut all: Vec<_> = this.world.store.list(prefix.as_ref()).collect().await;
            let asked = this.faults.lock().unwrap().old_lists;
            let lacks = if fate == Fate::Good { asked } else { 3 };
            if lacks > 0 {
                all.sort_by_key(|one| one.as_ref().map(|m| m.last_modified).ok());
                all.truncate(all.len().saturating_sub(lacks).max(1));
            }
            futures_util::stream::iter(all)
        };
        futures_util::stream::once(made).flatten().boxed()
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.world.store.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.world.store.copy_opts(from, to, options).await
    }
}

/// A runtime whose own thread carries out what nobody waits for.
pub fn runtime() -> Arc<tokio::runtime::Runtime> {
    Arc::new(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
    )
}

/// A way to the world with its faults.
pub fn way(
    world: &Arc<World>,
    seed: u64,
    runtime: &Arc<tokio::runtime::Runtime>,
) -> (Remote, Arc<Mutex<Faults>>) {
    let faults = Arc::new(Mutex::new(Faults {
        random: Random(seed),
        one_in: 0,
        left: None,
        old_lists: 0,
        hook: None,
    }));
    let faulty = Faulty {
        world: Arc::clone(world),
        faults: Arc::clone(&faults),
    };
    let remote = Remote::over(
        Arc::new(faulty),
        Path::from("some/prefix"),
        Arc::clone(runtime),
        Duration::from_secs(30),
    );
    (remote, faults)
}

/// A folder in memory, if the system has one.
pub fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}
