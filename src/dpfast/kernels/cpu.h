/* Which vector instructions a kernel may use, decided at run time.
 *
 * Wheels are compiled for the baseline of their architecture. A kernel that gains from wider vectors writes its body
 * once as a `static DPFAST_INLINE` function, instantiates it in one static function per level (DPFAST_AT_LEVELS), and
 * picks among them by dpfast_cpu_level(). The build forbids contraction to fused multiply-add, so a body that does the
 * same operations in the same order gives the same bits at every level.
 *
 * On Windows GCC keeps stacks aligned to 16 bytes and yet moves wider vectors to them by instructions that demand 32 (its
 * bug 54412): it has the baseline only.
 *
 * The environment variable DPFAST_CPU (baseline, avx2 or avx512) caps the level. Other architectures and compilers have
 * the baseline only, where the attribute macros are empty: guard instantiations by `#if DPFAST_HAVE_X86_LEVELS`.
 */
#ifndef DPFAST_CPU_H
#define DPFAST_CPU_H

#include <stdlib.h>
#include <string.h>

enum dpfast_level {
    DPFAST_BASELINE = 0,
    DPFAST_AVX2 = 1,
    DPFAST_AVX512 = 2,
};

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__clang__) || (defined(__GNUC__) && !defined(_WIN32)))
#define DPFAST_HAVE_X86_LEVELS 1
#define DPFAST_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define DPFAST_TARGET_AVX512 __attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")))
#else
#define DPFAST_HAVE_X86_LEVELS 0
#define DPFAST_TARGET_AVX2
#define DPFAST_TARGET_AVX512
#endif

#if defined(__GNUC__) || defined(__clang__)
#define DPFAST_INLINE inline __attribute__((always_inline))
#define DPFAST_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#else
#define DPFAST_INLINE inline
#define DPFAST_UNLIKELY(condition) (condition)
#endif

/* A function with a body in braces at every level, of which DPFAST_CALL picks one. */
#if DPFAST_HAVE_X86_LEVELS
#define DPFAST_AT_LEVELS(result, name, parameters, ...)                                                                \
    static result name##_baseline parameters __VA_ARGS__                                                               \
    static DPFAST_TARGET_AVX2 result name##_avx2 parameters __VA_ARGS__                                                \
    static DPFAST_TARGET_AVX512 result name##_avx512 parameters __VA_ARGS__
#define DPFAST_CALL(name, level, ...)                                                                                  \
    ((level) == DPFAST_AVX512 ? name##_avx512(__VA_ARGS__)                                                             \
                              : (level) == DPFAST_AVX2 ? name##_avx2(__VA_ARGS__) : name##_baseline(__VA_ARGS__))
#else
#define DPFAST_AT_LEVELS(result, name, parameters, ...) static result name##_baseline parameters __VA_ARGS__
#define DPFAST_CALL(name, level, ...) name##_baseline(__VA_ARGS__)
#endif

/* The highest level the processor (and, for the wide registers, the operating system) supports. */
static inline int dpfast_hardware_level(void)
{
#if DPFAST_HAVE_X86_LEVELS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return DPFAST_BASELINE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return DPFAST_AVX512;
    return DPFAST_AVX2;
#else
    return DPFAST_BASELINE;
#endif
}

/* The cap set by DPFAST_CPU; an unset or unknown value caps nothing. */
static inline int dpfast_level_cap(void)
{
    const char *name = getenv("DPFAST_CPU");
    if (name && strcmp(name, "baseline") == 0)
        return DPFAST_BASELINE;
    if (name && strcmp(name, "avx2") == 0)
        return DPFAST_AVX2;
    return DPFAST_AVX512;
}

/* The level to run at. Cheap enough (tens of nanoseconds) to ask once per call of a kernel. */
static inline int dpfast_cpu_level(void)
{
    int hardware = dpfast_hardware_level();
    int cap = dpfast_level_cap();
    return hardware < cap ? hardware : cap;
}

/* An explicitly requested level (a test comparing levels in one process); negative asks for dpfast_cpu_level(). */
static inline int dpfast_resolve_level(int requested)
{
    int available = requested < 0 ? dpfast_cpu_level() : dpfast_hardware_level();
    return requested >= 0 && requested < available ? requested : available;
}

#endif
