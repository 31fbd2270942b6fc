//! The binary `tidegate`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::main()
}
