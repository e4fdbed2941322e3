// A library of hooks for a version of Hookline that is not this one.
extern "C" __attribute__((visibility("default"))) int hookline_hook_version() { return -1; }
extern "C" __attribute__((visibility("default"))) void hookline_register_hooks() {}
