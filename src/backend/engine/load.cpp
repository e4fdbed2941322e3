// Finds the library of a transport, in the user's directories or beside libhookline, and checks its version.
#include "backend/engine/load.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/plugin.hpp"

namespace hookline::engine {
namespace {

namespace fs = std::filesystem;

// RTLD_DEEPBIND, because PyTorch's libraries export symbols of another Gloo. The sanitizers do not support it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// The application and the transport must share one MPI, so the mpi transport is not deep-bound.
int flags_of(const std::string& name) { return name == "mpi" ? RTLD_NOW | RTLD_LOCAL : kFlags; }

// Returns the directory of libhookline.so, or of the program it is linked into.
fs::path own_directory() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || !info.dli_fname) return {};
  std::error_code ignored;
  const fs::path file = fs::canonical(info.dli_fname, ignored);
  return file.parent_path();
}

core::Plugin opened(const std::string& name, const fs::path& path, const std::string& package) {
  try {
    return {path, "a transport", flags_of(name)};
  } catch (const Unsupported& e) {
    throw Unsupported(fmt::format("the transport '{}': {}. Install {}.", name, e.what(), package));
  }
}

}  // namespace

std::vector<fs::path> places(const std::string& name) {
  const std::string file = fmt::format("libhookline_{}.so", name);
  std::vector<fs::path> paths;
  for (const fs::path& folder : core::folders_of("HOOKLINE_ENGINE_PATH")) paths.push_back(folder / file);
  paths.push_back(own_directory() / file);
  return paths;
}

MakeEngine* load(const std::string& name, const std::string& package) {
  std::string tried;
  for (const fs::path& path : places(name)) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", path.string());
      continue;
    }
    const core::Plugin library = opened(name, path, package);
    library.check_version("hookline_engine_version", kEngineVersion);
    return library.function<MakeEngine>("hookline_make_engine");
  }
  throw Unsupported(fmt::format(
      "the transport '{}' is not installed: no library found at {}. Install {}, and build Hookline with it.", name,
      tried, package));
}

}  // namespace hookline::engine
