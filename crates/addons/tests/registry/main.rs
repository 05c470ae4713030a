//! Reading a registry and fetching archives, from doubles on loopback addresses.

mod access;
mod archive;
mod double;
mod versions;

use windlass_addons::catalogue::{Chart, InUse};
use windlass_addons::failure::Failure;
use windlass_addons::oci::{self, KnownTags, Limits, Reading};
use windlass_addons::source::Source;

use self::double::{PASSWORD, limits};

async fn read(source: &Source) -> Result<Reading, Failure> {
    read_with(source, &InUse::new(), &KnownTags::new(), &limits()).await
}

async fn read_with(
    source: &Source,
    in_use: &InUse,
    known: &KnownTags,
    limits: &Limits,
) -> Result<Reading, Failure> {
    // The hub runs each reading as a task of its own.
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let result = is_send(oci::read(source, in_use, known, limits)).await;
    let text = format!("{result:?}");
    for secret in [PASSWORD, "wrong-horse", "secret-token", "YWRhO"] {
        assert!(!text.contains(secret), "a secret in {text}");
    }
    result
}

fn web(reading: &Reading) -> &Chart {
    &reading.catalogue.charts["web"]
}

fn versions(reading: &Reading) -> Vec<&str> {
    let versions = web(reading).versions.iter();
    versions.map(|version| version.version.as_str()).collect()
}
