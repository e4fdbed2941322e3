// Loading of plug-in libraries with dlopen.
#include "core/plugin.hpp"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::core {

std::vector<std::filesystem::path> plugin_search_path(const char* variable) {
  const char* const value = std::getenv(variable);
  std::string rest = value ? value : "";
  std::vector<std::filesystem::path> directories;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    if (colon != 0) directories.emplace_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return directories;
}

Plugin::Plugin(std::filesystem::path path, std::string kind, int flags)
    : path_(std::move(path)), kind_(std::move(kind)), library_(dlopen(path_.c_str(), flags)) {
  if (!library_) throw Unsupported(fmt::format("{}, {}, cannot be loaded: {}", path_.string(), kind_, dlerror()));
}

void Plugin::check_version(const char* symbol, int expected) const {
  const int version = function<int()>(symbol)();
  if (version == expected) return;
  throw Unsupported(
      fmt::format("{} is {} of version {}, and this library takes version {}; build both from the same sources",
                  path_.string(), kind_, version, expected));
}

void* Plugin::find(const char* symbol) const {
  void* const found = dlsym(library_, symbol);
  if (!found) {
    throw Unsupported(fmt::format("{} is not {} of Hookline: it has no {}", path_.string(), kind_, symbol));
  }
  return found;
}

}  // namespace hookline::core
