/*
 * plan_main.c - `kvferry plan` and nothing else: starts many times faster than the program, which
 * loads MPI and UCX. test: plan_cli.
 */
#include "commands.h"

int main(int argc, char **argv)
{
    return command_plan(argc - 2, argv + 2);
}
