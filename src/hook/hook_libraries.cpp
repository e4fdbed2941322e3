// Finds hook libraries and loads each once.
#include "hook/hook_libraries.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>

#include "core/plugin.hpp"

namespace hookline::hook {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPathVariable = "HOOKLINE_HOOK_PATH";

std::vector<fs::path> libraries_in(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    throw InvalidArgument(
        fmt::format("{}: cannot read the folder {}: {}", kPathVariable, folder.string(), error.message()));
  }
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename();
    if (name.starts_with("libhookline_hook_") && name.ends_with(".so")) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

void load_hook_libraries() {
  const std::vector<fs::path> folders = core::plugin_search_path(kPathVariable);
  if (folders.empty()) return;
  // Recursive: a library may create other hooks by name while it registers its own.
  static std::recursive_mutex mutex;
  static std::set<fs::path> loaded;
  const std::lock_guard lock(mutex);
  for (const fs::path& folder : folders) {
    for (const fs::path& path : libraries_in(folder)) {
      if (!loaded.insert(fs::canonical(path)).second) continue;
      try {
        const core::Plugin library(path, "a library of hooks");
        library.check_version("hookline_hook_abi_version", kHookAbiVersion);
        library.function<void()>("hookline_register_hooks")();
      } catch (...) {
        loaded.erase(fs::canonical(path));
        throw;
      }
    }
  }
}

}  // namespace hookline::hook
