//! Binary `tidegate`: calls the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::main()
}
