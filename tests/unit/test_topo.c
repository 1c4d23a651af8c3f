/* test_topo.c - where the library's threads run, from what the launcher allows. */
#include "testing.h"

#include <pthread.h>
#include <string.h>

#include "topo.h"

static uint32_t told_cores;
static bool told_bound;

/* Whatever machine this is: cores 0 to 3 are allowed, the engine runs on core 1. */
static void tell(struct topo *topo)
{
    CPU_ZERO(&topo->allowed);
    CPU_ZERO(&topo->caller);
    for (uint32_t cpu = 0; cpu < told_cores; cpu++)
        CPU_SET(cpu, &topo->allowed);
    CPU_SET(told_cores > 1 ? 1 : 0, &topo->caller);
    topo->cores = told_cores;
    topo->bound = told_bound;
}

static void threads_keep_off_the_engines_core_only_where_the_rank_is_bound(void **state)
{
    static const struct {
        uint32_t cores;
        bool bound, pin, pinned;
        const char *helpers;
    } cases[] = {
        {4, true, true, true, "0,2-3"}, {2, true, true, true, "0"},
        {1, true, true, false, "0"}, /* shared: there is no other */
        {4, false, true, false, "0-3"}, {4, true, false, false, "0-3"},
    };

    (void)state;
    for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct topo topo;
        char text[64];

        told_cores = cases[c].cores;
        told_bound = cases[c].bound;
        topo_read(&topo, tell, cases[c].pin);
        assert_int_equal(topo.pinned, cases[c].pinned);
        assert_string_equal(topo_set_text(&topo.helpers, text, sizeof(text)), cases[c].helpers);
    }
}

/* Two cores of those that this process really has. */
static void bind_to_two(struct topo *topo)
{
    int kept = 0;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &topo->allowed) && kept++ >= 2)
            CPU_CLR(cpu, &topo->allowed);
    topo->cores = (uint32_t)CPU_COUNT(&topo->allowed);
    topo->bound = true;
}

static void *note_set(void *set)
{
    (void)pthread_getaffinity_np(pthread_self(), sizeof(cpu_set_t), set);
    return NULL;
}

static void started_threads_run_there_and_the_engine_stays(void **state)
{
    cpu_set_t before, after, of_thread;
    struct topo topo;
    pthread_t thread;

    (void)state;
    topo_read(&topo, bind_to_two, true);
    if (!topo.pinned)
        skip(); /* one core: nothing to choose */
    assert_int_equal(sched_setaffinity(0, sizeof(topo.allowed), &topo.allowed), 0);
    note_set(&before);
    topo_enter(&topo);
    assert_int_equal(pthread_create(&thread, NULL, note_set, &of_thread), 0);
    topo_leave(&topo);
    pthread_join(thread, NULL);
    note_set(&after);
    assert_true(CPU_EQUAL(&before, &after));
    assert_true(CPU_EQUAL(&of_thread, &topo.helpers));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_keep_off_the_engines_core_only_where_the_rank_is_bound),
        cmocka_unit_test(started_threads_run_there_and_the_engine_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
