//! Links the image at the address that ArceOS's platform crate expects.

use std::env;
use std::path::PathBuf;

fn main() {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // ArceOS's `axhal` leaves its linker script three directories above this crate's output directory.
    let own = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let script = own.ancestors().nth(3).expect("OUT_DIR is deep").join("linker_x86-pc.lds");
    println!("cargo::rustc-link-arg=-T{}", script.display());
    println!("cargo::rustc-link-arg=-T{}/loader.lds", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=loader.lds");
    println!("cargo::rustc-link-arg=-no-pie");
    println!("cargo::rustc-link-arg=-znostart-stop-gc");
}
