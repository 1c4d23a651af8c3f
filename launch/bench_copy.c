#include "bench_commands.h"
#include "say.h"
int bench_copy(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    say("bench copy: not yet");
    return EXIT_USAGE;
}
void bench_copy_help(void)
{
}
