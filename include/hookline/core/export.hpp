// HOOKLINE_EXPORT marks the symbols that the shared library exports; all others are hidden.
#pragma once

#if !defined(__cpp_rtti)
#error "hookline requires run-time type information (groups, hooks and errors use it): compile without -fno-rtti"
#endif

#define HOOKLINE_EXPORT __attribute__((visibility("default")))
