# lib.sh - shell that the scripts of launch/ and tests/ share. Source it: . "$(dirname "$0")/lib.sh"
# Sets kvf_top (the tree), and where id -u is 0 the two variables without which Open MPI refuses root.

kvf_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

kvf_say() { printf '== %s\n' "$*"; }

kvf_die()
{
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# kvf_build PRESET: configures and builds build/PRESET; says little when all is well.
kvf_build()
{
    local log="$kvf_top/build/$1.log"
    mkdir -p "$kvf_top/build"
    if ! (cd "$kvf_top" && cmake --preset "$1" && cmake --build --preset "$1" -j "$(nproc)") \
        >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "build $1: failed, whole log in $log"
        return 1
    fi
    echo "build $1: done"
}

# kvf_ranks N COMMAND...: N ranks on this machine, however many cores it has. Not bound, since a rank
# pinned to one core would share it with its own progress thread.
kvf_ranks()
{
    local ranks=$1
    shift
    mpirun --oversubscribe --bind-to none -n "$ranks" "$@"
}
