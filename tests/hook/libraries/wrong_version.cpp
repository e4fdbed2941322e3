// A hook library with a wrong ABI version.
extern "C" __attribute__((visibility("default"))) int hookline_hook_abi_version() { return -1; }
extern "C" __attribute__((visibility("default"))) void hookline_register_hooks() {}
