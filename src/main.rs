//! The command-line program.

fn main() -> std::process::ExitCode {
    pushforward::cli::main()
}
