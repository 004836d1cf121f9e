/* One person's block of products against its bounds. The design is described in person_gram.pyx. */
#ifndef DPFAST_PERSON_GRAM_H
#define DPFAST_PERSON_GRAM_H

#include <stddef.h>
#include <stdint.h>

#include "gram.h"

/* Bounds on the Frobenius norms of the products within x (xx) and of those between x and y (xy), in grid units. */
typedef struct {
    double xx, xy;                             /* norms onto which a larger block is scaled; infinite for none */
    uint64_t xx_high, xx_low, xy_high, xy_low; /* largest squared norms after rounding: 128-bit integers */
} dpfast_block_bounds;

/* What to multiply the rows of a block by, in place of 1, to bring it onto its bounds; 1 if it is within them.
 * `products` is laid out as the totals of dpfast_add_products are: n_features rows of `stride`. */
double dpfast_block_multiplier(const int64_t *products, ptrdiff_t n_features, ptrdiff_t n_outcomes, ptrdiff_t stride,
                               const dpfast_block_bounds *bounds);

/* The same from the products of the block's rows with each other, of which the upper triangle of the n_rows by n_rows is
 * used: ||X'X|| = ||XX'||, and ||X'Y||^2 is the inner product of XX' and YY'. `of_y` is NULL without outcomes. */
double dpfast_rows_multiplier(const double *of_x, const double *of_y, ptrdiff_t n_rows,
                              const dpfast_block_bounds *bounds);

/* Multiply packed rows, and round half to even again. */
void dpfast_scale_pack(const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier);

/* totals += products (unless totals is NULL), products = 0; as far as they are used. */
void dpfast_move_products(int64_t *products, ptrdiff_t n_features, ptrdiff_t stride, int64_t *totals);

#endif
