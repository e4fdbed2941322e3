// Finds the library of an engine, where the user says or beside this one, and asks it for its version first.
#include "backend/engine/load.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

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

template <class F>
F* find(void* library, const fs::path& path, const char* symbol) {
  void* const found = dlsym(library, symbol);
  if (!found) throw Unsupported(fmt::format("{} is not an engine of Hookline: it has no {}", path.string(), symbol));
  return reinterpret_cast<F*>(found);
}

}  // namespace

std::vector<fs::path> places(const std::string& name) {
  const std::string file = fmt::format("libhookline_{}.so", name);
  std::vector<fs::path> paths;
  const char* const more = std::getenv("HOOKLINE_ENGINE_PATH");
  std::string rest = more ? more : "";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    if (colon != 0) paths.push_back(fs::path(rest.substr(0, colon)) / file);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
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
    void* const library = dlopen(path.c_str(), flags_of(name));  // never to be unloaded
    if (!library) {
      throw Unsupported(fmt::format("the engine '{}' cannot be loaded; install {} ({})", name, package, dlerror()));
    }
    const int version = find<int()>(library, path, "hookline_engine_version")();
    if (version != kEngineVersion) {
      throw Unsupported(fmt::format(
          "{} is an engine of version {}, and this library takes version {}; build both from the same sources",
          path.string(), version, kEngineVersion));
    }
    return find<MakeEngine>(library, path, "hookline_make_engine");
  }
  throw Unsupported(fmt::format(
      "the engine '{}' is not installed here: it needs {}, and Hookline built where that is installed (looked for {})",
      name, package, tried));
}

}  // namespace hookline::engine
