//! `windlass crds`.

use std::path::PathBuf;

use crate::cli::{self, Failure};

#[derive(clap::Args)]
pub struct Args {
    /// Write one file per CRD into this directory instead.
    #[arg(long, env = "WINDLASS_DIR")]
    dir: Option<PathBuf>,
}

/// Every CRD as its file name and its YAML.
pub fn files() -> Result<Vec<(String, String)>, Failure> {
    let mut files = Vec::new();
    for crd in windlass_api::crd::all_crds()? {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        files.push((
            format!("{group}_{plural}.yaml"),
            yaml_serde::to_string(&crd)?,
        ));
    }
    Ok(files)
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let files = files()?;
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir)?;
        for (name, text) in files {
            std::fs::write(dir.join(name), text)?;
        }
        return Ok(());
    }
    let documents: String = files
        .iter()
        .map(|(_, text)| format!("---\n{text}"))
        .collect();
    cli::print(&documents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_folder_holds_what_the_types_say() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds");
        let expected = files().unwrap();
        let list = std::fs::read_to_string(dir.join("kustomization.yaml")).unwrap();
        // One file more: the list, with which kustomize applies the others.
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), expected.len() + 1);
        for (name, text) in expected {
            assert!(
                list.contains(&format!("- {name}\n")),
                "add {name} to crds/kustomization.yaml"
            );
            let found = std::fs::read_to_string(dir.join(&name)).unwrap_or_default();
            assert!(
                found == text,
                "crds/{name} differs from the types; run: windlass crds --dir crds"
            );
        }
    }
}
