/* Squares of rows turned to columns, for one vector width: what residual_step_level.h and coded_step.c share. Included
 * once per level; the names that it defines for that level are forgotten by undefine_level.h. */
#ifndef SHUFFLED
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(one, other, ...) __builtin_shufflevector(one, other, __VA_ARGS__)
#else
#define SHUFFLED(one, other, ...) __builtin_shuffle(one, other, (WORDS){__VA_ARGS__})
#endif
#endif

#define AT(place) (*(VECTOR *)(place))
#define ALL(value) ((value) - (VECTOR){0.0})

#if WIDTH == 8
#define UPPER_1(a, b) SHUFFLED(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define LOWER_1(a, b) SHUFFLED(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define UPPER_2(a, b) SHUFFLED(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define LOWER_2(a, b) SHUFFLED(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define UPPER_4(a, b) SHUFFLED(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define LOWER_4(a, b) SHUFFLED(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#elif WIDTH == 4
#define UPPER_1(a, b) SHUFFLED(a, b, 0, 4, 2, 6)
#define LOWER_1(a, b) SHUFFLED(a, b, 1, 5, 3, 7)
#define UPPER_2(a, b) SHUFFLED(a, b, 0, 1, 4, 5)
#define LOWER_2(a, b) SHUFFLED(a, b, 2, 3, 6, 7)
#else
#define UPPER_1(a, b) SHUFFLED(a, b, 0, 2)
#define LOWER_1(a, b) SHUFFLED(a, b, 1, 3)
#endif
/* Exchange what lies off the diagonal of every square of twice the distance. */
#define EXCHANGE(distance)                                                                                             \
    _Pragma("GCC unroll 8") for (int i = 0; i < WIDTH; i++) if (!(i & distance))                                       \
    {                                                                                                                  \
        VECTOR upper = UPPER_##distance(a[i], a[i + distance]), lower = LOWER_##distance(a[i], a[i + distance]);       \
        a[i] = upper;                                                                                                  \
        a[i + distance] = lower;                                                                                       \
    }

/* WIDTH rows of as many entries to columns. */
static DPFAST_INLINE TARGET void LEVEL(turn_square)(const double *rows, ptrdiff_t stride, double *columns,
                                                    ptrdiff_t block_rows)
{
    VECTOR a[WIDTH];
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++)
        a[i] = AT(rows + i * stride);
    EXCHANGE(1)
#if WIDTH > 2
    EXCHANGE(2)
#endif
#if WIDTH > 4
    EXCHANGE(4)
#endif
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++)
        AT(columns + i * block_rows) = a[i];
}

/* Rows of n entries to columns, rounded up to WIDTH: those beyond have what lies behind the rows. */
static DPFAST_INLINE TARGET void LEVEL(turn)(const double *rows, ptrdiff_t n, ptrdiff_t n_rows, double *columns,
                                             ptrdiff_t block_rows)
{
    if (n == 1)
        memcpy(columns, rows, (size_t)n_rows * sizeof *rows);
    else
        for (ptrdiff_t r = 0; r < n_rows; r += WIDTH)
            for (ptrdiff_t j = 0; j < n; j += WIDTH)
                LEVEL(turn_square)(rows + r * n + j, n, columns + j * block_rows + r, block_rows);
}
