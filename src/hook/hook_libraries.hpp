// Hooks in shared libraries of their own.
#pragma once

namespace hookline::hook {

/// Loads the libraries libhookline_hook_*.so in the folders of HOOKLINE_HOOK_PATH that are not loaded yet, in the order
/// of the folders and of their names, and has them register their hooks. Unsupported naming a library that is none of
/// this version; what its registration throws, such as InvalidArgument for a name that is taken, comes through.
void load_hook_libraries();

}  // namespace hookline::hook
