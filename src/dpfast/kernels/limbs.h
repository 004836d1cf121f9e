/* Two-limb 128-bit integers (two's complement) to doubles. */
#ifndef DPFAST_LIMBS_H
#define DPFAST_LIMBS_H

#include <stdint.h>

/* Rounded once, to nearest, ties to even, as the compiler's own conversion is. Most sums fit one word, whose conversion
 * is an instruction rather than a call. */
static inline double dpfast_limbs_to_double(int64_t high, uint64_t low)
{
    __extension__ typedef __int128 wide;
    __extension__ typedef unsigned __int128 unsigned_wide;
    if (high == (int64_t)low >> 63)
        return (double)(int64_t)low;
    return (double)(wide)(((unsigned_wide)(uint64_t)high << 64) | low);
}

/* What rounding a number of fewer than 116 bits left out, itself rounded: the difference fits the lower limb, whose wrap
 * takes care of signs. */
static inline double dpfast_limbs_left_out(uint64_t low, double rounded)
{
    __extension__ typedef __int128 wide;
    return (double)(int64_t)(low - (uint64_t)(wide)rounded);
}

/* Adds a number to another; returns whether the sum leaves 128 bits. */
static inline int dpfast_limbs_add(int64_t *high, uint64_t *low, int64_t more_high, uint64_t more_low)
{
    const int64_t before = *high;
    *low += more_low;
    *high = (int64_t)((uint64_t)before + (uint64_t)more_high + (*low < more_low));
    return (before < 0) == (more_high < 0) && (*high < 0) != (before < 0);
}

/* Shifts a number to which half a unit of 2^shift was added: what is left over, in units, from -1/2 to below 1/2. */
static inline double dpfast_limbs_split(int64_t *high, uint64_t *low, int shift)
{
    const uint64_t unit = (uint64_t)1 << shift;
    const int64_t left = (int64_t)(*low & (unit - 1)) - (int64_t)(unit >> 1);
    *low = (*low >> shift) | ((uint64_t)*high << (64 - shift));
    *high >>= shift;
    return (double)left / (double)unit;
}

/* Multiplies a number by 2^shift, shift from 0 to 62; returns whether the product leaves 128 bits. */
static inline int dpfast_limbs_shift(int64_t *high, uint64_t *low, int shift)
{
    const int64_t before = *high;
    if (shift == 0)
        return 0;
    *high = (int64_t)((uint64_t)before << shift | *low >> (64 - shift));
    *low <<= shift;
    return *high >> shift != before;
}

#endif
