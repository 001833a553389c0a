# Shared by the scripts beside it; sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_version=2.13.0 # the one version that the pinned tch crate binds
here=$PWD
cd "$root"

# Prints a command, then runs it.
run() {
    printf '+ %s\n' "$*" >&2
    "$@"
}

# Says in one line why the script stops, and how to go on.
stop() {
    printf 'error: %s\n' "$*" >&2
    exit 2
}

# The folder of libtorch in use: an exported LIBTORCH, else the one that scripts/setup-libtorch fills.
libtorch_folder() {
    printf '%s\n' "${LIBTORCH:-$root/.libtorch/torch}"
}

# Lets programs outside target/release (doctests, a moved target folder) find libtorch too. LIBTORCH itself stays as
# the caller has it: a changed value would make cargo compile the C++ part again.
find_libtorch_at_run_time() {
    LD_LIBRARY_PATH="$(libtorch_folder)/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
}
