// Finds the library of an engine, where the user says or beside this one, and asks it for its version first.
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

// Local, and bound to its own dependencies first: PyTorch's libraries export symbols of Gloo. Address sanitizer does
// not bear the latter.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// An MPI that the application uses too is one, with its constants in the application: nothing of it may be bound apart.
int flags_of(const std::string& name) { return name == "mpi" ? RTLD_NOW | RTLD_LOCAL : kFlags; }

// Where this code lies: libhookline.so, or the program that it is linked into.
fs::path own_directory() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || !info.dli_fname) return {};
  std::error_code ignored;
  const fs::path file = fs::canonical(info.dli_fname, ignored);
  return file.parent_path();
}

core::Plugin opened(const std::string& name, const fs::path& path, const std::string& package) {
  try {
    return {path, "an engine", flags_of(name)};
  } catch (const Unsupported& e) {
    throw Unsupported(fmt::format("the engine '{}' cannot be loaded; install {} ({})", name, package, e.what()));
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
      "the engine '{}' is not installed here: it needs {}, and Hookline built where that is installed (looked for {})",
      name, package, tried));
}

}  // namespace hookline::engine
