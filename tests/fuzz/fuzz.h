/*
 * fuzz.h - what a fuzz program consists of. With clang's -fsanitize=fuzzer the first call is all
 * that counts; with any other compiler fuzz_main.c runs a corpus and generated inputs over it.
 */
#ifndef KVF_FUZZ_H
#define KVF_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds one input to the code under test. Returns 0; what is wrong aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes);

/* A good input to change, for fuzz_main.c: its length, 0 beyond the last one. */
size_t fuzz_sample(unsigned index, uint8_t *bytes, size_t max_bytes);

#endif /* KVF_FUZZ_H */
