// Plug-in libraries: search path, loading and version check.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hookline::core {

/// Returns the colon-separated directories of an environment variable, without empty ones.
std::vector<std::filesystem::path> plugin_search_path(const char* variable);

/// A plug-in library. It is never unloaded. `kind` is used in error messages, with its article: "a transport".
class Plugin {
 public:
  /// Loads the library. Throws Unsupported with the dynamic linker's message if that fails.
  Plugin(std::filesystem::path path, std::string kind, int flags = RTLD_NOW | RTLD_LOCAL);

  /// Throws Unsupported if the library's function `symbol` is missing or does not return `expected`.
  void check_version(const char* symbol, int expected) const;

  /// Returns a function of the library. Throws Unsupported if it is missing.
  template <class F>
  F* function(const char* symbol) const {
    return reinterpret_cast<F*>(find(symbol));
  }

 private:
  void* find(const char* symbol) const;

  std::filesystem::path path_;
  std::string kind_;
  void* library_;
};

}  // namespace hookline::core
