/* Forget the names of turn_level.h. */
#undef AT
#undef ALL
#undef EXCHANGE
#undef UPPER_1
#undef LOWER_1
#undef UPPER_2
#undef LOWER_2
#undef UPPER_4
#undef LOWER_4
