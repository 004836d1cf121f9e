/* One person's block of products against its bounds. The design is described in person_gram.pyx. */
#ifndef DPFAST_PERSON_GRAM_H
#define DPFAST_PERSON_GRAM_H

#include <stddef.h>
#include <stdint.h>

#include "gram.h"

/* Bounds on the Frobenius norms of the products within x (xx) and of those between x and y (xy), in grid units. */
typedef struct {
    double xx, xy; /* norms onto which a larger block is scaled; infinite for none: rows within theirs pass no limit */
    uint64_t xx_high, xx_low, xy_high, xy_low; /* largest squared norms after rounding: 128-bit integers */
} dpfast_block_bounds;

/* Where a person's products lie: n_features rows of `stride` words, a multiple of 8, as those of dpfast_add_products. */
typedef struct {
    ptrdiff_t n_features, n_outcomes, stride;
} dpfast_block_shape;

/* What to multiply the rows of a block by, in place of 1, to bring it onto its bounds; 1 if it is within them. */
double dpfast_block_multiplier(const int64_t *products, const dpfast_block_shape *shape,
                               const dpfast_block_bounds *bounds);

/* The same of products in doubles; the columns' weights are those of dpfast_weigh_columns. */
double dpfast_block_multiplier_in_doubles(int level, const double *products, const dpfast_block_shape *shape,
                                          const double *weights, const dpfast_block_bounds *bounds);

/* How often squares of a row count that stand above the diagonal: `stride` weights within x, as many between x and y. */
void dpfast_weigh_columns(const dpfast_block_shape *shape, double *weights);

/* The same from the products of the block's rows with each other, as dpfast_multiply_rows gives them: ||X'X|| = ||XX'||,
 * and ||X'Y||^2 is the inner product of XX' and YY'. `of_y` is NULL without a bound on xy. */
double dpfast_rows_multiplier(int level, const double *of_x, const double *of_y, ptrdiff_t n_rows, ptrdiff_t stride,
                              const dpfast_block_bounds *bounds);

/* Multiply packed rows, and round half to even again. */
void dpfast_scale_pack(int level, const dpfast_pack *pack, ptrdiff_t n_rows, double multiplier);

/* totals += products (unless totals is NULL), products = 0; as far as they are used. */
void dpfast_move_products(int64_t *products, const dpfast_block_shape *shape, int64_t *totals);

/* totals += products in doubles; what new totals hold does not count. */
void dpfast_add_products_of_one(int level, const double *products, const dpfast_block_shape *shape, double *totals,
                                int is_new);

#endif
