// Marks what the shared library shows to its users; everything else is hidden.
#pragma once

#if !defined(__cpp_rtti)
#error "hookline needs run-time type information to tell groups, hooks and errors apart: compile without -fno-rtti"
#endif

#define HOOKLINE_EXPORT __attribute__((visibility("default")))
