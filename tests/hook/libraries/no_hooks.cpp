// A library that has nothing to do with hooks.
extern "C" int something_else() { return 0; }
