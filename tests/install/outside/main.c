/* main.c - a program that knows kvferry by its installed header alone. Needs no MPI to compile. */
#include <kvferry/kvferry.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    printf("kvferry %s: %s\n", kvf_version(), kvf_status_text(KVF_E_PEER_LOST));
    return strcmp(kvf_status_text(KVF_OK), "done") == 0 ? 0 : 1;
}
