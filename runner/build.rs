//! Build script: packs the relocations of the executable to install, which makes it 0.8 MB smaller.
//!
//! glibc loads them from 2.36 on. A machine with an older one builds the larger executable.

use std::env;
use std::process::Command;

/// The first version that loads packed relocations.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if is_dist() && is_for_this_machine() && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Only the profile `dist` prefers a small size.
fn is_dist() -> bool {
    env::var("OPT_LEVEL").is_ok_and(|level| level == "z")
}

/// Another machine may have another glibc.
fn is_for_this_machine() -> bool {
    env::var("HOST").is_ok_and(|host| env::var("TARGET").is_ok_and(|target| host == target))
}

/// The version of glibc here. `None`: another library, or it cannot be asked.
fn glibc() -> Option<(u32, u32)> {
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
