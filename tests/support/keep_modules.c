/*
 * keep_modules.c - for programs of sanitizer builds that start MPI: nothing is unloaded.
 *
 * MPI unloads its modules before the process ends. The leak report could then not name them, and
 * tests/support/lsan.supp would not match.
 */
int dlclose(void *module);

__attribute__((visibility("default"))) int dlclose(void *module)
{
    (void)module;
    return 0;
}
