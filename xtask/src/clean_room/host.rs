//! What leads this machine to its registries and mirrors, for a room: read from where programs read it, so
//! that no host is named here.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};

/// Files that a room has from this machine, where there are any.
const FILES: [&str; 4] = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/npmrc"];

/// Files below the home directory that a room has from this machine, where there are any.
const HOME_FILES: [&str; 5] =
    [".cargo/config.toml", ".cargo/config", ".config/pip/pip.conf", ".pip/pip.conf", ".npmrc"];

/// This machine's own certificates: the package `ca-certificates` makes its list anew, with these in it.
const CERTIFICATES: &str = "/usr/local/share/ca-certificates";

/// Settings of apt, cargo, pip, npm and name resolution, and the files that variables of [`environment`]
/// name.
pub(crate) fn copy_settings(room: &Path) -> Result {
    let apt = room.join("etc/apt");
    process::capture(Command::new("rm").arg("-rf").arg(&apt))?;
    process::capture(Command::new("cp").args(["-aL", "/etc/apt"]).arg(&apt))?;
    if Path::new(CERTIFICATES).is_dir() {
        let to = room.join(CERTIFICATES.trim_start_matches('/'));
        process::capture(Command::new("mkdir").arg("-p").arg(&to))?;
        process::capture(Command::new("cp").args(["-aLT", CERTIFICATES]).arg(&to))?;
    }
    let files = FILES.iter().map(PathBuf::from);
    let named = variables().map(|(_, value)| PathBuf::from(value)).filter(|path| path.is_absolute());
    for file in files.chain(named).filter(|file| file.is_file()) {
        copy(&file, room, &file)?;
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    for file in HOME_FILES.iter().filter(|file| home.join(file).is_file()) {
        copy(&home.join(file), room, &Path::new("/root").join(file))?;
    }
    Ok(())
}

/// Copies a file to a path of the room.
fn copy(from: &Path, room: &Path, path: &Path) -> Result {
    let to = room.join(path.strip_prefix("/").unwrap_or(path));
    let parent = to.parent().unwrap_or(room);
    fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    fs::copy(from, &to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Variables that a room has from this machine: proxies, certificates and registries; not those that name
/// what the room lacks.
pub(crate) fn environment(room: &Path) -> Vec<(OsString, OsString)> {
    let is_there = |value: &OsString| match Path::new(value).strip_prefix("/") {
        Ok(path) => room.join(path).exists(),
        Err(_) => true,
    };
    variables().filter(|(_, value)| is_there(value)).collect()
}

fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(leads_to_registries))
}

fn leads_to_registries(name: &str) -> bool {
    const STARTS: [&str; 6] =
        ["PIP_", "NPM_CONFIG_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_HTTP_", "CARGO_NET_"];
    let name = name.to_ascii_uppercase();
    name.ends_with("_PROXY")
        || ["CERT", "CA_BUNDLE", "CAINFO"].iter().any(|part| name.contains(part))
        || STARTS.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_proxies_certificates_and_registries_are_kept() {
        for name in ["https_proxy", "NO_PROXY", "SSL_CERT_FILE", "PIP_INDEX_URL", "npm_config_registry"] {
            assert!(leads_to_registries(name), "{name}");
        }
        for name in ["PATH", "HOME", "TMPDIR", "CARGO_TARGET_DIR", "RUSTFLAGS", "FUNC_LATENCY_FULL"] {
            assert!(!leads_to_registries(name), "{name}");
        }
    }
}
