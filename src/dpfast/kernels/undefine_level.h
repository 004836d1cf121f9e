/* Forget the names of a level: the next one has its own. */
#undef LEVEL
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef FLOATS
#undef WORDS
#undef MULTIPLY_ADD
