/* Forget the names of a level, and those of turn_level.h: the next one has its own. */
#undef LEVEL
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef FLOATS
#undef WORDS
#undef MULTIPLY_ADD
#undef AT
#undef ALL
#undef EXCHANGE
#undef UPPER_1
#undef LOWER_1
#undef UPPER_2
#undef LOWER_2
#undef UPPER_4
#undef LOWER_4
