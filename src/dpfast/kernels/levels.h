/* The loops of a file, DPFAST_LOOPS, once per level of instructions: vectors of WIDTH doubles. CALL picks a level.
 *
 * To be included by a C file once, after it has defined DPFAST_LOOPS: a header of loops, or the C file itself, which then
 * holds the loops where LEVEL is defined and everything else where it is not. cpu.h has the levels. A function of the
 * loops is named LEVEL(name) and has the attribute TARGET. MULTIPLY_ADD may round once: bits depend on the level where it
 * is used on numbers that are not exact. */
#include "cpu.h"

#define LEVEL(name) name##_baseline
#define TARGET
#define WIDTH 2
typedef double vector2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef float floats2 __attribute__((vector_size(8), aligned(4), may_alias));
typedef int64_t words2 __attribute__((vector_size(16), aligned(8), may_alias));
#define VECTOR vector2
#define FLOATS floats2
#define WORDS words2
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include DPFAST_LOOPS
#include "undefine_level.h"

#if DPFAST_HAVE_X86_LEVELS
#include <immintrin.h>
#define LEVEL(name) name##_avx2
#define TARGET DPFAST_TARGET_AVX2
#define WIDTH 4
typedef double vector4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef float floats4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int64_t words4 __attribute__((vector_size(32), aligned(8), may_alias));
#define VECTOR vector4
#define FLOATS floats4
#define WORDS words4
#define MULTIPLY_ADD(a, b, c) ((VECTOR)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#include DPFAST_LOOPS
#include "undefine_level.h"

#define LEVEL(name) name##_avx512
#define TARGET DPFAST_TARGET_AVX512
#define WIDTH 8
typedef double vector8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef float floats8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int64_t words8 __attribute__((vector_size(64), aligned(8), may_alias));
#define VECTOR vector8
#define FLOATS floats8
#define WORDS words8
#define MULTIPLY_ADD(a, b, c) ((VECTOR)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#include DPFAST_LOOPS
#include "undefine_level.h"

#endif

#define CALL DPFAST_CALL
