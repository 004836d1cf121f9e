/* Returns to grid units, and units to the sums of the states that are visited first. The design is in first_visits.pyx. */
#ifndef DPFAST_FIRST_VISITS_H
#define DPFAST_FIRST_VISITS_H

#include <stddef.h>
#include <stdint.h>

#include "cpu.h"

/* All that is known of a state lies together: a visit touches one line of the cache. */
typedef struct {
    int64_t units;  /* sum of its first visits' returns, in grid units */
    uint32_t count; /* how many there are */
    int32_t stamp;  /* the last trajectory seen there */
} dpfast_state_sums;

/* Replace values by the integers nearest (value - low) scale, ties to even, within [0, largest], as int64_t; `largest`
 * is below 2^52. */
void dpfast_to_units(double *values, ptrdiff_t n, double low, double scale, double largest, int level);

/* Add the units of steps that are the first in their state since the stamp changed: it is `stamp`, and one more after
 * each step that is a last one. From `following` on, as many rewards as there are steps are brought to the cache
 * meanwhile. */
void dpfast_tally_int32(const int32_t *states, const int64_t *units, const uint8_t *is_last, ptrdiff_t n_steps,
                        int32_t stamp, const char *following, dpfast_state_sums *sums, int sums_are_far);
void dpfast_tally_int64(const int64_t *states, const int64_t *units, const uint8_t *is_last, ptrdiff_t n_steps,
                        int32_t stamp, const char *following, dpfast_state_sums *sums, int sums_are_far);

#endif
