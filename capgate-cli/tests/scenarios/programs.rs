//! The programs that scenarios run, at the same place on every machine, since ledgers name them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    absent,
    service::install,
    site::{SCRATCH, succeed},
};

/// Where the programs are, and nothing else on the search path.
pub(crate) const BIN: &str = "/tmp/capgate-scenario/bin";

/// Where the sources are when the suite compiles them.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/programs");
/// Where what they include is.
const SUPPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support");
/// Static, so that they run where there is no C library.
const FLAGS: [&str; 7] = [
    "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I",
];

/// Puts the programs in their place: those of a directory, else compiled here.
pub(crate) fn install_all(prebuilt: Option<&Path>) {
    fs::create_dir_all(SCRATCH).unwrap();
    match fs::remove_dir_all(BIN) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{BIN}: {error}"),
        _ => {}
    }
    fs::create_dir(BIN).unwrap();
    let compiled = prebuilt.map_or_else(compile, Path::to_owned);
    for entry in fs::read_dir(&compiled).unwrap() {
        let path = entry.unwrap().path();
        install(&path, &Path::new(BIN).join(path.file_name().unwrap()));
    }
    let busybox = Path::new(BIN).join("busybox");
    if !busybox.exists() {
        let found = ["/usr/bin/busybox", "/bin/busybox"]
            .into_iter()
            .map(Path::new);
        let found = found.into_iter().find(|path| path.exists());
        install(found.expect("busybox is installed"), &busybox);
    }
    for applet in succeed(Command::new(&busybox).arg("--list")).lines() {
        if applet != "busybox" {
            symlink("busybox", Path::new(BIN).join(applet)).unwrap();
        }
    }
}

/// Compiles every source: `NAME.c`, and on x86 `NAME.ia32.c` for 32 bits.
fn compile() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-programs");
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(&target).unwrap() {
        let program = entry.unwrap().path();
        let source = format!("{SOURCES}/{}.c", program.file_name().unwrap().display());
        if !Path::new(&source).exists() {
            fs::remove_file(program).unwrap();
        }
    }
    for entry in fs::read_dir(SOURCES).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".c") else {
            continue;
        };
        let is_ia32 = name.ends_with(".ia32");
        if is_ia32 && (cfg!(not(target_arch = "x86_64")) || absent::is_declared("ia32").unwrap()) {
            continue;
        }
        let program = target.join(name);
        let sources = [&source, &Path::new(SUPPORT).join("common.h")];
        if sources.iter().all(|it| is_newer(&program, it)) {
            continue;
        }
        let mut gcc = Command::new("gcc");
        gcc.args(FLAGS).arg(SUPPORT);
        if is_ia32 {
            // Not in the compiler's own list of places: the kernel's headers, which both share.
            gcc.args(["-m32", "-idirafter", "/usr/include/x86_64-linux-gnu"]);
        }
        succeed(gcc.arg("-o").arg(&program).arg(&source));
    }
    target
}

/// Whether a file was made after another one changed.
fn is_newer(file: &Path, than: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|it| it.modified());
    changed(file).is_ok_and(|time| time > changed(than).unwrap())
}
