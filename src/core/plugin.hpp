// Shared libraries that are loaded at run time: where they are looked for, and the version that they were built for.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <vector>

namespace hookline::core {

/// The folders of an environment variable, separated by colons. Empty ones are left out.
std::vector<std::filesystem::path> folders_of(const char* variable);

/// A library of one kind of plug-ins, with its article for error texts: "an engine". It is never unloaded.
class Plugin {
 public:
  /// Loads the library. Unsupported, with the reason of the dynamic linker, where that fails.
  Plugin(std::filesystem::path path, std::string kind, int flags = RTLD_NOW | RTLD_LOCAL);

  /// Unsupported where the library's function `symbol` returns another version than `expected`, or is missing.
  void check_version(const char* symbol, int expected) const;

  /// A function of the library. Unsupported where there is none of that name.
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
