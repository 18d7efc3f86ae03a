//! The workspace as plain values: what the checks need of `cargo metadata`.
//!
//! The checks take these values and nothing else, so that their tests can make up a house.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// The workspace.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) members: Vec<Member>,
}

/// A crate of ours.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) deps: Vec<Dep>,
    pub(crate) roots: Vec<Root>,
}

/// A dependency that a crate of ours names.
#[derive(Debug, Clone)]
pub(crate) struct Dep {
    pub(crate) name: String,
    pub(crate) kind: DepKind,
    pub(crate) is_optional: bool,
}

/// What a dependency is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DepKind {
    Normal,
    Dev,
    Build,
}

/// The root file of something that cargo builds.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) kind: RootKind,
}

/// What is built from a root file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootKind {
    /// A library or a binary.
    Product,
    /// A test, a benchmark or a build script.
    Proof,
    /// An example.
    Example,
}

impl House {
    /// Asks cargo about the workspace that xtask belongs to.
    pub(crate) fn open() -> Result<Self> {
        // Not the current folder: `cargo xtask` works from anywhere within the workspace.
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .no_deps()
            .exec()
            .context("ask `cargo metadata` about the workspace")?;
        let members = metadata.workspace_packages().into_iter().map(member).collect();
        Ok(Self {
            root: metadata.workspace_root.into_std_path_buf(),
            target: metadata.target_directory.into_std_path_buf(),
            members,
        })
    }

    /// The member of this name.
    pub(crate) fn member(&self, name: &str) -> Result<&Member> {
        let found = self.members.iter().find(|member| member.name == name);
        found.with_context(|| format!("the workspace has no crate `{name}`"))
    }

    /// A path as one names it within the house.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

impl Member {
    /// The root of this name and kind.
    pub(crate) fn root(&self, name: &str, kind: RootKind) -> Option<&Root> {
        self.roots.iter().find(|root| root.name == name && root.kind == kind)
    }
}

fn member(package: &cargo_metadata::Package) -> Member {
    let manifest = package.manifest_path.as_std_path();
    let roots = package.targets.iter().map(|target| Root {
        name: target.name.clone(),
        file: target.src_path.clone().into_std_path_buf(),
        kind: match target.kind.first() {
            Some(TargetKind::Test | TargetKind::Bench | TargetKind::CustomBuild) => RootKind::Proof,
            Some(TargetKind::Example) => RootKind::Example,
            _ => RootKind::Product,
        },
    });
    let deps = package.dependencies.iter().map(|dep| Dep {
        name: dep.name.clone(),
        kind: match dep.kind {
            DependencyKind::Development => DepKind::Dev,
            DependencyKind::Build => DepKind::Build,
            _ => DepKind::Normal,
        },
        is_optional: dep.optional,
    });
    Member {
        name: package.name.to_string(),
        dir: manifest.parent().unwrap_or(Path::new("")).to_owned(),
        deps: deps.collect(),
        roots: roots.collect(),
    }
}
