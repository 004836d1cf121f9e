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

#endif
