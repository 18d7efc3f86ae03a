//! Packages of Debian.

use anyhow::{Result, bail};

use crate::run::{Job, first_line};

/// Installs packages, as root or with sudo.
///
/// # Errors
/// When that fails; the text names the packages.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let as_root: &[&str] =
        if first_line(&["id", "-u"]).as_deref() == Some("0") { &[] } else { &["sudo", "-n"] };
    let apt = |words: &[&str]| {
        Job::new(
            [
                as_root,
                &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"],
                words,
            ]
            .concat(),
        )
        .run()
    };
    // Old lists may do as well: whether it is here in the end counts.
    let _ = apt(&["update"]);
    match apt(&[&["install", "-y", "--no-install-recommends"], packages].concat()) {
        Ok(ran) if ran.ok => Ok(()),
        _ => bail!("packages that cannot be installed here: {}", packages.join(", ")),
    }
}
