// A shared library without the entry points of a hook library.
extern "C" int something_else() { return 0; }
