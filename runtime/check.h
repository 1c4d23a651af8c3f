/*
 * check.h - the two assertions, on in every build.
 *
 * KVF_REQUIRE: the caller broke the contract. KVF_ASSERT: this file did. One condition each,
 * without side effects. Both log and abort: the one exception to "the library never aborts". What
 * comes from outside (a peer, a file, a setting) gets a status and never reaches either.
 */
#ifndef KVF_CHECK_H
#define KVF_CHECK_H

#if defined(__GNUC__)
#define KVF_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define KVF_NORETURN __attribute__((noreturn))
#else
#define KVF_PRINTF(format_at, args_at)
#define KVF_NORETURN
#endif

KVF_NORETURN void kvf_check_failed(const char *kind, const char *condition, const char *file,
                                   int line);

#define KVF_REQUIRE(condition) \
    ((condition) ? (void)0 : kvf_check_failed("contract broken", #condition, __FILE__, __LINE__))
#define KVF_ASSERT(condition) \
    ((condition) ? (void)0 : kvf_check_failed("bug", #condition, __FILE__, __LINE__))

#endif /* KVF_CHECK_H */
