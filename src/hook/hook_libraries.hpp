// Hook libraries: plug-ins that register hooks.
#pragma once

namespace hookline::hook {

/// Loads the libraries libhookline_hook_*.so in the folders of HOOKLINE_HOOK_PATH that are not loaded yet, in the order
/// of folders and names, and registers their hooks. Throws Unsupported naming a library of another ABI version, and
/// the exceptions that libraries throw while they register hooks.
void load_hook_libraries();

}  // namespace hookline::hook
