/* The two inner loops of first-visit sums: a few operations a step, so what is not needed is not done. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

/* All that is known of a state lies together: a visit touches one line of the cache. */
typedef struct {
    int64_t units;  /* sum of its first visits' returns, in grid units */
    uint32_t count; /* how many there are */
    int32_t stamp;  /* the last trajectory seen there */
} dpfast_state_sums;

enum {
    CHUNK = 8,  /* steps whose rewards are one line of the cache */
    AHEAD = 16, /* steps whose states are asked for in advance */
};

static DPFAST_INLINE void to_units(double *values, ptrdiff_t n, double low, double scale, double largest)
{
    /* Where 2^52 is added the unit in the last place is 1: the bits count up from those of 2^52. */
    const double shift = 4503599627370496.0;
    const int64_t bits_of_shift = 0x4330000000000000;
    for (ptrdiff_t i = 0; i < n; i++) {
        double unit = (values[i] - low) * scale;
        unit = unit > 0.0 ? unit : 0.0;
        unit = unit < largest ? unit : largest;
        unit += shift;
        int64_t bits;
        memcpy(&bits, &unit, sizeof bits);
        bits -= bits_of_shift;
        memcpy(values + i, &bits, sizeof bits);
    }
}

DPFAST_AT_LEVELS(void, to_units, (double *values, ptrdiff_t n, double low, double scale, double largest),
                 { to_units(values, n, low, scale, largest); })

/* Replace values by the integers nearest (value - low) scale, ties to even, within [0, largest], as int64_t; `largest`
 * is below 2^52. */
static void dpfast_to_units(double *values, ptrdiff_t n, double low, double scale, double largest, int level)
{
    DPFAST_CALL(to_units, level, values, n, low, scale, largest);
}

/* Without a branch on data: whether a state is new is hard to foresee, and a guess gone wrong costs as much as 15 steps.
 */
static DPFAST_INLINE void tally_step(dpfast_state_sums *sums, int64_t unit, int32_t stamp)
{
    int64_t if_first = -(int64_t)(sums->stamp != stamp); /* all bits, or none */
    sums->units += unit & if_first;
    sums->count -= (uint32_t)if_first;
    sums->stamp = stamp;
}

#define DEFINE_TALLY(state_t, name)                                                                                    \
    static DPFAST_INLINE void name##_body(const state_t *restrict states, const int64_t *restrict units,               \
                                          const uint8_t *restrict is_last, ptrdiff_t n_steps, int32_t stamp,           \
                                          const char *following, dpfast_state_sums *restrict sums, int sums_are_far)   \
    {                                                                                                                  \
        ptrdiff_t t = 0;                                                                                               \
        for (; t <= n_steps - CHUNK - AHEAD; t += CHUNK) {                                                             \
            __builtin_prefetch(following + t * (ptrdiff_t)sizeof(double));                                                \
            for (ptrdiff_t i = t; i < t + CHUNK; i++) {                                                                \
                if (sums_are_far)                                                                                      \
                    __builtin_prefetch(sums + states[i + AHEAD]);                                                         \
                tally_step(sums + states[i], units[i], stamp);                                                         \
                stamp += is_last[i];                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; t < n_steps; t++) {                                                                                     \
            tally_step(sums + states[t], units[t], stamp);                                                             \
            stamp += is_last[t];                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void name(const state_t *states, const int64_t *units, const uint8_t *is_last, ptrdiff_t n_steps,           \
                     int32_t stamp, const char *following, dpfast_state_sums *sums, int sums_are_far)                  \
    {                                                                                                                  \
        if (sums_are_far)                                                                                              \
            name##_body(states, units, is_last, n_steps, stamp, following, sums, 1);                                   \
        else                                                                                                           \
            name##_body(states, units, is_last, n_steps, stamp, following, sums, 0);                                   \
    }

/* Add the units of steps that are the first in their state since the stamp changed: it is `stamp`, and one more after
 * each step that is a last one. From `following` on, as many rewards as there are steps are brought to the cache
 * meanwhile. */
DEFINE_TALLY(int32_t, dpfast_tally_int32)
DEFINE_TALLY(int64_t, dpfast_tally_int64)
